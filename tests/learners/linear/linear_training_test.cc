// Training of linear models, against plain f64 loops.
#include "learners/linear/linear_training.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "core/base/philox.h"
#include "nn/arena.h"

namespace troop {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kExamples = 30, kFeatures = 5;

// Random rows of counts, whose first features occur in the first classes.
std::shared_ptr<LinearExamples> RandomExamples(std::int64_t classes) {
  auto examples = std::make_shared<LinearExamples>();
  examples->rows.width = kFeatures;
  examples->outputs = classes == 2 ? 1 : classes;
  std::vector<std::int32_t> labels;
  Rng rng({5, Purpose::kHoldout, 0, 0});
  for (std::int64_t i = 0; i < kExamples; ++i) {
    labels.push_back(std::int32_t(rng.Below(std::uint32_t(classes))));
    for (std::int32_t j = 0; j < kFeatures; ++j) {
      if (rng.Uniform() > (j == labels.back() ? 0.8 : 0.4)) continue;
      examples->rows.columns.push_back(j);
      examples->rows.values.push_back(float(1 + rng.Below(2)));
    }
    examples->rows.EndRow();
  }
  examples->targets = ClassTargets(labels, classes);
  return examples;
}

// One rate throughout; the number of updates only matters to schedules.
TrainingConfig ConfigOf(std::int64_t batch_size) {
  TrainingConfig config;
  config.learner.algorithm = AlgorithmKind::kClassifier;
  config.learner.batch_size = batch_size;
  config.run.max_updates = 100;
  config.optimizer.learning_rate = 0.3;
  return config;
}

// The algorithm; a failure is one of the test.
std::unique_ptr<Algorithm> Make(const TrainingConfig& config, const LinearOptions& options,
                                std::shared_ptr<const LinearExamples> examples) {
  auto made = MakeLinearTraining(config, options, std::move(examples));
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return *std::move(made);
}

// Makes updates, and returns the report of the last one.
LossReport Update(Algorithm* algorithm, int updates) {
  LossReport last;
  for (int i = 0; i < updates; ++i) {
    float priority = -1;
    const auto report = algorithm->Update({}, 0, std::span(&priority, 1));
    EXPECT_TRUE(report.ok()) << report.status().ToString();
    EXPECT_EQ(priority, 0);
    if (report.ok()) last = *report;
  }
  return last;
}

// The examples as a dense matrix with a last column of 1.
std::vector<std::vector<double>> Dense(const LinearExamples& examples) {
  std::vector<std::vector<double>> dense;
  for (std::int64_t i = 0; i < examples.rows.size(); ++i) {
    dense.emplace_back(kFeatures + 1, 0.0).back() = 1;
    const SparseRow row = examples.rows.row(i);
    for (std::size_t j = 0; j < row.columns.size(); ++j)
      dense.back()[std::size_t(row.columns[j])] = double(row.values[j]);
  }
  return dense;
}

// The derivative of the squared hinge or of the log loss, by its definition.
double Slope(LinearLoss loss, double z, double y) {
  if (loss == LinearLoss::kLog) return -y / (1 + std::exp(y * z));
  return y * z < 1 ? -2 * y * (1 - y * z) : 0;
}

// x · w.
double Output(const std::vector<double>& x, const std::vector<double>& w) {
  return std::inner_product(x.begin(), x.end(), w.begin(), 0.0);
}

// Minimizes the mean loss of output k plus l2/2 |w|² by gradient descent, bias included.
std::vector<double> Minimum(const LinearExamples& examples,
                            const std::vector<std::vector<double>>& x, std::size_t k,
                            const LinearOptions& options) {
  std::vector<double> w(kFeatures + 1, 0.0);
  for (int step = 0; step < 20000; ++step) {
    std::vector<double> gradient;
    for (const double one : w) gradient.push_back(options.l2 * one);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double y = double(examples.targets[i * std::size_t(examples.outputs) + k]);
      const double slope = Slope(options.loss, Output(x[i], w), y) / double(x.size());
      for (std::size_t j = 0; j < w.size(); ++j) gradient[j] += slope * x[i][j];
    }
    for (std::size_t j = 0; j < w.size(); ++j) w[j] -= 0.02 * gradient[j];
  }
  return w;
}

