#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/tensor/tensor.h"
#include "learners/learning_rate_schedule.h"
#include "learners/training_config.h"
#include "nn/io/safetensors.h"
#include "nn/module.h"
#include "nn/optimizer.h"
#include "replay/codec/sample_batch.h"

namespace troop {

// The weights that an algorithm trains, all in the network's layout [P]: the online weights, an
// optional target network that follows them, the gradient and the optimizer's slots; plus the
// packed form that kernels use, and saving and loading. Owner: the algorithm; one thread at a time.
// A step does not allocate.
class TrainState {
 public:
  // Parameters from the previous group's end up to `end`, which train with `learning_rate`.
  struct Group {
    std::int64_t end = 0;
    double learning_rate = 0;
    bool decays = true;      // optimizer.weight_decay applies
    std::int64_t every = 1;  // changes only at each `every`-th step (Optimizer::Group)
    bool clips = true;       // the clip scales its gradient; false: not part of the norm either
  };
  enum class Target : std::uint8_t { kNone, kFollows };
  // `network` must outlive this. algorithm: its name, which saved states must match. Weights and
  // target start at InitParameters(config.seed). Errors: the optimizer cannot be made.
  static Result<std::unique_ptr<TrainState>> Make(const TrainingConfig& config,
                                                  const Module* network, std::string algorithm,
                                                  std::vector<Group> groups,
                                                  Target target = Target::kFollows);

  std::span<const float> value() const { return value_; }
  std::span<const float> target() const { return target_; }  // empty: no target
  std::span<float> gradient() { return gradient_; }          // its padding is 0 and must stay 0
  const Packed* packed_value() const { return packed_value_.get(); }
  const Packed* packed_target() const { return packed_target_.get(); }
  Optimizer& optimizer() { return *optimizer_; }
  std::uint64_t updates() const { return updates_; }

  // Replaces the initial weights. REQUIRES: no update was made.
  void Begin(std::span<const float> value);
  // One step with gradient(), whose norm is `norm`: clipped to learner.max_grad_norm, at the
  // groups' learning rates times the schedule's fraction at `progress` (LearningRateSchedule). Then
  // updates the observation statistics, and every learner.target_update_every_updates the target.
  // gradient() may be clipped afterwards.
  void Step(double progress, double norm, const ConstTensor& observation);
  // Takes weights that other roles have stepped; the target follows as after own steps.
  void Adopt(std::uint64_t updates, std::span<const float> value);
  // Factor that the clip applies to a gradient of that norm.
  double ClipScale(double norm) const;
  // Applies it to the groups of `gradient` [P] that clip.
  void Clip(double norm, std::span<float> gradient) const;
  float LearningRate(double progress) const;  // of the last group

  // Value, target, optimizer slots and counters.
  TensorFile State() const;
  // Errors: kInvalidArgument: a state of another algorithm, optimizer or network; nothing was
  // changed then.
  Status SetState(const TensorFile& state);
  // Restores the values of such a state, but increments the update count.
  Status RollBack(const TensorFile& state);
  // Errors: kDataLoss: names the first value of State() that is NaN or infinite. O(P).
  Status CheckFinite() const;
  // The kDataLoss error of an update that failed because of `what`, with the origin: the batch, the
  // weights, or else the computed gradient() and priority [B].
  Status Refuse(const SampleBatch& batch, std::span<const float> priority,
                const std::string& what) const;

 private:
  TrainState(const TrainingConfig& config, const Module* network, std::string algorithm,
             std::vector<Group> groups, Target target);
  std::vector<std::pair<std::string, std::span<float>>> Saved() const;
  void PackAll();
  void MoveTarget();
  Status CheckTensor(const TensorFile& state, const std::string& name) const;

  const TrainingConfig config_;
  const Module* const network_;
  const std::string algorithm_;
  const std::vector<Group> groups_;
  const LearningRateSchedule schedule_;
  std::unique_ptr<Optimizer> optimizer_;
  MutableBuffer storage_;  // memory of the three spans below
  std::span<float> value_, target_, gradient_;
  std::unique_ptr<Packed> packed_value_, packed_target_;
  std::vector<Optimizer::Group> rates_;  // of the current step
  std::uint64_t updates_ = 0;
};

// The update count in a state. Errors: kInvalidArgument: no such count.
Result<std::uint64_t> UpdatesOfState(const TensorFile& state);

}  // namespace troop
