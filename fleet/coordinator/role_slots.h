#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/time.h"
#include "fleet/config/config.h"
#include "net/control/fleet_counts.h"
#include "net/message.h"

namespace troop {

// Parses a role name of `troop scale`: "actors", "replay" or "learners"; nullopt otherwise.
std::optional<Role> ScaledRole(std::string_view name);

// The current slots of the roles that `troop scale` changes: local actors, learners and replay
// shards. Initialized from the config.
//
// Actors and learners change at once. New replay shards take inserts once all of them are bound.
// Leaving shards (those with the highest indices) are drained: they take no inserts, and are
// sampled until every actor inserts elsewhere and the other shards have received as many items as
// the leaving ones held, i.e. until eviction would have replaced those anyway.
// Owner: the coordinator. O(1) per call unless stated otherwise.
class RoleSlots {
 public:
  explicit RoleSlots(const Config& config);

  const FleetCounts& counts() const { return counts_; }
  // Indices of the local actors, sorted; gaps may belong to external actors.
  const std::vector<std::int32_t>& actors() const { return actors_; }
  std::int32_t learners() const { return counts_.learners; }
  // Number of shards that take inserts.
  std::int32_t replay_taking() const { return counts_.replay; }
  // Number of shards, including joining and leaving ones.
  std::int32_t replay() const { return replay_; }
  bool replay_draining() const { return counts_.replay_leaving > 0; }
  // Epoch at which the shards began to leave.
  std::uint64_t draining_since() const { return leaving_since_; }
  // Changes whenever the set of slots changes.
  std::uint64_t revision() const { return revision_; }
  // True if the slot exists; always true for roles that are not scaled. O(log actors).
  bool Has(Role role, std::int32_t index) const;
  // All slots of the three roles.
  std::vector<std::pair<Role, std::int32_t>> All() const;

  // Sets the number of local actors. `taken`: indices of external actors, sorted. O(actors).
  // REQUIRES: count >= 1.
  void SetActors(std::int32_t count, std::span<const std::int32_t> taken);
  void SetLearners(std::int32_t count);
  // Adds slots for joining shards; the present ones keep taking inserts.
  // REQUIRES: count >= replay(); shards that are leaving stay.
  void StartReplayScaleUp(std::int32_t count);
  // The joining shards are bound: all shards take inserts.
  void CommitReplayScaleUp();
  // Removes the slots of joining shards that never bound.
  void AbortReplayScaleUp();
  // Drains all shards but the first `count`. `items_held`: number of items in the leaving shards.
  // REQUIRES: count < replay().
  void StartReplayDrain(std::int32_t count, double items_held);

  // Takes a new value of a shard's insert counter, which restarts at 0 with the shard's process.
  void RecordInserts(std::int32_t shard, double inserts);
  // True when the other shards have received as many items as the leaving ones held.
  bool replay_replaced() const { return inserted_ >= held_; }
  // Removes the slots of the leaving shards.
  void FinishReplayDrain();

 private:
  FleetCounts counts_;
  std::int32_t replay_ = 0;
  std::uint64_t leaving_since_ = 0, revision_ = 1;
  std::vector<std::int32_t> actors_;
  std::map<std::int32_t, double> inserts_;  // last counter value, by shard
  double inserted_ = 0, held_ = 0;          // since StartReplayDrain
};

}  // namespace troop