// One output for two classes, and one against the rest for three.
TEST(LinearTrainingTest, DualAscentReachesTheMinimumOfEachOutput) {
  for (const std::int64_t classes : {2, 3}) {
    for (const LinearLoss loss : {LinearLoss::kLog, LinearLoss::kSquaredHinge}) {
      SCOPED_TRACE(fmt::format("{} {}", classes, EnumName(loss)));
      const auto examples = RandomExamples(classes);
      const LinearOptions options{.loss = loss, .l2 = 0.1};
      const auto training = Make(ConfigOf(7), options, examples);
      Update(training.get(), 500);
      const auto outputs = std::size_t(examples->outputs);
      ASSERT_EQ(std::ssize(training->value()), AlignParams((kFeatures + 1) * examples->outputs));
      for (std::size_t k = 0; k < outputs; ++k) {
        const std::vector<double> best = Minimum(*examples, Dense(*examples), k, options);
        for (std::size_t j = 0; j < best.size(); ++j)
          EXPECT_NEAR(training->value()[j * outputs + k], best[j], 2e-4) << j << " " << k;
      }
    }
  }
}

// Published weights contain the factors; the solver trains on the scaled features.
TEST(LinearTrainingTest, NaiveBayesWeightsContainTheirFactors) {
  const auto examples = RandomExamples(2);
  const LinearOptions options{.l2 = 0.1, .naive_bayes = true, .smoothing = 0.5};
  auto x = Dense(*examples);
  // Wang & Manning 2012, eq. 1.
  std::vector<double> ratios;
  double all[2] = {};
  std::vector<double> sums[2];
  for (std::size_t side = 0; side < 2; ++side) {
    sums[side].assign(kFeatures, options.smoothing);
    for (std::size_t i = 0; i < x.size(); ++i) {
      if ((examples->targets[i] > 0) != (side == 1)) continue;
      for (std::size_t j = 0; j < kFeatures; ++j) sums[side][j] += x[i][j];
    }
    all[side] = std::accumulate(sums[side].begin(), sums[side].end(), 0.0);
  }
  for (std::size_t j = 0; j < kFeatures; ++j)
    ratios.push_back(std::log(sums[1][j] / all[1]) - std::log(sums[0][j] / all[0]));
  ratios.push_back(1);  // of the bias
  for (auto& row : x) {
    for (std::size_t j = 0; j < row.size(); ++j) row[j] *= ratios[j];
  }
  const auto training = Make(ConfigOf(30), options, examples);
  Update(training.get(), 500);
  const std::vector<double> best = Minimum(*examples, x, 0, options);
  for (std::size_t j = 0; j < best.size(); ++j)
    EXPECT_NEAR(training->value()[j], ratios[j] * best[j], 2e-4) << j;
}

// A batch of all examples: the first step follows from the definition.
TEST(LinearTrainingTest, StepOfAllExamplesIsTheGradientOfTheMeanLoss) {
  const auto examples = RandomExamples(2);
  const LinearOptions options{
      .loss = LinearLoss::kLog, .dual_ascent = false, .rows = {.rule = RowRule::kSgd}, .l2 = 0};
  const auto training = Make(ConfigOf(kExamples), options, examples);
  const LossReport report = Update(training.get(), 1);
  const auto x = Dense(*examples);
  std::vector<double> gradient(kFeatures + 1, 0.0);
  double negative = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double y = double(examples->targets[i]);
    negative += y < 0 ? 1 : 0;
    for (std::size_t j = 0; j < gradient.size(); ++j) gradient[j] -= y / 2 * x[i][j] / kExamples;
  }
  double squares = 0;
  for (std::size_t j = 0; j < gradient.size(); ++j) {
    squares += gradient[j] * gradient[j];
    EXPECT_NEAR(training->value()[j], -0.3 * gradient[j], 1e-6) << j;
  }
  // Outputs of 0 are those of class 0.
  EXPECT_NEAR(report.loss, std::log(2.0), 1e-6);
  EXPECT_NEAR(report.gradient_norm, std::sqrt(squares), 1e-6);
  EXPECT_NEAR(report.accuracy, negative / kExamples, 1e-9);
  EXPECT_EQ(report.rows, kExamples);
  EXPECT_EQ(report.sequences, kExamples);
  EXPECT_EQ(training->updates(), 1u);
}

