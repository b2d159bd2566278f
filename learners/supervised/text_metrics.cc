// Implements the measures of text models, and their bootstrap.

#include "learners/supervised/text_metrics.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/base/philox.h"
#include "learners/supervised/rank_statistics.h"

namespace troop {
namespace {

constexpr std::size_t kMetricsMax = 4;
// The 2.5 % and 97.5 % percentiles of fewer are about the extremes.
constexpr int kResamplesMin = 100;
using Values = std::array<std::optional<double>, kMetricsMax>;

// Names of Values, the main metric first.
constexpr std::array<std::string_view, kMetricsMax> kClassNames = {"accuracy", "f1_macro",
                                                                   "f1_micro", "auc"};
constexpr std::array<std::string_view, kMetricsMax> kNumberNames = {"pearson", "spearman", "mse",
                                                                    "mae"};

// a / b, undefined for b = 0.
std::optional<double> Ratio(double a, double b) {
  if (b == 0) return std::nullopt;
  return a / b;
}

// Counts of a class or label in a sample.
struct Counts {
  double hits = 0, support = 0, predicted = 0;
  // 2 TP / (2 TP + FP + FN).
  std::optional<double> F1() const { return Ratio(2 * hits, support + predicted); }
};

// Mean of the defined values.
class Mean {
 public:
  void Add(std::optional<double> value) {
    if (!value) return;
    sum_ += *value;
    ++count_;
  }
  std::optional<double> value() const { return Ratio(sum_, count_); }

 private:
  double sum_ = 0, count_ = 0;
};

// One sample's measures, from predictions that were prepared once. times: see rank_statistics.h.
class Measured {
 public:
  virtual ~Measured() = default;
  virtual Values Compute(std::span<const std::uint32_t> times) const = 0;
};

// Predictions of classes or labels, by column: whether each example has it, and is predicted to.
class Classes final : public Measured {
 public:
  struct Column {
    std::vector<std::uint8_t> has, predicted;  // [n]
    RocCurve curve;                            // by the class's probability
  };
  Classes(std::vector<Column> columns, std::vector<std::uint8_t> correct, bool one_class)
      : columns_(std::move(columns)), correct_(std::move(correct)), one_class_(one_class) {}

  // Branch-free, so that the sums over a resample vectorize.
  Counts CountsOf(std::size_t column, std::span<const std::uint32_t> times) const {
    const Column& c = columns_[column];
    std::uint64_t hits = 0, support = 0, predicted = 0;
    for (std::size_t i = 0; i < times.size(); ++i) {
      hits += times[i] * std::uint64_t(c.has[i] & c.predicted[i]);
      support += times[i] * std::uint64_t(c.has[i]);
      predicted += times[i] * std::uint64_t(c.predicted[i]);
    }
    return {double(hits), double(support), double(predicted)};
  }
  // Only the order of the scores matters, so it is computed once for all resamples.
  std::optional<double> AucOf(std::size_t column, std::span<const std::uint32_t> times) const {
    return columns_[column].curve.Area(times);
  }
  // Two exclusive classes have one curve, that of the second class.
  Values Compute(std::span<const std::uint32_t> times) const override {
    // The share of examples whose whole answer is correct.
    double n = 0, correct = 0;
    for (std::size_t i = 0; i < times.size(); ++i) {
      n += times[i];
      correct += times[i] * correct_[i];
    }
    // Macro averages are means over columns, micro averages are ratios of sums over columns.
    Mean f1, auc;
    Counts all;
    for (std::size_t j = 0; j < columns_.size(); ++j) {
      const Counts counts = CountsOf(j, times);
      f1.Add(counts.F1());
      all.hits += counts.hits;
      all.support += counts.support;
      all.predicted += counts.predicted;
      if (!one_class_ || columns_.size() > 2 || j == 1) auc.Add(AucOf(j, times));
    }
    return {Ratio(correct, n), f1.value(), all.F1(), auc.value()};
  }
  std::size_t columns() const { return columns_.size(); }

 private:
  const std::vector<Column> columns_;
  const std::vector<std::uint8_t> correct_;  // [n] the whole answer
  const bool one_class_;
};

// Predicted numbers.
class Numbers final : public Measured {
 public:
  // x: predictions.
  Numbers(std::vector<double> x, std::vector<double> target)
      : x_(std::move(x)), target_(std::move(target)), x_order_(x_), target_order_(target_) {}
  Values Compute(std::span<const std::uint32_t> times) const override {
    double n = 0, squares = 0, distances = 0;
    for (std::size_t i = 0; i < times.size(); ++i) {
      const double error = x_[i] - target_[i];
      n += times[i];
      squares += times[i] * error * error;
      distances += times[i] * std::fabs(error);
    }
    // Ranks change with the sample, because an example may occur several times.
    std::vector<double> x_rank(x_.size()), target_rank(x_.size());
    AverageRanks(x_order_, times, x_rank);
    AverageRanks(target_order_, times, target_rank);
    return {Correlation(x_, target_, times), Correlation(x_rank, target_rank, times),
            Ratio(squares, n), Ratio(distances, n)};
  }

