#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "apps/selfcheck/reference_fp64.h"
#include "apps/selfcheck/toy_model.h"
#include "collective/collective.h"

namespace troop {

// The transports of all-reduce: "sim", "shm", "tcp", "hosts" (shared memory inside two hosts, a
// socket between them).
std::vector<std::string> SyncWires();
// Makes a process group whose ranks are in this process; each must be used by its own thread.
Result<std::vector<std::unique_ptr<Collective>>> MakeSyncRanks(std::string_view wire, int size);

// Data-parallel learners that average gradients by all-reduce in several buckets, and apply them
// independently.
struct RanksCase {
  std::string wire;
  int ranks = 1;
  Config config;  // the optimizer
  float learning_rate = 0.05f;
  int steps = 12;
  std::uint64_t seed = 1;
};
// Runs a case; returns the parameters of all ranks, [ranks][P]. Errors: those of the group.
Result<std::vector<std::vector<float>>> RunRanksCase(const RanksCase& ranks_case);
// The fp64 reference, which every rank must equal, [P].
Doubles ReplayRanks(const RanksCase& ranks_case, const ToyModel& problem);

// (<F x, y> - <x, F* y>) / (|F x| |y|) over all ranks, in f64, for an operation F and its adjoint
// F*. Must be 0 up to rounding.
struct AdjointResult {
  std::string operation;  // "reduce-scatter / all-gather"
  int ranks = 0;
  double error = 0;
};
// Checks all operations with 1 to 4 ranks.
Result<std::vector<AdjointResult>> CheckAdjoints(std::string_view wire, std::uint64_t seed);

}  // namespace troop
