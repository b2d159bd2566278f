#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/time.h"

namespace troop::simulation {

// What goes wrong, and when. Roles are named as PeerName names them ("replay-0").
struct Fault {
  enum Kind {
    kKill,     // kill -9; the supervisor starts the role again
    kTear,     // the same in the midst of a job that writes
    kFreeze,   // SIGSTOP, and back
    kReplace,  // the same, while another process takes the role; the first comes back
    kBlock,    // nothing gets from `role` to `other`
    kIsolate,  // nor back
    kBreak,    // their connections end
    kSlow,     // every message of the role takes long
    kDisk,     // the disk refuses to write
    kPower,    // all processes and the machine's memory are gone; the run is resumed
    kScale,    // no fault: somebody wants `count` of a role
  } kind = kKill;
  Time at{};
  Duration lasts{};
  std::string role, other;
  std::int32_t count = 0;
};
std::string ToString(const Fault& fault);

// About `count` of them, spread over [0, length), in the order of time. The same for the same seed.
std::vector<Fault> MakeFaults(std::uint64_t seed, Duration length, int count,
                              const std::vector<std::string>& roles);
// So many wishes for 1 to 4 parameter shards, some right behind one another.
std::vector<Fault> MakeScales(std::uint64_t seed, Duration length, int count);
// The same of 1 to 6 actors, 1 to 4 replay shards, 1 to 3 learners.
std::vector<Fault> MakeFleetScales(std::uint64_t seed, Duration length, int count);

}  // namespace troop::simulation