 private:
  const std::vector<double> x_, target_;
  const ValueOrder x_order_, target_order_;
};

// Softmax in f64, with the largest logit subtracted against overflow. Its two parts are kept per
// text, as all probabilities of thousands of classes would take gigabytes.
struct RowSoftmax {
  double largest = 0, sum = 0;
  explicit RowSoftmax(std::span<const float> logits) : largest(std::ranges::max(logits)) {
    for (const float x : logits) sum += std::exp(double(x) - largest);
  }
  double operator()(float logit) const { return std::exp(double(logit) - largest) / sum; }
};

// The predicted class, as argmax of NumPy.
std::size_t FirstLargest(std::span<const float> logits) {
  return std::size_t(std::ranges::max_element(logits) - logits.begin());
}

// Element at a quantile of sorted values, linear between two (type 7 of Hyndman and Fan 1996, the
// default of NumPy).
double Quantile(const std::vector<double>& sorted, double quantile) {
  const double at = quantile * double(sorted.size() - 1);
  const auto low = std::size_t(at);
  const std::size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (at - double(low)) * (sorted[high] - sorted[low]);
}

// Intervals of all values. A metric that is undefined in half of the samples has none.
std::array<std::optional<ConfidenceInterval>, kMetricsMax> Intervals(
    const Measured& measured, std::size_t n, const TextMetrics::Bootstrap& bootstrap) {
  // Values of each metric over the resamples in which it is defined.
  std::array<std::vector<double>, kMetricsMax> samples;
  std::vector<std::uint32_t> times(n);
  for (int r = 0; r < bootstrap.resamples; ++r) {
    Rng rng({bootstrap.seed, Purpose::kBootstrap, 0, std::uint64_t(r)});
    // A resample is stored as the number of times that each example occurs.
    std::ranges::fill(times, 0U);
    for (std::size_t i = 0; i < n; ++i) ++times[rng.Below(std::uint32_t(n))];
    const Values values = measured.Compute(times);
    for (std::size_t m = 0; m < values.size(); ++m) {
      if (values[m]) samples[m].push_back(*values[m]);
    }
  }
  std::array<std::optional<ConfidenceInterval>, kMetricsMax> intervals;
  for (std::size_t m = 0; m < samples.size(); ++m) {
    if (samples[m].empty() || int(samples[m].size()) * 2 < bootstrap.resamples) continue;
    std::ranges::sort(samples[m]);
    // The percentile interval of 95 %.
    intervals[m] = {Quantile(samples[m], 0.025), Quantile(samples[m], 0.975)};
  }
  return intervals;
}

// Appends the defined values with their intervals.
void AddMetrics(const Measured& measured, const TextMetrics::Bootstrap& bootstrap,
                TextScores* scores) {
  const auto n = std::size_t(scores->examples);
  const Values values = measured.Compute(std::vector<std::uint32_t>(n, 1));
  const auto intervals = Intervals(measured, n, bootstrap);
  const std::span<const std::string_view> names = MetricNames(scores->problem);
  for (std::size_t m = 0; m < values.size(); ++m) {
    if (values[m]) scores->metrics.push_back({std::string(names[m]), *values[m], intervals[m]});
  }
}

// Measures of each class, of the data themselves.
void AddClasses(const Classes& classes, TextScores* scores) {
  const std::vector<std::uint32_t> once(std::size_t(scores->examples), 1);
  for (std::size_t j = 0; j < classes.columns(); ++j) {
    const Counts counts = classes.CountsOf(j, once);
    scores->classes.push_back({.support = std::int64_t(counts.support),
                               .predicted = std::int64_t(counts.predicted),
                               .precision = Ratio(counts.hits, counts.predicted),
                               .recall = Ratio(counts.hits, counts.support),
                               .f1 = counts.F1(),
                               .auc = classes.AucOf(j, once)});
  }
}

// The 95 % interval of a correlation r of n examples: atanh(r) is normal with the variance
// 1 / (n - 3) (Fisher 1921).
ConfidenceInterval FisherInterval(double r, double n) {
  if (n <= 3) return {-1, 1};
  const double middle = std::atanh(std::clamp(r, -0.9999999, 0.9999999));
  const double half = 1.959964 / std::sqrt(n - 3);
  return {std::min(r, std::tanh(middle - half)), std::max(r, std::tanh(middle + half))};
}

}  // namespace

std::span<const std::string_view> MetricNames(ProblemType problem) {
  return problem == ProblemType::kRegression ? kNumberNames : kClassNames;
}

std::string_view MainMetric(ProblemType problem) { return MetricNames(problem)[0]; }

const TextMetric* TextScores::Find(std::string_view name) const {
  const auto it = std::ranges::find(metrics, name, &TextMetric::name);
  return it == metrics.end() ? nullptr : &*it;
}

// The measures stay as they are: a report has further ones, such as the top-5 accuracy of images.
void ReportScores(const TextScores& scores, EvaluationReport* report) {
  for (EvaluationMeasure& measure : report->measures) {
    const TextMetric* const metric = scores.Find(measure.name);
    if (metric == nullptr || !metric->interval) continue;
    measure.low = metric->interval->low;
    measure.high = metric->interval->high;
  }
  if (scores.classes.size() > kReportedClassesMax) return;
  for (const ClassMetrics& one : scores.classes) {
    report->classes.push_back({.support = one.support,
                               .predicted = one.predicted,
                               .precision = one.precision.value_or(kUndefined),
                               .recall = one.recall.value_or(kUndefined),
                               .f1 = one.f1.value_or(kUndefined),
                               .auc = one.auc.value_or(kUndefined)});
  }
  for (const auto& row : scores.confusion)
    report->confusion.insert(report->confusion.end(), row.begin(), row.end());
}

// The report came in a message, so the size of its matrix is not trusted.
TextScores ReportedScores(const EvaluationReport& report) {
  const auto defined = [](double value) {
    return std::isnan(value) ? std::nullopt : std::optional(value);
  };
  TextScores scores{.examples = report.episodes};
  for (const EvaluationMeasure& measure : report.measures) {
    if (!defined(measure.value)) continue;
    TextMetric metric{.name = measure.name, .value = measure.value, .interval = {}};
    if (defined(measure.low) && defined(measure.high))
      metric.interval = ConfidenceInterval{measure.low, measure.high};
    scores.metrics.push_back(std::move(metric));
  }
  for (const EvaluationClass& one : report.classes) {
    scores.classes.push_back({.support = one.support,
                              .predicted = one.predicted,
                              .precision = defined(one.precision),
                              .recall = defined(one.recall),
                              .f1 = defined(one.f1),
                              .auc = defined(one.auc)});
  }
  // [classes, classes], row by row.
  const std::size_t k = report.classes.size();
  if (k == 0 || report.confusion.size() != k * k) return scores;
  for (auto row = report.confusion.begin(); row != report.confusion.end(); row += std::ptrdiff_t(k))
    scores.confusion.emplace_back(row, row + std::ptrdiff_t(k));
  return scores;
}

TextMetrics::TextMetrics(ProblemType problem, std::int64_t outputs)
    : problem_(problem), outputs_(std::size_t(outputs)) {}

// Texts without a label cannot be measured and are left out.
void TextMetrics::Add(const TextBatch& batch, std::span<const float> logits) {
  const bool labels = problem_ == ProblemType::kSingleLabel;
  for (std::size_t i = 0; i < std::size_t(batch.rows()); ++i) {
    if (labels && batch.labels[i] < 0) continue;
    const auto row = logits.subspan(i * outputs_, outputs_);
    logits_.insert(logits_.end(), row.begin(), row.end());
    if (labels) {
      TROOP_CHECK(std::size_t(batch.labels[i]) < outputs_, "label {} of {} classes",
                  batch.labels[i], outputs_);
      labels_.push_back(batch.labels[i]);
    } else {
      const auto target = std::span(batch.targets).subspan(i * outputs_, outputs_);
      targets_.insert(targets_.end(), target.begin(), target.end());
    }
    ++examples_;
  }
}

// 2·10⁸ visits of an output take about a second.
int TextMetrics::AffordableResamples() const {
  const double visits = double(std::max<std::int64_t>(1, examples_)) * double(outputs_);
  return int(std::clamp(2e8 / visits, double(kResamplesMin), 1000.0));
}

// A fifth of the visits: a role sends no heartbeat meanwhile (fleet.heartbeat_timeout_s, 1.5 s).
int TextMetrics::QuickResamples() const {
  const double visits = double(std::max<std::int64_t>(1, examples_)) * double(outputs_);
  const int quick = int(std::min(4e7 / visits, 1000.0));
  return quick < kResamplesMin ? 0 : quick;
}

// Steps: columns of the predictions, the measures with their intervals, the classes.
TextScores TextMetrics::Compute(const Bootstrap& bootstrap) const {
  TextScores scores{.problem = problem_, .examples = examples_};
  const auto n = std::size_t(examples_);
  if (n == 0) return scores;
  if (problem_ == ProblemType::kRegression) {
    const Numbers numbers({logits_.begin(), logits_.end()}, {targets_.begin(), targets_.end()});
    AddMetrics(numbers, bootstrap, &scores);
    return scores;
  }
  const bool one_class = problem_ == ProblemType::kSingleLabel;
  // Its size is the square of the classes, which tables of results do not show anyway.
  const bool matrix = one_class && outputs_ <= kConfusionClassesMax;
  if (matrix) scores.confusion.assign(outputs_, std::vector<std::int64_t>(outputs_));
  // Columns of the predictions, of equal length n.
  const std::vector<std::uint8_t> none(n);
  std::vector<std::vector<std::uint8_t>> has(outputs_, none), predicted(outputs_, none);
  std::vector<std::uint8_t> correct(n, 1);
  std::vector<RowSoftmax> softmax;  // one class: logits of different texts are not comparable
  for (std::size_t i = 0; i < n; ++i) {
    const auto row = std::span(logits_).subspan(i * outputs_, outputs_);
    if (one_class) {
      const std::size_t best = FirstLargest(row), label = std::size_t(labels_[i]);
      if (matrix) ++scores.confusion[label][best];
      has[label][i] = predicted[best][i] = 1;
      correct[i] = best == label;
      softmax.emplace_back(row);
      continue;
    }
    for (std::size_t j = 0; j < outputs_; ++j) {
      has[j][i] = targets_[i * outputs_ + j] > 0.5f;
      predicted[j][i] = row[j] > 0;
      correct[i] &= has[j][i] == predicted[j][i];
    }
  }
  // The scores of one column at a time.
  std::vector<Classes::Column> columns;
  std::vector<double> score(n);
  for (std::size_t j = 0; j < outputs_; ++j) {
    // A class without examples has no curve.
    const bool occurs = std::ranges::find(has[j], 1) != has[j].end();
    for (std::size_t i = 0; occurs && i < n; ++i) {
      const float logit = logits_[i * outputs_ + j];
      score[i] = one_class ? softmax[i](logit) : double(logit);
    }
    RocCurve curve(score, has[j]);
    columns.push_back({std::move(has[j]), std::move(predicted[j]), std::move(curve)});
  }
  const Classes classes(std::move(columns), std::move(correct), one_class);
  AddMetrics(classes, bootstrap, &scores);
  AddClasses(classes, &scores);
  return scores;
}

// Standard deviation of a share p of n examples: sqrt(p (1 - p) / n).
EvaluationReport TextTrialReport(const TextTrial& trial) {
  const TextOutcome& outcome = trial.outcome;
  const double rows = double(std::max<std::int64_t>(1, outcome.rows));
  const double right = double(outcome.right) / rows;
  EvaluationReport report{
      .weights_version = trial.version,
      .episodes = trial.examples,
      .length_mean = double(outcome.tokens) / double(std::max<std::int64_t>(1, trial.examples)),
      .loss = outcome.loss / rows};
  double score = right;
  ConfidenceInterval interval = WilsonInterval(double(outcome.right), double(outcome.rows));
  double deviation = std::sqrt(right * (1 - right) / rows);
  if (trial.problem == ProblemType::kRegression) {
    const TextMetric* const metric = trial.scores.Find(MainMetric(trial.problem));
    score = metric == nullptr ? 0 : metric->value;
    interval = FisherInterval(score, rows);
    deviation = (1 - score * score) / std::sqrt(std::max(1.0, rows - 1));
  }
  report.return_mean = 100 * score;
  report.return_std = 100 * deviation;
  report.return_min = 100 * interval.low;
  report.return_max = 100 * interval.high;
  return report;
}

// Files have null for NaN.
std::vector<std::pair<std::string, double>> TextTrialMeasures(ProblemType problem,
                                                              const TextScores& scores) {
  std::vector<std::pair<std::string, double>> measures;
  for (const std::string_view name : MetricNames(problem)) {
    const TextMetric* const metric = scores.Find(name);
    if (scores.examples > 0) measures.emplace_back(name, metric == nullptr ? NAN : metric->value);
  }
  return measures;
}

}  // namespace troop
