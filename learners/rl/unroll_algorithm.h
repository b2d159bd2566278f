#pragma once

#include <memory>
#include <span>
#include <vector>

#include "learners/rl/trained_algorithm.h"
#include "learners/rl/unroll_frames.h"

namespace troop {

// Base of the algorithms that learn from unrolls: all frames of a batch pass through the network
// once, forward and backward. A derived class computes the loss of the outputs.
class UnrollAlgorithm : public TrainedAlgorithm {
 public:
  Result<LossReport> ComputeGradient(const SampleBatch& batch, std::span<float> priority,
                                     GradientWatch* watch) final;
  void ApplyGradient(double progress, double norm) final {
    trained().Step(progress, norm, frames_.rows());
  }

 protected:
  // Network outputs of the frames, and what the loss computes from them. K: columns.
  struct Outputs {
    const float* out = nullptr;  // [F, K]
    float* dout = nullptr;       // [F, K]
    float* priority = nullptr;   // [B]
  };
  // env: observation as the network's input. columns: K. `trained` refers to `network`.
  UnrollAlgorithm(const TrainingConfig& config, const EnvSpec& env, std::int64_t columns,
                  std::unique_ptr<Module> network, std::unique_ptr<TrainState> trained);
  // Columns of the recurrent state, with which the state of an item begins; 0: none.
  std::int64_t state_columns() const { return state_columns_; }
  // Further checks of a batch that CheckUnrolls accepts.
  virtual Status CheckBatch(const SampleBatch&) const { return Status::Ok(); }
  // Computes loss, gradient and priorities. The norm and the rows of the report are set later.
  virtual LossReport ComputeLoss(const SampleBatch& batch, const Outputs& outputs) = 0;
  const TrainingConfig& config() const { return config_; }
  const EnvSpec& env() const { return env_; }

 private:
  Status PrepareBuffers(std::int64_t unrolls);
  void PrepareSequences(const SampleBatch& batch);
  void Backward(GradientWatch* watch);

  const TrainingConfig config_;
  const EnvSpec env_;
  const std::int64_t columns_;
  UnrollFrames frames_;  // of the last batch
  Tensor out_, dout_;    // [F_max, K]
  MutableBuffer cache_, workspace_;
  std::vector<float> priority_;  // [B]
  const std::int64_t state_columns_;
  // Sequences of a batch, for recurrent layers.
  std::vector<std::int32_t> lengths_;  // [B]: frames of each unroll
  std::vector<float> state_;           // [B, state_columns]
  Sequences sequences_;
};

}  // namespace troop
