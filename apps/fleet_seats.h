#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "core/config.h"
#include "core/time.h"
#include "net/control.h"

namespace troop {

// "actors", "replay", "learners"; nullopt: another.
std::optional<Role> ScaledRole(std::string_view name);

// Who has a seat in a run by now, of the roles that come and go while it runs (`troop scale`):
// actors of the run's own machine, learners, replay shards. It begins with what the config says.
//
// Actors and learners change at once. Replay shards that come are started, and take new items when
// all of them are bound. Those that leave (the last ones) take nothing new from then on, and are
// drawn from until every actor has moved and the others have taken as many items since as those
// held: what they had would have been replaced by then.
// Owner: the coordinator. O(1) a call but where it says.
class FleetSeats {
 public:
  explicit FleetSeats(const Config& config);

  const FleetCounts& counts() const { return counts_; }
  // Indices of the run's own actors, sorted. Others may have been given some between them.
  const std::vector<std::int32_t>& actors() const { return actors_; }
  std::int32_t learners() const { return counts_.learners; }
  std::int32_t replay_taking() const { return counts_.replay; }
  // With those that come, and those that leave.
  std::int32_t replay() const { return replay_; }
  bool replay_leaves() const { return counts_.replay_leaving > 0; }
  // The epoch since when they do.
  std::uint64_t leaving_since() const { return leaving_since_; }
  // Another number: somebody else has a seat, or one less.
  std::uint64_t revision() const { return revision_; }
  // Whether somebody shall play it. Other roles: yes.
  bool Has(Role role, std::int32_t index) const;  // O(log actors)
  // All of the three roles' seats.
  std::vector<std::pair<Role, std::int32_t>> All() const;

  // REQUIRES: count >= 1. `taken`: indices of actors from elsewhere, sorted. O(actors).
  void SetActors(std::int32_t count, std::span<const std::int32_t> taken);
  void SetLearners(std::int32_t count);
  // Shards that come are wanted from now on; those there are take new items as before. REQUIRES: no
  // fewer than replay(): who leaves comes back with them.
  void BeginReplay(std::int32_t count);
  // They are bound: all take new items.
  void ReplayCame();
  // They did not come.
  void GiveUpReplay();
  // All but the first `count` leave, which hold so many items. REQUIRES: fewer than replay().
  void ReplayLeaves(std::int32_t count, double items_held);

  // A look at a shard's counter of inserts, which begins anew with each of its lives.
  void SeeInserts(std::int32_t shard, double inserts);
  // The others have taken as many items as those that leave held.
  bool replay_replaced() const { return inserted_ >= held_; }
  // Nobody needs those that leave any more.
  void ReplayLeft();

 private:
  FleetCounts counts_;
  std::int32_t replay_ = 0;
  std::uint64_t leaving_since_ = 0, revision_ = 1;
  std::vector<std::int32_t> actors_;
  std::map<std::int32_t, double> inserts_;  // by shard, as last seen
  double inserted_ = 0, held_ = 0;          // since shards leave
};

}  // namespace troop
