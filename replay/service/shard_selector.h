#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "core/base/philox.h"
#include "replay/service/group_request.h"
#include "replay/service/shard_connection.h"

namespace troop {

// Decides which shards give the rows of a sampler's groups, and which limiters are charged for
// them. Owner: the sampler, on one thread. O(shards) per call.
//
// Rows follow the shards' last reported totals, rounded at random with an exact mean (Apportion).
// The charge follows the limiters' remaining credit, so that unequal priorities never make one
// side wait for the other. Equal seeds and reports give equal decisions.
class ShardSelector {
 public:
  // `shards` outlives the selector.
  ShardSelector(const std::deque<ShardConnection>* shards, std::uint64_t seed);

  // True if shares depend on totals. With one shard none are needed, and the shard is waited for
  // in any state.
  bool many() const { return shards_->size() > 1; }
  // True if shard k may get requests now.
  bool usable(std::size_t k) const {
    return !many() || ((*shards_)[k].known() && !(*shards_)[k].dead());
  }
  int alive() const;        // shards that are not dead
  bool all_closed() const;  // true if no shard accepts a charge any more
  bool all_known() const;   // true if each live shard has reported its total, or none is needed

  // Assigns the missing rows and charge of a group to shards. False: no shard can take a request
  // now, and the group is as before except for its totals.
  bool Plan(GroupRequest* group);
  // Credit of all shards but k, after payment of the debt.
  double CreditWithout(std::size_t k) const;

  // Items sampled and not yet charged to any shard. Waived charges become debt, which later groups
  // charge.
  std::int64_t debt() const { return debt_; }
  void AddDebt(std::int64_t items) { debt_ += items; }  // negative: charged by a group

 private:
  double OpenShares(GroupRequest* group);
  double FreshShares(GroupRequest* group);
  bool Chargeable(std::size_t k) const;
  void PlanCharges(GroupRequest* group);

  const std::deque<ShardConnection>* shards_;
  Rng rng_;
  std::int64_t debt_ = 0;
  // Scratch, [shards].
  std::vector<double> share_;
  std::vector<std::int64_t> given_;
};

}  // namespace troop
