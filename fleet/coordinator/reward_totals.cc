// Implements the merge of the actors' reward statistics.
#include "fleet/coordinator/reward_totals.h"

namespace troop {

// Records stay until their slot is taken again, so an actor that left still counts here.
void RewardTotals::Update(const Membership& members) {
  total_ = base_.value_or(RewardStatistics{});
  total_.Merge(retired_);
  for (const auto& [name, member] : members.records()) total_.Merge(member.rewards);
}

}  // namespace troop
