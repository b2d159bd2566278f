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

// Names of the transports that can be checked: "sim" (simulated), "shm" (shared memory), "tcp", and
// "hosts" (two host names: shared memory within each, a socket between them).
std::vector<std::string> SyncWires();
// Makes a process group of `size` ranks, all in this process; use each rank on a separate thread.
Result<std::vector<std::unique_ptr<Collective>>> MakeSyncRanks(std::string_view wire, int size);

// Data-parallel learners. They average their gradients by all-reduce, in several buckets, and each
// applies the average to its own copy of the parameters.
struct RanksCase {
  std::string wire;
  int ranks = 1;
  Config config;  // only its optimizer keys are used
  float learning_rate = 0.05f;
  int steps = 12;
  std::uint64_t seed = 1;
};
// Runs a case; returns the parameters of all ranks, [ranks][P]. Errors: those of the group.
Result<std::vector<std::vector<float>>> RunRanksCase(const RanksCase& ranks_case);
// Computes the case in fp64: the parameters [P] that every rank must have, up to rounding.
Doubles ReplayRanks(const RanksCase& ranks_case, const ToyModel& problem);

// Relative error |<F x, y> - <x, F* y>| / (|F x| |y|) of an operation F and its adjoint F*, over
// all ranks, in f64. It must be 0 up to rounding.
struct AdjointResult {
  std::string operation;  // "reduce-scatter / all-gather"
  int ranks = 0;
  double error = 0;
};
// Checks all operations with 1 to 4 ranks.
Result<std::vector<AdjointResult>> CheckAdjoints(std::string_view wire, std::uint64_t seed);

}  // namespace troop
