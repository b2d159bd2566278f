// ShardSelector: shares of rows by total, and of charge by credit.
#include "replay/service/shard_selector.h"

#include <algorithm>

#include "replay/service/apportion.h"

namespace troop {
namespace {

// Disjoint from the tables' incarnations, which index the same purpose.
constexpr std::uint64_t kRngIndex = std::uint64_t{1} << 32;
constexpr double kCreditMax = 1e12;  // keeps the sum over thousands of shards finite

}  // namespace

ShardSelector::ShardSelector(const std::deque<ShardConnection>* shards, std::uint64_t seed)
    : shards_(shards),
      rng_({.run_seed = seed, .purpose = Purpose::kReplaySampling, .index = kRngIndex}) {}

int ShardSelector::alive() const {
  return int(std::ranges::count_if(*shards_, [](const ShardConnection& s) { return !s.dead(); }));
}

bool ShardSelector::all_closed() const {
  return alive() > 0 && std::ranges::all_of(*shards_, [](const ShardConnection& shard) {
           return shard.closed() || shard.dead();
         });
}

bool ShardSelector::all_known() const {
  return !many() || std::ranges::all_of(*shards_, [](const ShardConnection& shard) {
    return shard.known() || shard.dead();
  });
}

double ShardSelector::CreditWithout(std::size_t k) const {
  double credit = -double(debt_);
  for (std::size_t j = 0; j < shards_->size(); ++j) {
    if (j != k && usable(j)) credit += std::max((*shards_)[j].credit(), 0.0);
  }
  return credit;
}

bool ShardSelector::Plan(GroupRequest* group) {
  double sum = OpenShares(group);
  if (sum == 0) sum = FreshShares(group);
  if (sum == 0) return false;
  given_.resize(shards_->size());
  Apportion(share_, group->missing(), rng_.Uniform(), given_);
  for (std::size_t k = 0; k < shards_->size(); ++k) {
    if (given_[k] > 0) group->AddRows(k, given_[k]);
  }
  PlanCharges(group);
  return true;
}

// Sets share_ to the totals of the shards that may still give rows; returns their sum. A shard
// with received rows keeps the total that determined its share, even if it died since: each row's
// probability contains it.
double ShardSelector::OpenShares(GroupRequest* group) {
  double sum = 0;
  share_.assign(shards_->size(), 0);
  for (std::size_t k = 0; k < shards_->size(); ++k) {
    if (usable(k) && !group->shut(k)) share_[k] = group->used(k);
    if (share_[k] == 0 && !group->HasRows(k)) group->set_used(k, 0);
    sum += share_[k];
  }
  return sum;
}

// For a new group, or one whose shards have all failed: sets share_ to the current totals of all
// shards; returns their sum.
double ShardSelector::FreshShares(GroupRequest* group) {
  double sum = 0;
  for (std::size_t k = 0; k < shards_->size(); ++k) {
    share_[k] = !many() ? 1 : usable(k) ? (*shards_)[k].total() : 0;
    if (share_[k] == 0) continue;
    group->Reopen(k);
    if (!group->HasRows(k)) group->set_used(k, share_[k]);
    sum += share_[k];
  }
  return sum;
}

// A shard without items is not charged: its limiter would block.
bool ShardSelector::Chargeable(std::size_t k) const {
  const ShardConnection& shard = (*shards_)[k];
  return !shard.closed() && usable(k) && (!many() || shard.total() > 0);
}

// Assigns the missing charge to shards in proportion to their credit, or equally if none has any.
void ShardSelector::PlanCharges(GroupRequest* group) {
  share_.assign(shards_->size(), 0);
  double sum = 0, open = 0;
  for (std::size_t k = 0; k < shards_->size(); ++k) {
    if (!Chargeable(k)) continue;
    share_[k] = many() ? std::clamp((*shards_)[k].credit(), 0.0, kCreditMax) : 1;
    sum += share_[k];
    ++open;
  }
  if (open == 0) {  // all shards are closed: no charge is possible
    debt_ += group->WaiveCharge();
    return;
  }
  for (std::size_t k = 0; sum == 0 && k < shards_->size(); ++k) share_[k] = Chargeable(k) ? 1 : 0;
  Apportion(share_, group->charge_missing(), rng_.Uniform(), given_);
  for (std::size_t k = 0; k < shards_->size(); ++k) {
    if (given_[k] != 0) group->AddCharge(k, given_[k]);
  }
}

}  // namespace troop
