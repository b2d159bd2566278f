#pragma once

#include <optional>
#include <set>
#include <string>

#include "fleet/coordinator/membership.h"
#include "net/control/reward_statistics.h"

namespace troop {

// The statistics of the run's discounted returns (env.normalize_rewards): those of the checkpoint
// that the run resumed from, of actors that were replaced, and of the current actors. Each actor
// reports all values of its incarnation, so that a lost heartbeat loses nothing and none counts
// twice. Owner: the coordinator.
class RewardTotals {
 public:
  // Takes the statistics in the checkpoint of a learner, as its heartbeats report them. Only the
  // first call counts: a learner that restarts later has a checkpoint with values of this session.
  void Resume(const RewardStatistics& checkpoint) {
    if (!base_) base_ = checkpoint;
  }
  // Keeps the values of an actor that is replaced.
  void Retire(const RewardStatistics& actor);
  // Merges the newest reports, without those that would overflow (RewardStatistics::Merge), which
  // are named once in the log. O(members).
  void Update(const Membership& members);
  // The statistics as of the last Update.
  const RewardStatistics& total() const { return total_; }

 private:
  // Adds the statistics of a source to `sum`, or names it in the log and returns false.
  bool Merge(const std::string& source, const RewardStatistics& from, RewardStatistics* sum);

  std::optional<RewardStatistics> base_;  // nullopt: no learner has reported yet
  RewardStatistics retired_, total_;
  std::set<std::string> overflows_;  // sources that were named in the log
};

}  // namespace troop
