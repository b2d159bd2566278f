#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace troop {

// The value of a measure without one.
inline constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();

// True for equal values, and for two undefined ones: a report that is sent again must equal itself.
inline bool SameMeasure(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

// A measure of an evaluation by its name, such as "f1_macro".
struct EvaluationMeasure {
  std::string name;
  double value = 0;                            // NaN: undefined
  double low = kUndefined, high = kUndefined;  // 95 % interval; NaN: not computed
  template <class A>
  void serialize(A& a) {
    a(name, value, low, high);
  }
  bool operator==(const EvaluationMeasure& o) const {
    return name == o.name && SameMeasure(value, o.value) && SameMeasure(low, o.low) &&
           SameMeasure(high, o.high);
  }
};

// The measures of one class against all others, or of one label. NaN: undefined.
struct EvaluationClass {
  std::int64_t support = 0, predicted = 0;  // examples with the class, and with this prediction
  double precision = kUndefined, recall = kUndefined, f1 = kUndefined, auc = kUndefined;
  template <class A>
  void serialize(A& a) {
    a(support, predicted, precision, recall, f1, auc);
  }
  bool operator==(const EvaluationClass& o) const {
    return support == o.support && predicted == o.predicted &&
           SameMeasure(precision, o.precision) && SameMeasure(recall, o.recall) &&
           SameMeasure(f1, o.f1) && SameMeasure(auc, o.auc);
  }
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
  // Only a final evaluation of classes or labels, and only of a limited number of them: the classes
  // in the order of the outputs, and [classes, classes] examples by true and predicted class.
  std::vector<EvaluationClass> classes{};
  std::vector<std::int64_t> confusion{};
  template <class A>
  void serialize(A& a) {
    a(weights_version, steps, episodes, return_mean, return_std, return_min, return_max,
      length_mean, final, loss, measures, classes, confusion);
  }
  bool operator==(const EvaluationReport&) const = default;
};

}  // namespace troop
