#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "collective/collective.h"

namespace troop {

// Options of a simulated group.
struct SimGroupOptions {
  int size = 1;
  std::uint64_t seed = 0;
  // Latency of each piece, uniformly random between the two.
  Duration delay_min{}, delay_max{};
  std::size_t piece_bytes_max = 1 << 20;  // more is sent in several pieces, or later
  Duration timeout = Seconds(60);
};

// N ranks in one process, connected by simulated pipes with virtual time, so that delays cost
// nothing: when a rank that polls or waits has nothing to do, time jumps to the next arrival.
// Either one thread polls all ranks in turn (same seed, same schedule, same virtual time), or each
// rank Waits on its own thread: with nothing in flight, time then advances in real time. Results
// are bit-identical in both modes. Thread safe; each rank has one owner thread and may outlive this
// object.
class SimGroup {
 public:
  explicit SimGroup(const SimGroupOptions& options);
  // Creates the endpoint of a rank. Call once per rank.
  std::unique_ptr<Collective> Rank(int rank);
  // Kills the rank between two calls: what it has sent arrives, then the others see the failure.
  void Kill(int rank);
  // Drops everything from `from` to `to` from now on, without an error.
  void Cut(int from, int to);
  // Advances time without other events, for example up to a deadline.
  void Advance(Duration duration);
  Time Now() const;

  class World;

 private:
  std::shared_ptr<World> world_;
};

}  // namespace troop
