#pragma once

#include <optional>

#include "core/base/time.h"

namespace troop {

// State machine of a learner of parameter shards: pull, compute and push for each batch in turn.
// Decides the next action at rest; the owner performs it and reports what happened. A learner
// without batches leaves, so that the shards do not wait for it; the leader pulls once more at the
// end, so that the final checkpoint has what the others pushed. Uses no sockets and no clock.
// Owner: the node's thread. O(1).
class PullPushCycle {
 public:
  // kFlushing: pushes the steps of finished batches before leaving.
  enum class State { kRest, kPulling, kComputing, kPushing, kFlushing, kLeaving };
  // Actions at rest. kConfirmPause: report to the coordinator that the learner has left.
  enum class Action { kWait, kPull, kCompute, kFlush, kLeave, kConfirmPause };
  struct Options {
    bool is_leader = false;
    // The pull after a return overwrites steps that are not pushed yet (SyncMode::kLocalSgd).
    bool pull_overwrites = false;
    // A learner without batches leaves after this time, because other learners may have some.
    Duration patience = Seconds(1);
  };
  // State of the other parts, which the decision depends on, too.
  struct Situation {
    bool has_batch = false, has_jobs = false;          // BatchQueue
    bool wants_pull = false, wants_flush = false;      // LocalReplica
    bool has_open_pushes = false;                      // ShardClient
    bool pause_requested = false, has_paused = false;  // ReshardPause: requested(), left()
    bool complete = false;                             // the shards have made all updates
  };

  explicit PullPushCycle(const Options& options) : options_(options) {}

  // Returns the action to perform. REQUIRES: state() is kRest.
  Action Next(Time now, const Situation& situation);

  // The following events report what the owner has done.
  void PullRequested();
  void PullTaken();
  void ComputeStarted() { state_ = State::kComputing; }
  // `pushes`: the step completes a push.
  void Computed(bool pushes) { state_ = pushes ? State::kPushing : State::kRest; }
  void FlushStarted() { state_ = State::kFlushing; }
  // The payload of kPushing or kFlushing was pushed. Returns true if a batch is done by this.
  bool Pushed();
  void LeaveRequested();
  void Left();
  // Returns to rest without waiting for open requests, except that of leaving. Returns true if a
  // payload is dropped by this. REQUIRES: state() is not kComputing.
  bool Abandon();

  // This learner has no more batches.
  void SetExhausted(bool exhausted) { exhausted_ = exhausted; }
  // The learner ends: no more pulls or pushes.
  void Deregister() { deregistered_ = true; }

  State state() const { return state_; }
  bool deregistered() const { return deregistered_; }
  // True if this leader must pull what the others have made before it ends: it has left, or never
  // joined, before its last pull.
  bool OwesFinalPull() const {
    return exhausted_ && options_.is_leader && !final_pulled_ && !deregistered_;
  }
  // True if an exhausted learner has nothing left to do.
  bool Finished() const { return exhausted_ && !takes_part_ && !OwesFinalPull(); }
  // End of the wait for batches; kForever: it does not wait.
  Time patience_end() const { return rests_since_ ? *rests_since_ + options_.patience : kForever; }

 private:
  Action NextWithoutBatch(Time now, const Situation& situation);
  Action Leave(const Situation& situation) const;

  Options options_;
  State state_ = State::kRest;
  std::optional<Time> rests_since_;  // has been without a batch since then
  bool takes_part_ = false;          // the shards may wait for its pushes
  bool unseen_ = false;              // has pushed since the last pull
  bool final_pulled_ = false;        // has pulled after its last batch
  bool exhausted_ = false, deregistered_ = false;
};

}  // namespace troop
