#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/status.h"

namespace troop {

// How often a learner talks to its parameter shards: Downpour's n_fetch and n_push (Dean et al.
// 2012, algorithm 7.1), or local SGD's H.
struct ReplicaOptions {
  std::int64_t fetch_every = 1;  // steps between pulls
  std::int64_t push_every = 1;   // steps whose gradients are added up before they are pushed
  // The shards average values (SyncMode::kLocalSgd): what is pushed is the value, not the gradient,
  // and each push is followed by a pull. fetch_every must be push_every.
  bool push_value = false;
};
// Errors: kInvalidArgument: which option, which limit.
Status CheckReplicaOptions(const ReplicaOptions& options);

// A learner's own copy of the parameters, which goes on by itself between pulls: decides when to
// pull and push, and what. T steps make ceil(T / push_every) pushes, the last by Flush. What was
// not pushed yet is in the value also after a pull (read-my-writes), as a plain SGD step.
// With 1 / 1 the value that counts is the shards' alone. No sockets; owner: a learner's thread.
//   if (replica.WantsPull()) … replica.Pulled(version, value);
//   compute the gradient at replica.value(); replica.Step(gradient, learning_rate);
//   if (replica.WantsPush()) send replica.Payload() with replica.clock(); replica.Pushed();
class LocalReplica {
 public:
  // REQUIRES: CheckReplicaOptions is ok.
  LocalReplica(const ReplicaOptions& options, std::int64_t parameters);

  // Before each step. True before the first, and behind a value that was pushed: the mean counts.
  bool WantsPull() const {
    const bool averaged = options_.push_value && pushed_at_ > pulled_at_;
    return steps_ - pulled_at_ >= options_.fetch_every || version_ == 0 || averaged;
  }
  // [P], of all shards. A learner that pushes pulls after its pushes were answered or in the order
  // of its channel, so that they are in here.
  void Pulled(std::uint64_t version, std::span<const float> value);
  // value -= learning_rate * gradient, for the time until the next pull. REQUIRES: pulled once, and
  // nothing to push.
  void Step(std::span<const float> gradient, float learning_rate);
  bool WantsPush() const { return steps_ - pushed_at_ >= options_.push_every; }
  // Steps that no push has; at the end of a run they are pushed as well.
  bool WantsFlush() const { return steps_ > pushed_at_; }
  // The sum of the gradients since the last push, or the value. REQUIRES: WantsFlush.
  std::span<const float> Payload() const;
  void Pushed();

  std::span<const float> value() const { return value_; }
  std::uint64_t clock() const { return version_; }  // what its gradients were computed at
  std::int64_t steps() const { return steps_; }

 private:
  ReplicaOptions options_;
  std::vector<float> value_;
  std::vector<float> sum_;    // of gradients since the last push
  std::vector<float> moved_;  // by own steps since the last push
  std::uint64_t version_ = 0;
  std::int64_t steps_ = 0, pulled_at_ = 0, pushed_at_ = 0;
};

}  // namespace troop
