#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "apps/sync_problem.h"
#include "core/config.h"
#include "core/status.h"
#include "paramserver/gradient_codec.h"
#include "paramserver/push_guards.h"
#include "paramserver/shard_map.h"

// What `troop check sync` compares with: plain loops in f64, written for this alone. Nothing of
// kernels/, nn/ or paramserver/ computes here; of theirs are only types that name a choice.
namespace troop {

using Doubles = std::vector<double>;

// As SyncProblem::Gradient. [P]; loss: may be null.
Doubles ReferenceGradient(const SyncProblem& problem, const Doubles& value, std::uint64_t batch,
                          double* loss = nullptr);

// The optimizers as their papers have them (nn/optimizer.h).
class ReferenceOptimizer {
 public:
  ReferenceOptimizer(const Config& config, const SyncProblem& problem);
  // value[at[i]] for all i, with gradient[i] * scale; `steps`: of these elements, this one
  // included.
  void Step(std::span<const std::size_t> at, const Doubles& gradient, double scale, double rate,
            std::int64_t steps, Doubles* value);

 private:
  decltype(Config::optimizer) keys_;
  Doubles m_, v_, decay_;  // decay_: of each parameter
};

// The guard against outlying losses or norms of one learner: mean and deviation of all that came,
// made anew each time.
class ReferenceGuard {
 public:
  ReferenceGuard(double deviations, const GuardOptions& options)
      : deviations_(deviations), options_(options) {}
  bool Judge(double number);

 private:
  struct Seen {
    double weight, size;
  };
  double deviations_;
  GuardOptions options_;
  std::vector<Seen> seen_;
};

// What a learner's encoder keeps back, and what it may send. Where rounding leaves a choice (an
// element at a threshold, a number between two halves), the payload's own is followed; any other
// one is an error.
// residual += gradient; then what `coded` sends is taken from it and returned, [n].
// Errors: kDataLoss: no encoder of these options would have sent it.
Result<Doubles> ReferenceSent(const CodecOptions& options, const CodedGradient& coded,
                              const Doubles& gradient, Doubles* residual);

}  // namespace troop