// Options of each solver and row optimizer, some with naive Bayes.
std::vector<LinearOptions> AllOptions() {
  std::vector<LinearOptions> all = {{.l2 = 0.1},
                                    {.loss = LinearLoss::kLog, .l2 = 0.1, .l1 = 0.01},
                                    {.l2 = 0.1, .naive_bayes = true}};
  for (const RowRule rule : {RowRule::kSgd, RowRule::kAdaGrad, RowRule::kFtrl, RowRule::kAdam}) {
    all.push_back({.dual_ascent = false, .rows = {.rule = rule}, .l2 = 0});
    all.push_back({.dual_ascent = false, .rows = {.rule = rule}, .l2 = 0, .naive_bayes = true});
  }
  return all;
}

// Batches of unequal sizes, and a stop within an epoch.
TEST(LinearTrainingTest, RestoredStateContinuesWithTheSameBytes) {
  for (const LinearOptions& options : AllOptions()) {
    for (const std::int64_t classes : {2, 4}) {
      if (options.naive_bayes && classes > 2) continue;
      const auto examples = RandomExamples(classes);
      const auto whole = Make(ConfigOf(7), options, examples);
      const auto rest = Make(ConfigOf(7), options, examples);
      // The state of a run before its first update, too.
      ASSERT_TRUE(rest->SetState(whole->State()).ok());
      Update(whole.get(), 8);
      ASSERT_TRUE(rest->SetState(whole->State()).ok());
      Update(whole.get(), 9);
      Update(rest.get(), 9);
      EXPECT_EQ(rest->updates(), 17u);
      EXPECT_TRUE(std::ranges::equal(whole->value(), rest->value()));
      const Buffer bytes = EncodeSafetensors(whole->State());
      EXPECT_TRUE(std::ranges::equal(bytes.bytes(), EncodeSafetensors(rest->State()).bytes()));
      EXPECT_TRUE(rest->CheckFinite().ok());
    }
  }
}

// A later version must be newer than all published ones.
TEST(LinearTrainingTest, RollBackKeepsTheCount) {
  const auto examples = RandomExamples(2);
  const auto training = Make(ConfigOf(7), {}, examples);
  Update(training.get(), 2);
  const TensorFile state = training->State();
  Update(training.get(), 3);
  ASSERT_TRUE(training->RollBack(state).ok());
  EXPECT_EQ(training->updates(), 6u);
  EXPECT_TRUE(std::ranges::equal(training->value(), state.tensors.at("value").as<float>()));
}

// A refused state changes nothing.
TEST(LinearTrainingTest, StateOfAnotherRunIsRefused) {
  const auto examples = RandomExamples(2);
  const auto training = Make(ConfigOf(7), {}, examples);
  Update(training.get(), 3);
  const Buffer before = EncodeSafetensors(training->State());
  const auto expect = [&](TensorFile state, const char* message) {
    const Status status = training->SetState(state);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr(message));
    EXPECT_TRUE(std::ranges::equal(before.bytes(), EncodeSafetensors(training->State()).bytes()));
  };
  const LinearOptions sgd{.dual_ascent = false, .l2 = 0};
  expect(Make(ConfigOf(7), sgd, examples)->State(), "optimizer is \"sgd\" in the state");
  expect(Make(ConfigOf(7), {}, RandomExamples(3))->State(), "must have");
  TensorFile state = training->State();
  state.tensors.erase("dual_ascent.sums");
  expect(state, "\"dual_ascent.sums\" of the state has 0 values, must have 6");
  state = training->State();
  state.metadata.erase("updates");
  expect(state, "updates");
  state = training->State();
  std::vector<float> bad(kExamples, std::numeric_limits<float>::quiet_NaN());
  state.tensors["dual_ascent.duals"] =
      ConstTensor(Buffer::Copy(std::as_bytes(std::span(bad))), {DType::kF32, {kExamples}});
  expect(state, "not finite");
  // The state of an optimizer that steps another model's rows.
  const auto steps =
      Make(ConfigOf(7), {.dual_ascent = false, .rows = {.rule = RowRule::kFtrl}}, examples);
  Update(steps.get(), 1);
  state = steps->State();
  state.tensors.erase("optimizer.rows");
  EXPECT_EQ(steps->SetState(state).code(), Code::kInvalidArgument);
}

