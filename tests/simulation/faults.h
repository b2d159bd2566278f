#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/time.h"

namespace troop::simulation {

// A fault and its time. Roles are named as by PeerName ("replay-0").
struct Fault {
  enum Kind {
    kKill,     // kill -9; the supervisor restarts the role
    kTear,     // kill -9 during a job that writes
    kFreeze,   // SIGSTOP, then SIGCONT
    kReplace,  // as kFreeze, but another process takes the role meanwhile
    kBlock,    // nothing arrives from `role` at `other`
    kIsolate,  // nor in the other direction
    kBreak,    // their connections are closed
    kSlow,     // all messages of the role are slow
    kDisk,     // writes fail
    kPower,    // all processes and memory are lost; the run is resumed
    kScale,    // not a fault: scale a role to `count`
  } kind = kKill;
  Time at{};
  Duration lasts{};
  std::string role, other;
  std::int32_t count = 0;
};
std::string ToString(const Fault& fault);

// About `count` faults over [0, length), sorted by time. Deterministic for a seed.
std::vector<Fault> MakeFaults(std::uint64_t seed, Duration length, int count,
                              const std::vector<std::string>& roles);
// `count` requests for 1 to 4 parameter shards, some in quick succession.
std::vector<Fault> MakeScales(std::uint64_t seed, Duration length, int count);
// `count` requests for 1 to 6 actors, 1 to 4 replay shards or 1 to 3 learners.
std::vector<Fault> MakeFleetScales(std::uint64_t seed, Duration length, int count);

}  // namespace troop::simulation
