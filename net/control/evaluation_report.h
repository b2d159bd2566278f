#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace troop {

// A measure of an evaluation by its name, such as "f1_macro".
struct EvaluationMeasure {
  std::string name;
  double value = 0;  // NaN: undefined
  template <class A>
  void serialize(A& a) {
    a(name, value);
  }
  bool operator==(const EvaluationMeasure&) const = default;
};

// The outcome of an evaluation.
struct EvaluationReport {
  std::uint64_t weights_version = 0;
  std::int64_t steps = 0;  // agent steps of the run when the weights were pulled
  std::int64_t episodes = 0;
  double return_mean = 0, return_std = 0, return_min = 0, return_max = 0, length_mean = 0;
  bool final = false;
  // Supervised: `episodes` is the number of examples, return_mean the accuracy in %, return_std its
  // standard error, return_min and return_max its 95 % interval (core/metrics/wilson_interval.h),
  // length_mean is in tokens, and loss is the mean cross-entropy.
  double loss = 0;
  std::vector<EvaluationMeasure> measures{};  // supervised
  template <class A>
  void serialize(A& a) {
    a(weights_version, steps, episodes, return_mean, return_std, return_min, return_max,
      length_mean, final, loss, measures);
  }
  bool operator==(const EvaluationReport&) const = default;
};

}  // namespace troop
