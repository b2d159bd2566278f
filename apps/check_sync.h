#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/sync_case.h"
#include "apps/sync_problem.h"

namespace troop {

// How one case of a mode came out.
struct SyncVerdict {
  std::string mode, what;  // "ssp"; "3 learners, 2 shards by layer, top_k, adam"
  std::vector<std::pair<std::string, double>> errors;  // |x - ref| / |ref| of each tensor
  double limit = 1e-5;                                 // for each of them
  std::optional<bool> same_bits;                       // as one device; nullopt: not asked
  std::string why;                                     // what else is wrong; empty: nothing
  double worst() const;
  bool ok() const;
};

// All ways to agree that are checked: "bsp", "ssp", "allreduce+tcp", "adjoint+shm", …
std::vector<std::string> SyncCheckModes();
// Runs a mode in all its settings, the degenerate ones among them, and compares each with plain
// loops in f64, and where it must be one device's with that, bit for bit. Same seed, same verdicts,
// but for who came first over sockets. `stride`: of parameter shards' many cases every so many-th
// alone. Errors: kNotFound: no such mode.
Result<std::vector<SyncVerdict>> CheckSyncMode(std::string_view mode, std::uint64_t seed,
                                               std::size_t stride = 1);
SyncVerdict JudgeSync(std::string_view mode, const SyncCase& sync_case, const SyncProblem& problem,
                      const SyncTrace& trace);

// `troop check sync`; the exit code.
struct CheckSyncCommand {
  std::string mode;  // empty: all
  bool list = false, json = false;
  std::uint64_t seed = 1;
};
int RunCheckSync(const CheckSyncCommand& command);

}  // namespace troop
