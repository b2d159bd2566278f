#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/base/buffer.h"
#include "core/tensor/tensor.h"
#include "nn/module.h"
#include "nn/optimizer.h"
#include "paramserver/shard/shard_map.h"

namespace troop {

// The training problem of `troop selftest sync`: a network of three small layers. A sample depends
// only on its index, so every learner computes the same gradient for a batch. Owner: one thread.
class ToyModel {
 public:
  static constexpr std::int64_t kIn = 7, kWide = 12, kNarrow = 9, kOut = 3;
  static constexpr int kBatch = 4;
  struct Sample {
    std::array<float, kIn> in;
    std::array<float, kOut> target;
  };

  explicit ToyModel(std::uint64_t seed);
  std::span<const ParamSpec> params() const { return module_->params(); }
  std::int64_t parameters() const { return parameters_; }  // P, padding included
  // The initial parameters, [P].
  std::vector<float> FirstValue() const;
  // Ranges trained without weight decay, and the same as optimizer groups.
  std::vector<ParamRange> Biases() const;
  std::vector<Optimizer::Group> Groups(float learning_rate) const;
  // The sample of an index.
  Sample Draw(std::uint64_t sample) const;
  // Gradient of the mean of |out - target|^2 / 2 over samples [batch * kBatch, + kBatch), in f32 as
  // a learner computes it. gradient: [P]. Returns the loss.
  float Gradient(std::span<const float> value, std::uint64_t batch, std::span<float> gradient);

 private:
  std::uint64_t seed_;
  std::unique_ptr<Module> module_;
  std::unique_ptr<Packed> packed_;  // weights of the last Gradient call
  std::int64_t parameters_;
  Tensor in_, out_, dout_;
  MutableBuffer cache_, workspace_;
};

}  // namespace troop
