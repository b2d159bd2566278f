#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "actors/acting_config.h"
#include "core/base/time.h"

namespace troop {

// Rollouts of synchronous learning (learner.synchronous): an actor makes `steps` vector steps with
// the same weights, ends its unrolls, and waits for newer weights. The learner publishes them
// after it has learned from the rollouts of all actors. If no weights arrive for `refill_after`,
// the share of another actor is missing, and the actor makes another rollout with its weights; the
// learner drops what it does not need. Owner: the actor's thread.
class RolloutGate {
 public:
  struct Options {
    std::int64_t steps = 0;                // vector steps per rollout; 0: the actor never waits
    std::int64_t leased_ahead = 0;         // vector steps of the next rollout to request early
    std::optional<Duration> refill_after;  // nullopt: no actor can be missing
  };
  // Minimum time between two pulls of a waiting actor.
  static constexpr Duration kPullEvery = Milliseconds(1);
  // Longest wait after the run's last steps were granted.
  static constexpr Duration kLastWait = Seconds(5);
  // In serial mode no actor can be missing, and leases are granted at once.
  static Options OptionsOf(const ActingConfig& config) {
    if (!config.synchronous) return {};
    const std::int64_t steps = config.actor.unroll_length;
    if (config.serial) return {.steps = steps};
    return {.steps = steps,
            .leased_ahead = steps,
            .refill_after = Seconds(config.actor.refill_after_s)};
  }
  explicit RolloutGate(const Options& options) : options_(options), left_(options.steps) {}

  bool enabled() const { return options_.steps > 0; }
  bool waiting() const { return enabled() && left_ == 0; }
  // Vector steps until the end of this rollout, or of the next one: requested in advance, a lease
  // does not delay it.
  std::int64_t StepsToLease() const { return left_ + options_.leased_ahead; }
  // Counts a vector step; invalid ones count, too. True if it was the last one of the rollout.
  bool CountStep() { return enabled() && --left_ == 0; }
  // Begins the next rollout: newer weights are in use.
  void Begin() {
    left_ = options_.steps;
    since_.reset();
  }
  // Begins a refill if the wait for weights, which starts with the first call, is long enough.
  // last: no more steps are granted, so that an actor may have none left for its share.
  // REQUIRES: waiting(). Returns true if it began.
  bool TryRefill(Time now, bool last) {
    if (!since_) since_ = now;
    if (!options_.refill_after) return false;
    const Duration wait =
        last ? std::min(*options_.refill_after, kLastWait) : *options_.refill_after;
    if (now - *since_ < wait) return false;
    Begin();
    ++refills_;
    return true;
  }
  std::int64_t refills() const { return refills_; }

 private:
  const Options options_;
  std::int64_t left_ = 0;      // vector steps of this rollout
  std::optional<Time> since_;  // start of the wait
  std::int64_t refills_ = 0;
};

}  // namespace troop
