// Implements a learner's local copy of the parameters between pulls and pushes.
#include "paramserver/service/local_replica.h"

#include <algorithm>

#include "core/base/check.h"
#include "kernels/optim/optimizer_step.h"

namespace troop {

// Local SGD averages at every push, so both intervals must be equal.
Status CheckReplicaOptions(const ReplicaOptions& options) {
  if (options.pull_every < 1 || options.push_every < 1) {
    return InvalidArgument("a learner pulls every {} steps and pushes every {}, must be at least 1",
                           options.pull_every, options.push_every);
  }
  if (options.push_value && options.pull_every != options.push_every) {
    return InvalidArgument(
        "values are averaged every {} steps and pulled every {}; set both to the same",
        options.push_every, options.pull_every);
  }
  return Status::Ok();
}

LocalReplica::LocalReplica(const ReplicaOptions& options, std::int64_t parameters)
    : options_(options), value_(std::size_t(parameters)) {
  const Status status = CheckReplicaOptions(options);
  TROOP_CHECK(status.ok(), "{}", status.ToString());
  if (options_.push_value) return;
  sum_.resize(value_.size());
  if (options_.push_every > 1) moved_.resize(value_.size());
}

// Unpushed local steps are applied on top of the pulled value.
void LocalReplica::Pulled(std::uint64_t version, std::span<const float> value) {
  TROOP_CHECK(value.size() == value_.size() && version > 0, "{}, not {}", value.size(),
              value_.size());
  TROOP_CHECK(!options_.push_value || !WantsFlush(), "local steps would be lost: push them first");
  std::ranges::copy(value, value_.begin());
  if (WantsFlush() && !moved_.empty()) {
    for (std::size_t i = 0; i < value_.size(); ++i) value_[i] += moved_[i];
  }
  version_ = version;
  pulled_at_ = steps_;
}

// `sum_` collects the gradients to push, `moved_` the change of the value that a pull must keep.
void LocalReplica::Step(std::span<const float> gradient, float learning_rate) {
  TROOP_CHECK(version_ > 0 && !WantsPush(), "at version {}, {} steps after a push", version_,
              steps_ - pushed_at_);
  TROOP_CHECK(gradient.size() == value_.size(), "{}, not {}", gradient.size(), value_.size());
  const OptimizerKernels& kernels = OptimizerKernelsFor(BestCpuLevel());
  const auto n = std::int64_t(value_.size());
  ++steps_;
  kernels.sgd({.learning_rate = learning_rate}, n, gradient.data(), nullptr, value_.data());
  if (options_.push_value) return;
  // The first step after a push starts new sums.
  if (steps_ - pushed_at_ == 1) {
    std::ranges::copy(gradient, sum_.begin());
    std::ranges::fill(moved_, 0.0f);
  } else {
    kernels.add_scaled(n, 1, gradient.data(), sum_.data());
  }
  if (!moved_.empty()) kernels.add_scaled(n, -learning_rate, gradient.data(), moved_.data());
}

std::span<const float> LocalReplica::Payload() const {
  TROOP_CHECK(WantsFlush(), "nothing to push");
  return options_.push_value ? std::span<const float>(value_) : std::span<const float>(sum_);
}

// The sums restart with the next step.
void LocalReplica::Pushed() { pushed_at_ = steps_; }

}  // namespace troop
