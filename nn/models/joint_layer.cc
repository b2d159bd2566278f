// Implements several linear layers as one product.
#include "nn/models/joint_layer.h"

#include <algorithm>
#include <utility>

#include "kernels/linear/linear.h"
#include "nn/arena.h"

namespace troop {

// The memory of gathered blocks stays zero outside them.
JointLayer::JointLayer(std::int64_t in, std::int64_t out, std::vector<JointBlock> blocks,
                       const KernelOptions& options)
    : in_(in),
      out_(out),
      blocks_(std::move(blocks)),
      kernel_(MakeLinearKernel({in, out}, options)),
      in_place_(InPlace()) {
  if (in_place_) return;
  const std::size_t weights = AlignBytes(std::size_t(in * out) * sizeof(float));
  const std::size_t bytes = weights + std::size_t(out) * sizeof(float);
  plain_ = MutableBuffer::Zeros(bytes);
  gradient_ = MutableBuffer::Zeros(bytes);
  bias_at_ = weights / sizeof(float);
}

// Copies each block to its rectangle.
void JointLayer::Pack(std::span<const float> value) {
  if (!in_place_) {
    float* const plain = plain_.as<float>().data();
    for (const JointBlock& block : blocks_) {
      for (std::int64_t r = 0; r < block.rows; ++r)
        std::copy_n(value.data() + block.weight + r * block.columns, block.columns,
                    plain + (block.row + r) * in_ + block.column);
      std::copy_n(value.data() + block.bias, block.rows, plain + bias_at_ + block.row);
    }
  }
  kernel_->Pack(Weights(value));
}

// The value of an in-place layer may be another buffer in each call.
LayerWeights JointLayer::Weights(std::span<const float> value) {
  if (in_place_) return {value.data() + blocks_[0].weight, value.data() + blocks_[0].bias};
  const float* const plain = plain_.as<float>().data();
  return {plain, plain + bias_at_};
}

// The joint gradient is overwritten, then added or copied per block.
void JointLayer::BackwardWeight(std::int64_t batch, const void* x, const void* dz,
                                std::span<float> gradient, bool accumulate) {
  if (in_place_) {
    kernel_->BackwardWeight(
        batch, x, dz, {gradient.data() + blocks_[0].weight, gradient.data() + blocks_[0].bias},
        accumulate);
    return;
  }
  float* const joint = gradient_.as<float>().data();
  kernel_->BackwardWeight(batch, x, dz, {joint, joint + bias_at_}, false);
  const auto take = [&](const float* from, std::int64_t n, float* to) {
    for (std::int64_t i = 0; i < n; ++i) to[i] = accumulate ? to[i] + from[i] : from[i];
  };
  for (const JointBlock& block : blocks_) {
    for (std::int64_t r = 0; r < block.rows; ++r)
      take(joint + (block.row + r) * in_ + block.column, block.columns,
           gradient.data() + block.weight + r * block.columns);
    take(joint + bias_at_ + block.row, block.rows, gradient.data() + block.bias);
  }
}

// Each block must begin where the one before it ends, in weights, biases and rows.
bool JointLayer::InPlace() const {
  std::int64_t rows = 0;
  for (const JointBlock& block : blocks_) {
    if (block.columns != in_ || block.row != rows ||
        block.weight != blocks_[0].weight + rows * in_ || block.bias != blocks_[0].bias + rows)
      return false;
    rows += block.rows;
  }
  return rows == out_;
}

}  // namespace troop
