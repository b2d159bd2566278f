#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/selfcheck/sync_case.h"
#include "apps/selfcheck/toy_model.h"

namespace troop {

// The result of one case of a mode.
struct SyncVerdict {
  std::string mode, what;  // "ssp"; "3 learners, 2 shards by layer, top_k, adam"
  std::vector<std::pair<std::string, double>> errors;  // |x - ref| / |ref| of each tensor
  double limit = 1e-5;                                 // on each error
  std::optional<bool> same_bits;                       // bit-equal to one device; nullopt: n/a
  std::string why;                                     // another failure; empty: none
  double worst() const;
  bool ok() const;
};

// All gradient synchronization modes that are checked: "bsp", "ssp", "allreduce+tcp",
// "adjoint+shm", …
std::vector<std::string> SyncCheckModes();
// Runs a mode in all its settings, including degenerate ones, and compares each case with plain
// fp64 loops, and with a single device bit for bit where the mode must equal one. Deterministic for
// a seed, except for the arrival order over sockets. `stride`: runs only every stride-th of the
// many parameter-shard cases. Errors: kNotFound: no such mode.
Result<std::vector<SyncVerdict>> CheckSyncMode(std::string_view mode, std::uint64_t seed,
                                               std::size_t stride = 1);
// Compares the trace of a parameter-shard case with the reference.
SyncVerdict JudgeSync(std::string_view mode, const SyncCase& sync_case, const ToyModel& problem,
                      const SyncTrace& trace);

// `troop selftest sync`; returns the exit code.
struct CheckSyncCommand {
  std::string mode;  // empty: all
  bool list = false, json = false;
  std::uint64_t seed = 1;
};
int RunCheckSync(const CheckSyncCommand& command);

}  // namespace troop
