#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "apps/selfcheck/toy_model.h"
#include "core/base/status.h"
#include "fleet/config/config.h"
#include "paramserver/codec/gradient_codec.h"
#include "paramserver/shard/outlier_filter.h"
#include "paramserver/shard/shard_map.h"

// The fp64 reference of `troop selftest sync`: plain loops written for this check. It runs no code
// of kernels/, nn/ or paramserver/ and uses only their option types.
namespace troop {

using Doubles = std::vector<double>;

// The gradient of ToyModel::Gradient in f64, [P]; `loss` may be null.
Doubles ReferenceGradient(const ToyModel& problem, const Doubles& value, std::uint64_t batch,
                          double* loss = nullptr);

// The optimizers, written from their papers (nn/optimizer.h has the references).
class ReferenceOptimizer {
 public:
  ReferenceOptimizer(const Config& config, const ToyModel& problem);
  // Updates value[at[i]] with gradient[i] * scale for all i; `steps`: number of steps of these
  // elements, including this one.
  void Step(std::span<const std::size_t> at, const Doubles& gradient, double scale, double rate,
            std::int64_t steps, Doubles* value);

 private:
  decltype(Config::optimizer) keys_;
  Doubles m_, v_, decay_;  // moments; decay_: weight decay of each parameter
};

// The guard against outliers among one learner's losses or norms: recomputes the weighted mean and
// deviation of all values for each new one.
class ReferenceGuard {
 public:
  ReferenceGuard(double deviations, const GradientFilterOptions& options)
      : deviations_(deviations), options_(options) {}
  // Takes a value; true if it is an outlier.
  bool Judge(double number);

 private:
  struct Seen {
    double weight, size;
  };
  double deviations_;
  GradientFilterOptions options_;
  std::vector<Seen> seen_;
};

// Error feedback of a learner's encoder: residual += gradient, then subtracts what `coded` sends,
// and returns that, [n]. Where rounding leaves a choice (an element at the threshold, a value
// between two halves), the payload's choice is accepted.
// Errors: kDataLoss: no correct encoder with these options would send `coded`.
Result<Doubles> ReferenceSent(const CodecOptions& options, const CodedGradient& coded,
                              const Doubles& gradient, Doubles* residual);

}  // namespace troop
