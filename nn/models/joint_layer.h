#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/base/buffer.h"
#include "kernels/onednn/layer_kernel.h"

namespace troop {

// Weight and bias of one linear layer as a rectangle of a joint layer.
struct JointBlock {
  std::int64_t weight = 0, bias = 0;  // offsets in the value
  std::int64_t row = 0, rows = 0, column = 0, columns = 0;
};

// Several linear layers as one, [rows, columns], zero outside the blocks, so that a pass needs one
// product. Blocks that are contiguous in memory and as wide as the whole are used in place; others
// are gathered and scattered. Owner: the packed form of a module; one thread at a time.
class JointLayer {
 public:
  JointLayer(std::int64_t in, std::int64_t out, std::vector<JointBlock> blocks,
             const KernelOptions& options);

  LayerKernel& kernel() { return *kernel_; }
  // Applies changed weights: gathers the blocks into the joint weight, unless they are used in
  // place.
  void Pack(std::span<const float> value);
  // The joint weight and bias: in the value itself, or gathered by Pack.
  LayerWeights Weights(std::span<const float> value);
  // Computes the joint gradient and scatters the blocks; what is outside them is discarded. x and
  // dz have the types of LayerKernel.
  void BackwardWeight(std::int64_t batch, const void* x, const void* dz, std::span<float> gradient,
                      bool accumulate);

 private:
  // True if the blocks form one contiguous [out, in] weight and one contiguous bias.
  bool InPlace() const;

  const std::int64_t in_, out_;
  const std::vector<JointBlock> blocks_;
  const std::unique_ptr<LayerKernel> kernel_;
  const bool in_place_;
  MutableBuffer plain_, gradient_;  // [out, in], then the bias at bias_at_
  std::size_t bias_at_ = 0;
};

}  // namespace troop
