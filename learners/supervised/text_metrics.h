#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/config/problem_type.h"
#include "core/metrics/wilson_interval.h"
#include "learners/supervised/text_step.h"
#include "net/control/evaluation_report.h"

namespace troop {

// A measure with its 95 % interval; nullopt: not computed, or undefined.
struct TextMetric {
  std::string name;  // as in scikit-learn and scipy: "accuracy", "f1_macro", "pearson", …
  double value = 0;
  std::optional<ConfidenceInterval> interval;
};

// Measures of one class (against all others) or of one label. nullopt: undefined, such as the
// precision of a class that is never predicted.
struct ClassMetrics {
  std::int64_t support = 0;    // examples with the class
  std::int64_t predicted = 0;  // examples with this prediction
  std::optional<double> precision, recall, f1, auc;
};

// Classes of a confusion matrix at most: its size is their square.
inline constexpr std::size_t kConfusionClassesMax = 1000;

// Results of an evaluation of a text model.
struct TextScores {
  ProblemType problem = ProblemType::kSingleLabel;
  std::int64_t examples = 0;
  // The measures that are defined, the main one (MainMetric) first:
  //   one class:  accuracy, f1_macro, f1_micro, auc
  //   labels:     accuracy (all labels of a text correct), f1_macro, f1_micro, auc
  //   regression: pearson, spearman, mse, mae
  // f1_macro is the mean over the classes that occur or are predicted; auc the area under the ROC
  // curve, for more than two classes the mean over classes (one vs. rest) with examples of both
  // kinds.
  std::vector<TextMetric> metrics;
  std::vector<ClassMetrics> classes;
  // One class of up to kConfusionClassesMax: number of examples by [true class][predicted class];
  // otherwise empty.
  std::vector<std::vector<std::int64_t>> confusion;
  // The metric of that name; nullptr: undefined.
  const TextMetric* Find(std::string_view name) const;
};
// Classes at most that a report holds, as it travels in a heartbeat; more are left out.
inline constexpr std::size_t kReportedClassesMax = 200;
// Adds the classes, the confusion matrix and the intervals of the measures that a report has by
// name.
void ReportScores(const TextScores& scores, EvaluationReport* report);
// The scores that a report holds; a confusion matrix of another size than its classes is left out.
TextScores ReportedScores(const EvaluationReport& report);

// Names of all metrics of a kind of prediction, the main one first.
std::span<const std::string_view> MetricNames(ProblemType problem);
// Name of the metric by which checkpoints are compared; more is better.
std::string_view MainMetric(ProblemType problem);  // "accuracy" or "pearson"

// Collects the predictions of a text model and measures them. The predicted class is the first one
// with the largest logit; a label is predicted if its probability exceeds 1/2. Values equal those
// of scikit-learn and scipy within rounding. One owner thread. Memory: 4 bytes per output and
// example.
class TextMetrics {
 public:
  // outputs: classes, labels, or 1 (kRegression).
  TextMetrics(ProblemType problem, std::int64_t outputs);
  // Adds the rows of a batch. logits: [rows, outputs], as of TextStep. REQUIRES: labels below
  // `outputs`, or one target per output.
  void Add(const TextBatch& batch, std::span<const float> logits);
  std::int64_t examples() const { return examples_; }

  // Percentile intervals by the bootstrap (Efron and Tibshirani 1993, ch. 13): `resamples` data
  // sets of the examples, drawn with replacement. Reproducible: resample r is keyed by the seed and
  // r (docs/design/determinism.md). 0: no intervals.
  struct Bootstrap {
    std::uint64_t seed = 0;
    int resamples = 0;
  };
  // Computes all measures, in O(n log m) for each output, of which m examples are positive, and
  // O(n) for each output and resample.
  TextScores Compute(const Bootstrap& bootstrap) const;
  // Number of resamples that takes about a second at most, up to 1000 and at least 100.
  int AffordableResamples() const;
  // Number of resamples that takes about 0.2 s at most, up to 1000; 0 if that would be fewer than
  // 100, whose percentiles are poor.
  int QuickResamples() const;

 private:
  const ProblemType problem_;
  const std::size_t outputs_;
  std::int64_t examples_ = 0;
  std::vector<float> logits_, targets_;  // [n, outputs]
  std::vector<std::int32_t> labels_;     // [n]; only kSingleLabel
};

// Results of a trial of a text model.
struct TextTrial {
  ProblemType problem = ProblemType::kSingleLabel;
  std::uint64_t version = 0;  // of the weights
  std::int64_t examples = 0;
  TextOutcome outcome;     // over all examples; tokens: inputs of any kind
  TextScores scores = {};  // used for kRegression
};
// The report of a trial: accuracy in %, in the fields of an episode's return, with the 95 % Wilson
// interval as minimum and maximum. A regression has its Pearson correlation instead, 0 if that is
// undefined, with the interval of Fisher's transformation.
EvaluationReport TextTrialReport(const TextTrial& trial);
// Names and values of the metrics of a kind of prediction. An undefined metric is NaN, which
// replaces the value of an earlier evaluation. Empty: scores of no examples.
std::vector<std::pair<std::string, double>> TextTrialMeasures(ProblemType problem,
                                                              const TextScores& scores);

}  // namespace troop
