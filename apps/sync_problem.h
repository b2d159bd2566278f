#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/buffer.h"
#include "core/tensor.h"
#include "nn/module.h"
#include "nn/optimizer.h"
#include "paramserver/shard_map.h"

namespace troop {

// What `troop check sync` trains: three small layers. Samples are drawn by their number among all
// samples, so it does not matter who computes a gradient. Owner: one thread.
class SyncProblem {
 public:
  static constexpr std::int64_t kIn = 7, kWide = 12, kNarrow = 9, kOut = 3;
  static constexpr int kBatch = 4;
  struct Sample {
    std::array<float, kIn> in;
    std::array<float, kOut> target;
  };

  explicit SyncProblem(std::uint64_t seed);
  std::span<const ParamSpec> params() const { return module_->params(); }
  std::int64_t parameters() const { return parameters_; }  // P, padding included
  std::vector<float> FirstValue() const;
  std::vector<ParamRange> Biases() const;  // what is trained without weight decay
  std::vector<Optimizer::Group> Groups(float learning_rate) const;  // the same for an optimizer
  Sample Draw(std::uint64_t sample) const;
  // Of the mean of |out - target|^2 / 2 over samples [batch * kBatch, + kBatch): what a learner
  // does in f32. gradient: [P]. The loss.
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
