#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "collective/collective.h"

namespace troop {

struct SimGroupOptions {
  int size = 1;
  std::uint64_t seed = 0;
  // Of each piece of bytes on its way, drawn between the two.
  Duration delay_min{}, delay_max{};
  std::size_t piece_bytes_max = 1 << 20;  // more is sent in several pieces, or not at once
  Duration timeout = Seconds(60);
};

// N ranks in one process, over pipes with virtual time, so that delays cost nothing: time goes to
// the next arrival when a rank that polls or waits has nothing to do. Ranks are objects that one
// thread polls in turn (same seed, same schedule, same virtual time), or threads that Wait: where
// nothing is under way, time then goes on as real time does. Results are the same bits either way.
// Thread safe; each rank has one owner thread, and may outlive this object.
class SimGroup {
 public:
  explicit SimGroup(const SimGroupOptions& options);
  // The rank's end. Once for each.
  std::unique_ptr<Collective> Rank(int rank);
  // It dies between two calls: what it has sent arrives, then the others learn.
  void Kill(int rank);
  // From now on nothing of `from` reaches `to`, and nobody is told.
  void Cut(int from, int to);
  // Time goes on without anything happening: for those who poll, towards a deadline.
  void Advance(Duration duration);
  Time Now() const;

  class World;

 private:
  std::shared_ptr<World> world_;
};

}  // namespace troop
