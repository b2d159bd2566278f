#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/config.h"
#include "core/tensor.h"
#include "learners/rate_schedule.h"
#include "nn/module.h"
#include "nn/optimizer.h"
#include "nn/safetensors.h"
#include "replay/sample.h"

namespace troop {

// The weights that an algorithm trains, all in the network's layout [P]: the newest ones, the
// target that follows them where one is wanted, their gradient and the optimizer's slots, with the
// form that kernels like; and how all that is saved. Owner: the algorithm; one thread at a time.
// Nothing is allocated by a step.
class TrainedNetwork {
 public:
  // Parameters up to `end` (and from the group before on) learn at `learning_rate`.
  struct Group {
    std::int64_t end = 0;
    double learning_rate = 0;
    bool decays = true;  // optimizer.weight_decay is theirs, too
  };
  enum class Target : std::uint8_t { kNone, kFollows };
  // `network` outlives it. algorithm: its name, which a saved state must have. The weights begin
  // at InitParameters(config.seed), the target at the same. Errors: the optimizer can't be made.
  static Result<std::unique_ptr<TrainedNetwork>> Make(const Config& config, const Module* network,
                                                      std::string algorithm,
                                                      std::vector<Group> groups,
                                                      Target target = Target::kFollows);

  std::span<const float> value() const { return value_; }
  std::span<const float> target() const { return target_; }  // empty: none
  std::span<float> gradient() { return gradient_; }          // its padding is 0 and must stay so
  const Packed* packed_value() const { return packed_value_.get(); }
  const Packed* packed_target() const { return packed_target_.get(); }
  Optimizer& optimizer() { return *optimizer_; }
  std::uint64_t updates() const { return updates_; }

  // Begins with other weights than fresh ones. REQUIRES: no update was made.
  void Begin(std::span<const float> value);
  // One step with gradient(), whose norm that is: clipped to learner.max_grad_norm, at the groups'
  // learning rates times what the schedule has at `progress` (RateSchedule). Then the statistics of
  // what was observed, and each learner.target_update_steps the target.
  void Step(double progress, double norm, const ConstTensor& observation);
  // Takes weights that others have stepped to; the target follows as it would have.
  void Adopt(std::uint64_t updates, std::span<const float> value);
  double ClipScale(double norm) const;
  float LearningRate(double progress) const;  // of the last group

  TensorFile State() const;
  // Errors: kInvalidArgument: of another algorithm, optimizer or network; nothing was changed then.
  Status SetState(const TensorFile& state);
  // To such a state, but counts on.
  Status RollBack(const TensorFile& state);
  // Errors: kDataLoss that names the first number of State() that is NaN or infinite. O(P).
  Status CheckNumbers() const;
  // kDataLoss of an update that `what` ended, with where that came from: the batch, the weights, or
  // else what was made of them, gradient() and priority [B].
  Status Refuse(const SampleBatch& batch, std::span<const float> priority,
                const std::string& what) const;

 private:
  TrainedNetwork(const Config& config, const Module* network, std::string algorithm,
                 std::vector<Group> groups, Target target);
  std::vector<std::pair<std::string, std::span<float>>> Saved() const;
  void PackAll();
  void MoveTarget();
  Status CheckTensor(const TensorFile& state, const std::string& name) const;

  const Config config_;
  const Module* const network_;
  const std::string algorithm_;
  const std::vector<Group> groups_;
  const RateSchedule schedule_;
  std::unique_ptr<Optimizer> optimizer_;
  MutableBuffer storage_;  // of the three
  std::span<float> value_, target_, gradient_;
  std::unique_ptr<Packed> packed_value_, packed_target_;
  std::vector<Optimizer::Group> rates_;  // of the step under way
  std::uint64_t updates_ = 0;
};

// The updates behind a state. Errors: kInvalidArgument: it has no such count.
Result<std::uint64_t> UpdatesOfState(const TensorFile& state);

}  // namespace troop
