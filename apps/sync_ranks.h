#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "apps/sync_problem.h"
#include "apps/sync_reference.h"
#include "collective/collective.h"

namespace troop {

// The ways over which ranks agree: "sim", "shm", "tcp", "hosts" (memory inside two hosts, a socket
// between them).
std::vector<std::string> SyncWires();
// Ranks in this process, each for a thread of its own.
Result<std::vector<std::unique_ptr<Collective>>> MakeSyncRanks(std::string_view wire, int size);

// Learners that average gradients by all-reduce, in several buckets, and step each by themselves.
struct RanksCase {
  std::string wire;
  int ranks = 1;
  Config config;  // the optimizer
  float learning_rate = 0.05f;
  int steps = 12;
  std::uint64_t seed = 1;
};
// All ranks' parameters, [ranks][P]. Errors: what a group says.
Result<std::vector<std::vector<float>>> RunRanksCase(const RanksCase& ranks_case);
// What each must have. [P]
Doubles ReplayRanks(const RanksCase& ranks_case, const SyncProblem& problem);

// <F x, y> - <x, F* y> over all ranks, relative to |F x| |y|, in f64: 0 but for rounding, for each
// operation F and its adjoint F*.
struct AdjointResult {
  std::string operation;  // "reduce-scatter / all-gather"
  int ranks = 0;
  double error = 0;
};
Result<std::vector<AdjointResult>> CheckAdjoints(std::string_view wire, std::uint64_t seed);

}  // namespace troop
