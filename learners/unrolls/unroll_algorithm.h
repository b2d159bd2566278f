#pragma once

#include <memory>
#include <span>
#include <vector>

#include "learners/rl/trained_algorithm.h"
#include "learners/unrolls/unroll_frames.h"

namespace troop {

// Base of the algorithms that learn from unrolls: all frames of a batch pass through the network
// once, forward and backward, and forward through the target network if there is one. A derived
// class computes the loss of the outputs.
//
// A recurrent network begins each unroll with the state of its item, which an actor computed. With
// burn-in (actor.burn_in) it passes the steps before the unroll first, without a gradient: so the
// state at the first step is that of the current weights, up to the stored state at its beginning
// (Kapturowski et al. 2019, section 3). With learner.stored_state = false all begin with zeros.
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
    const float* out = nullptr;     // [F, K]
    const float* target = nullptr;  // [F, K]: of the target network; nullptr without one
    float* dout = nullptr;          // [F, K]
    float* priority = nullptr;      // [B]
  };
  // env: observation as the network's input. columns: K. `trained` refers to `network`.
  UnrollAlgorithm(const TrainingConfig& config, const EnvSpec& env, std::int64_t columns,
                  std::unique_ptr<Module> network, std::unique_ptr<TrainState> trained);
  // Columns of the recurrent state, with which the state of an item begins; 0: none.
  std::int64_t state_columns() const { return state_columns_; }
  // Numbers per step that follow the recurrent state in the state of an item.
  virtual std::int64_t NumbersPerStep() const { return 0; }
  // Computes loss, gradient and priorities. The norm and the rows of the report are set later.
  virtual LossReport ComputeLoss(const SampleBatch& batch, const Outputs& outputs) = 0;
  const TrainingConfig& config() const { return config_; }
  const EnvSpec& env() const { return env_; }

 private:
  // Weights that a pass uses.
  struct Weights {
    std::span<const float> value;
    const Packed* packed = nullptr;
  };
  Status CheckState(const SampleBatch& batch) const;
  Status PrepareBuffers(const SampleBatch& batch);
  // Advances the states by the steps before the unrolls.
  void BurnIn(const Weights& weights, const SampleBatch& batch);
  // Computes `out` of all frames; `cache`: for Backward, or empty.
  void Forward(const Weights& weights, const SampleBatch& batch, const Tensor& out, Cache cache);
  void Backward(GradientWatch* watch);

  const TrainingConfig config_;
  const EnvSpec env_;
  const std::int64_t columns_;
  const UnrollWindow window_;
  UnrollFrames frames_, burn_in_frames_;  // of the last batch
  Tensor out_, target_out_, dout_;        // [F_max, K]
  MutableBuffer cache_, workspace_;
  std::vector<float> priority_;  // [B]
  const std::int64_t state_columns_;
  // Sequences of a batch, for recurrent layers.
  std::vector<std::int32_t> lengths_;  // [B]: frames of each unroll
  std::vector<float> state_;           // [B, state_columns]: before the first step
  Sequences sequences_;
  // The burn-ins of the b unrolls that have one.
  std::vector<std::int32_t> burn_in_lengths_;     // [b]
  std::vector<float> burn_in_state_, burned_in_;  // [b, state_columns]: before and after it
  Tensor burn_in_out_;                            // not used
};

}  // namespace troop