// A step of a dual variable is not a gradient.
TEST(LinearTrainingTest, HalfAnUpdateOfDualAscentIsRefused) {
  const auto training = Make(ConfigOf(7), {}, RandomExamples(2));
  const Status status = training->ComputeGradient({}, {}).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("set fleet.learners = 1"));
  EXPECT_EQ(training->row_gradients(), nullptr);
}

// The rows of the batch before are zero again.
TEST(LinearTrainingTest, GradientForShardsHasTheRowsAndZeros) {
  TrainingConfig config = ConfigOf(1);
  config.learner.sync = LearnerSync::kParamServer;
  const LinearOptions options{.dual_ascent = false, .rows = {.rule = RowRule::kAdaGrad}, .l2 = 0};
  const auto training = Make(config, options, RandomExamples(3));
  ASSERT_NE(training->external_optimizer(), nullptr);
  const std::vector<float> weights(training->value().size(), 0.5f);
  training->external_optimizer()->ReplaceWeights(3, weights);
  EXPECT_TRUE(std::ranges::equal(training->value(), weights));
  EXPECT_EQ(training->updates(), 3u);
  auto fewest = std::size_t(kFeatures + 1);
  for (std::uint64_t batch = 0; batch < 5; ++batch) {
    training->batch_partition()->SetTrainingProgress({.batches = batch});
    ASSERT_TRUE(training->ComputeGradient({}, {}).ok());
    std::vector<float> expected(training->value().size(), 0.0f);
    const RowGradient& rows = training->row_gradients()->row_gradient().sum();
    for (std::size_t i = 0; i < rows.rows.size(); ++i) {
      for (std::size_t k = 0; k < 3; ++k)
        expected[std::size_t(rows.rows[i]) * 3 + k] = rows.values[i * 3 + k];
    }
    fewest = std::min(fewest, rows.rows.size());
    EXPECT_TRUE(std::ranges::equal(training->gradient(), expected));
  }
  EXPECT_LT(fewest, std::size_t(kFeatures + 1));
  // Their steps depend on which rows a gradient has.
  for (const RowRule rule : {RowRule::kFtrl, RowRule::kAdam}) {
    const auto other =
        Make(config, {.dual_ascent = false, .rows = {.rule = rule}, .l2 = 0}, RandomExamples(3));
    EXPECT_EQ(other->external_optimizer(), nullptr);
  }
}

// One fault each; the options are otherwise those of a valid run.
TEST(LinearTrainingTest, WrongExamplesAndOptionsAreNamed) {
  const auto good = RandomExamples(2), three = RandomExamples(3);
  const auto large = RandomExamples(2), negative = RandomExamples(2), short_of = RandomExamples(2);
  // Its square exceeds the limit by far.
  large->rows.values[0] = 1e8f;
  negative->rows.values[0] = -1;
  short_of->targets.pop_back();
  struct Case {
    std::shared_ptr<LinearExamples> examples;
    LinearOptions options;
    const char* message;
  };
  const Case cases[] = {
      {std::make_shared<LinearExamples>(), {}, "there are no training examples"},
      {short_of, {}, "29 targets for 30 examples of 1 outputs"},
      {large, {}, "the squared norm of training example 0 is 1e+16"},
      {good, {.l2 = 0}, "dual_ascent needs l2 above 0"},
      {good, {.l2 = -1}, "l2 is -1, must be at least 0"},
      {good, {.dual_ascent = false}, "sgd has no penalty"},
      {three, {.naive_bayes = true}, "the model has 3 outputs"},
      {good, {.loss = LinearLoss::kSquaredError, .naive_bayes = true}, "and squared_error"},
      {good, {.naive_bayes = true, .smoothing = 0}, "smoothing is 0, must be above 0"},
      {negative, {.naive_bayes = true}, "but one is negative"}};
  for (const Case& c : cases) {
    const auto made = MakeLinearTraining(ConfigOf(7), c.options, c.examples);
    ASSERT_FALSE(made.ok()) << c.message;
    EXPECT_EQ(made.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(made.status().message(), HasSubstr(c.message));
  }
}

}  // namespace
}  // namespace troop
