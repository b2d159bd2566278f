#include "learners/supervised/text_metrics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "core/base/philox.h"
#include "learners/supervised/rank_statistics.h"
#include "tests/learners/supervised_fixture.h"

namespace troop {
namespace {

// Predictions with the values of scikit-learn and scipy (tools/make_metric_fixtures.py).
const JsonValue& Cases() {
  static const JsonValue* const json = [] {
    auto parsed = ParseJson(test::ReadText(TROOP_SOURCE_DIR "/tests/fixtures/metrics.json"));
    EXPECT_TRUE(parsed.ok()) << parsed.status().ToString();
    return new JsonValue(*std::move(parsed));
  }();
  return *json;
}

std::vector<float> Row(const JsonValue& row) {
  std::vector<float> numbers;
  for (const JsonValue& x : row.array) numbers.push_back(float(x.number));
  return numbers;
}

// Adds a case in batches of up to 7 texts.
TextMetrics Collect(const JsonValue& one) {
  const auto problem = *ParseEnum<ProblemType>(one.Find("problem")->string);
  const auto& logits = one.Find("logits")->array;
  TextMetrics metrics(problem, std::int64_t(logits[0].array.size()));
  for (std::size_t first = 0; first < logits.size(); first += 7) {
    TextBatch batch{.starts = {0}};
    std::vector<float> x;
    for (std::size_t i = first; i < std::min(first + 7, logits.size()); ++i) {
      batch.starts.push_back(std::int32_t(batch.starts.size()));
      const auto row = Row(logits[i]);
      x.insert(x.end(), row.begin(), row.end());
      if (problem == ProblemType::kSingleLabel) {
        batch.labels.push_back(std::int32_t(one.Find("labels")->array[i].number));
      } else {
        const auto target = Row(one.Find("targets")->array[i]);
        batch.targets.insert(batch.targets.end(), target.begin(), target.end());
      }
    }
    metrics.Add(batch, x);
  }
  return metrics;
}

// Equal, or both undefined.
void ExpectSame(const JsonValue& json, const char* name, std::optional<double> value) {
  const JsonValue* const expected = json.Find(name);
  ASSERT_EQ(value.has_value(), expected != nullptr) << name;
  EXPECT_NEAR(value.value_or(0), expected == nullptr ? 0 : expected->number, 1e-9) << name;
}

TEST(TextMetricsTest, MatchScikitLearnAndScipy) {
  for (const JsonValue& one : Cases().array) {
    SCOPED_TRACE(one.Find("name")->string);
    const TextScores scores = Collect(one).Compute({});
    EXPECT_EQ(scores.examples, std::int64_t(one.Find("logits")->array.size()));
    const JsonValue& expected = *one.Find("metrics");
    EXPECT_EQ(scores.metrics.size(), expected.object.size());
    for (const char* const name :
         {"accuracy", "f1_macro", "f1_micro", "auc", "pearson", "spearman", "mse", "mae"}) {
      const TextMetric* const metric = scores.Find(name);
      ExpectSame(expected, name, metric ? std::optional(metric->value) : std::nullopt);
      EXPECT_FALSE(metric != nullptr && metric->interval);
    }
    const JsonValue* const classes = one.Find("classes");
    ASSERT_EQ(scores.classes.size(), classes == nullptr ? 0 : classes->array.size());
    for (std::size_t j = 0; j < scores.classes.size(); ++j) {
      const JsonValue& of = classes->array[j];
      const ClassMetrics& made = scores.classes[j];
      EXPECT_EQ(made.support, of.Find("support")->number);
      EXPECT_EQ(made.predicted, of.Find("predicted")->number);
      ExpectSame(of, "precision", made.precision);
      ExpectSame(of, "recall", made.recall);
      ExpectSame(of, "f1", made.f1);
      ExpectSame(of, "auc", made.auc);
    }
    const JsonValue* const confusion = one.Find("confusion");
    ASSERT_EQ(scores.confusion.empty(), confusion == nullptr);
    for (std::size_t t = 0; t < scores.confusion.size(); ++t)
      for (std::size_t p = 0; p < scores.confusion.size(); ++p)
        EXPECT_EQ(scores.confusion[t][p], confusion->array[t].array[p].number) << t << " " << p;
  }
}

TEST(TextMetricsTest, NothingIsDefinedWithoutExamples) {
  for (const ProblemType problem : {ProblemType::kSingleLabel, ProblemType::kRegression}) {
    const TextScores scores = TextMetrics(problem, 1).Compute({.seed = 1, .resamples = 10});
    EXPECT_EQ(scores.examples, 0);
    EXPECT_TRUE(scores.metrics.empty());
    EXPECT_EQ(scores.Find(MainMetric(problem)), nullptr);
  }
  // Examples without a label count as none.
  TextMetrics metrics(ProblemType::kSingleLabel, 2);
  metrics.Add(TextBatch{.starts = {0, 1, 2}, .labels = {-1, 1}}, std::vector<float>{0, 1, 0, 1});
  EXPECT_EQ(metrics.examples(), 1);
}

// Each resample is written out as a data set and measured without counts of examples.
TEST(TextMetricsTest, IntervalsAreThoseOfMeasuredResamples) {
  constexpr int kResamples = 200;
  constexpr std::uint64_t kSeed = 12;
  for (const char* const name : {"four classes", "numbers", "labels"}) {
    const auto& cases = Cases().array;
    const auto it = std::ranges::find_if(
        cases, [&](const JsonValue& one) { return one.Find("name")->string == name; });
    const TextScores scores = Collect(*it).Compute({kSeed, kResamples});
    const std::size_t n = it->Find("logits")->array.size();
    std::map<std::string, std::vector<double>> samples;
    for (int r = 0; r < kResamples; ++r) {
      Rng rng({kSeed, Purpose::kBootstrap, 0, std::uint64_t(r)});
      JsonValue resampled = *it;
      for (std::size_t i = 0; i < n; ++i) {
        const std::size_t from = rng.Below(std::uint32_t(n));
        for (auto& [key, value] : resampled.object) {
          if (key == "logits" || key == "labels" || key == "targets")
            value.array[i] = it->Find(key)->array[from];
        }
      }
      for (const TextMetric& metric : Collect(resampled).Compute({}).metrics)
        samples[metric.name].push_back(metric.value);
    }
    ASSERT_EQ(scores.metrics.size(), 4u);
    for (const TextMetric& metric : scores.metrics) {
      ASSERT_TRUE(metric.interval) << name << metric.name;
      auto& all = samples[metric.name];
      std::ranges::sort(all);
      // NumPy's percentiles of 200 values: 4.975 and 194.025 from the smallest.
      const double low = all[4] + 0.975 * (all[5] - all[4]);
      const double high = all[194] + 0.025 * (all[195] - all[194]);
      EXPECT_NEAR(metric.interval->low, low, 1e-9) << name << metric.name;
      EXPECT_NEAR(metric.interval->high, high, 1e-9) << name << metric.name;
      EXPECT_LT(metric.interval->low, metric.value);
      EXPECT_GT(metric.interval->high, metric.value);
    }
    // Another seed draws other examples.
    const TextScores other = Collect(*it).Compute({kSeed + 1, kResamples});
    bool differs = false;
    for (std::size_t m = 0; m < 4; ++m)
      differs |= other.metrics[m].interval->low != scores.metrics[m].interval->low;
    EXPECT_TRUE(differs);
  }
}

TEST(TextMetricsTest, ResamplesAreFewerForManyOutputs) {
  TextMetrics few(ProblemType::kRegression, 1);
  few.Add(TextBatch{.starts = {0, 1}, .targets = {1}}, std::vector<float>{1});
  EXPECT_EQ(few.AffordableResamples(), 1000);
  TextMetrics many(ProblemType::kMultiLabel, 1 << 10);
  TextBatch batch{.starts = std::vector<std::int32_t>(513)};
  batch.targets.resize(512 << 10);
  many.Add(batch, std::vector<float>(512 << 10));
  EXPECT_EQ(many.AffordableResamples(), 381);  // 2e8 / 2^19
  EXPECT_EQ(few.QuickResamples(), 1000);
  EXPECT_EQ(many.QuickResamples(), 0) << "4e7 / 2^19 = 76 are too few for percentiles";
  TextMetrics half(ProblemType::kMultiLabel, 1 << 9);
  batch.targets.resize(512 << 9);
  half.Add(batch, std::vector<float>(512 << 9));
  EXPECT_EQ(half.QuickResamples(), 152);  // 4e7 / 2^18
}

// Scores of two classes, of which one is never predicted, so that its precision is undefined.
TextScores ScoresOfTwoClasses() {
  TextScores scores{.examples = 3};
  scores.metrics = {{"accuracy", 2.0 / 3, ConfidenceInterval{0, 1}}, {"f1_macro", 0.4, {}}};
  scores.classes = {{.support = 2, .predicted = 3, .precision = 2.0 / 3, .recall = 1, .f1 = 0.8},
                    {.support = 1, .recall = 0, .f1 = 0}};
  scores.confusion = {{2, 0}, {1, 0}};
  return scores;
}

TEST(TextMetricsTest, ReportHoldsWhatIsDefined) {
  const TextScores scores = ScoresOfTwoClasses();
  EvaluationReport report{.episodes = 3,
                          .measures = {{.name = "accuracy", .value = 2.0 / 3},
                                       {.name = "f1_macro", .value = 0.4},
                                       {.name = "auc", .value = kUndefined}}};
  ReportScores(scores, &report);
  EXPECT_EQ(report.measures[0].high, 1);
  EXPECT_TRUE(std::isnan(report.measures[1].low));
  EXPECT_EQ(report.confusion, (std::vector<std::int64_t>{2, 0, 1, 0}));
  const TextScores back = ReportedScores(report);
  ASSERT_EQ(back.metrics.size(), 2u);  // the area is undefined
  EXPECT_EQ(back.metrics[0].interval->high, 1);
  EXPECT_FALSE(back.metrics[1].interval);
  EXPECT_EQ(back.confusion, scores.confusion);
  ASSERT_EQ(back.classes.size(), 2u);
  EXPECT_EQ(back.classes[0].precision, 2.0 / 3);
  EXPECT_FALSE(back.classes[1].precision);
  EXPECT_EQ(back.classes[1].recall, 0);
}

// A report arrives in a message, whose matrix may have any size.
TEST(TextMetricsTest, ReportedMatrixOfAnotherSizeIsLeftOut) {
  EvaluationReport report;
  ReportScores(ScoresOfTwoClasses(), &report);
  report.confusion.insert(report.confusion.end(), {7, 8});
  EXPECT_TRUE(ReportedScores(report).confusion.empty());
  report.confusion.clear();
  EXPECT_TRUE(ReportedScores(report).confusion.empty());
  // A heartbeat does not carry the classes of a large model.
  TextScores many;
  many.classes.resize(kReportedClassesMax + 1);
  EvaluationReport small;
  ReportScores(many, &small);
  EXPECT_TRUE(small.classes.empty());
}

// All pairs of a positive and a negative example, with ties and examples that occur several times.
TEST(TextMetricsTest, AreaUnderCurveIsShareOfPairs) {
  constexpr std::size_t kExamples = 60;
  for (const std::uint32_t one_in : {2U, 5U, 30U}) {
    Rng rng({7, Purpose::kBootstrap, 0, one_in});
    std::vector<double> value;
    std::vector<std::uint8_t> positive;
    std::vector<std::uint32_t> times;
    for (std::size_t i = 0; i < kExamples; ++i) {
      value.push_back(double(rng.Below(12)) / 7);
      positive.push_back(i == 0 || rng.Below(one_in) == 0);
      times.push_back(i == 0 ? 1 : rng.Below(4));
    }
    double pairs = 0, ordered = 0;
    for (std::size_t p = 0; p < kExamples; ++p) {
      for (std::size_t q = 0; q < kExamples; ++q) {
        if (positive[p] == 0 || positive[q] != 0) continue;
        const double weight = double(times[p]) * double(times[q]);
        pairs += weight;
        ordered += weight * (value[p] > value[q] ? 1 : value[p] == value[q] ? 0.5 : 0);
      }
    }
    const auto area = RocCurve(value, positive).Area(times);
    ASSERT_TRUE(area.has_value());
    EXPECT_NEAR(*area, ordered / pairs, 1e-12) << one_in;
  }
  // One kind alone has no curve.
  const std::vector<double> x{1, 2};
  const std::vector<std::uint32_t> once{1, 1}, first{1, 0};
  const std::vector<std::uint8_t> none{0, 0}, both{1, 1}, mixed{1, 0};
  EXPECT_FALSE(RocCurve(x, none).Area(once) || RocCurve(x, both).Area(once));
  EXPECT_FALSE(RocCurve(x, mixed).Area(first));
}

// Large offsets do not cancel, and squares that vanish are undefined.
TEST(TextMetricsTest, CorrelationIsStable) {
  const std::vector<std::uint32_t> once(4, 1);
  const std::vector<double> x{1e9 + 1, 1e9 + 2, 1e9 + 3, 1e9 + 5}, y{1, 2, 3, 5};
  EXPECT_NEAR(*Correlation(x, y, once), 1, 1e-12);
  const std::vector<double> tiny{0, 1e-300, 2e-300, 3e-300};
  EXPECT_FALSE(Correlation(tiny, y, once));
  // An example that does not occur.
  EXPECT_FALSE(
      Correlation(y, std::vector<double>{1, 1, 1, 2}, std::vector<std::uint32_t>{1, 1, 1, 0}));
}

}  // namespace
}  // namespace troop
