#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/status.h"

namespace troop {

// Intervals at which a learner pulls and pushes: n_fetch and n_push of Downpour (Dean et al. 2012,
// algorithm 7.1), or H of local SGD.
struct ReplicaOptions {
  std::int64_t fetch_every = 1;  // steps between pulls
  std::int64_t push_every = 1;   // steps whose gradients are summed before a push
  // The shards average values (SyncMode::kLocalSgd): the value is pushed instead of the gradient,
  // and each push is followed by a pull. fetch_every must equal push_every.
  bool push_value = false;
};
// Errors: kInvalidArgument, naming the option and its limit.
Status CheckReplicaOptions(const ReplicaOptions& options);

// A learner's local copy of the parameters, which is updated locally between pulls. Decides when to
// pull and push, and what. T steps make ceil(T / push_every) pushes, the last by a flush. Unpushed
// steps stay in the value after a pull (read-my-writes), as plain SGD steps. With intervals of 1
// and 1 the shards' value alone counts. No sockets; owner: a learner's thread.
//   if (replica.WantsPull()) … replica.Pulled(version, value);
//   compute the gradient at replica.value(); replica.Step(gradient, learning_rate);
//   if (replica.WantsPush()) send replica.Payload() with replica.clock(); replica.Pushed();
class LocalReplica {
 public:
  // REQUIRES: CheckReplicaOptions is ok.
  LocalReplica(const ReplicaOptions& options, std::int64_t parameters);

  // Checked before each step. True before the first step, and after pushing a value, whose mean
  // must be pulled.
  bool WantsPull() const {
    const bool averaged = options_.push_value && pushed_at_ > pulled_at_;
    return steps_ - pulled_at_ >= options_.fetch_every || version_ == 0 || averaged;
  }
  // Adopts a pulled value [P] of all shards. The pull must follow the replica's pushes, so that the
  // value includes them.
  void Pulled(std::uint64_t version, std::span<const float> value);
  // value -= learning_rate * gradient, until the next pull. REQUIRES: pulled once, and nothing to
  // push.
  void Step(std::span<const float> gradient, float learning_rate);
  bool WantsPush() const { return steps_ - pushed_at_ >= options_.push_every; }
  // True if steps have not been pushed; they are pushed at the end of a run as well.
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
  std::vector<float> moved_;  // change by local steps since the last push
  std::uint64_t version_ = 0;
  std::int64_t steps_ = 0, pulled_at_ = 0, pushed_at_ = 0;
};

}  // namespace troop
