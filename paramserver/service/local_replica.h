#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/status.h"

namespace troop {

// Intervals at which a learner pulls and pushes: n_fetch and n_push of Downpour (Dean et al. 2012,
// algorithm 7.1), or H of local SGD.
struct ReplicaOptions {
  std::int64_t pull_every = 1;  // steps between pulls
  std::int64_t push_every = 1;  // steps whose gradients are summed before a push
  // True if the shards average values (SyncMode::kLocalSgd): then the value is pushed instead of
  // the gradient, and each push is followed by a pull. REQUIRES: pull_every equals push_every.
  bool push_value = false;
};
// Errors: kInvalidArgument, naming the option and its limit.
Status CheckReplicaOptions(const ReplicaOptions& options);

// A learner's local copy of the parameters, which is updated locally between pulls. Decides when to
// pull, when to push, and what to push. T steps lead to ceil(T / push_every) pushes, of which the
// last may be a flush (WantsFlush). A pull does not undo steps that are not pushed yet
// (read-my-writes): they are applied to the pulled value as plain SGD steps. If both intervals are
// 1, every step begins with the shards' value, so local steps have no effect on later ones. Uses no
// sockets. Owner: a learner's thread.
//   if (replica.WantsPull()) … replica.Pulled(version, value);
//   compute the gradient at replica.value(); replica.Step(gradient, learning_rate);
//   if (replica.WantsPush()) send replica.Payload() with replica.clock(); replica.Pushed();
class LocalReplica {
 public:
  // REQUIRES: CheckReplicaOptions is ok.
  LocalReplica(const ReplicaOptions& options, std::int64_t parameters);

  // Check it before each step. True pull_every steps after the last pull, before the first pull,
  // and after a push of the value, because the shards' average must be pulled.
  bool WantsPull() const {
    const bool averaged = options_.push_value && pushed_at_ > pulled_at_;
    return steps_ - pulled_at_ >= options_.pull_every || version_ == 0 || averaged;
  }
  // Adopts the value [P] that was pulled from all shards. The shards must receive the pull after
  // the replica's pushes, so that the value includes these.
  void Pulled(std::uint64_t version, std::span<const float> value);
  // Makes a local step, value -= learning_rate * gradient, which lasts until the next pull.
  // REQUIRES: Pulled was called at least once; WantsPush() is false.
  void Step(std::span<const float> gradient, float learning_rate);
  bool WantsPush() const { return steps_ - pushed_at_ >= options_.push_every; }
  // True if some steps have not been pushed yet; at the end of a run the caller pushes these, too.
  bool WantsFlush() const { return steps_ > pushed_at_; }
  // Sum of the gradients since the last push, or the value. REQUIRES: WantsFlush.
  std::span<const float> Payload() const;
  void Pushed();

  std::span<const float> value() const { return value_; }
  std::uint64_t clock() const { return version_; }  // version that the gradients are computed at
  std::int64_t steps() const { return steps_; }

 private:
  ReplicaOptions options_;
  std::vector<float> value_;
  std::vector<float> sum_;    // of gradients since the last push
  std::vector<float> moved_;  // change of the value by local steps since the last push
  std::uint64_t version_ = 0;
  std::int64_t steps_ = 0, pulled_at_ = 0, pushed_at_ = 0;
};

}  // namespace troop
