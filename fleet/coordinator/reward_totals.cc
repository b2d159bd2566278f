// Implements the merge of the actors' reward statistics.
#include "fleet/coordinator/reward_totals.h"

#include "core/base/log.h"

namespace troop {

// Statistics that overflow with the total are dropped: in retired_ they would stay for the run, and
// keep those of later actors out.
void RewardTotals::Retire(const RewardStatistics& actor) {
  constexpr char kSource[] = "an actor that was replaced";
  RewardStatistics all = total_;
  if (Merge(kSource, actor, &all)) Merge(kSource, actor, &retired_);
}

// An overflow repeats with every heartbeat, so each source is logged once.
bool RewardTotals::Merge(const std::string& source, const RewardStatistics& from,
                         RewardStatistics* sum) {
  if (sum->Merge(from)) return true;
  if (!overflows_.insert(source).second) return false;
  LogWarning(
      "env.normalize_rewards: the statistics of {} (mean {}, {} returns) exceed the range of f64 "
      "together with the others, and are left out; check the rewards of the environment",
      source, from.mean, from.count);
  return false;
}

// Records stay until their slot is taken again, so an actor that left still counts here.
void RewardTotals::Update(const Membership& members) {
  total_ = base_.value_or(RewardStatistics{});
  Merge("the actors that were replaced", retired_, &total_);
  for (const auto& [name, member] : members.records()) Merge(name, member.rewards, &total_);
}

}  // namespace troop
