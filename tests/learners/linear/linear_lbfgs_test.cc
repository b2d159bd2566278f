// Training of linear models by L-BFGS, against plain f64 loops.
#include "learners/linear/linear_lbfgs.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <tuple>

#include "core/base/philox.h"

namespace troop {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kExamples = 40, kFeatures = 6;

// Random rows of counts.
std::shared_ptr<LinearExamples> RandomExamples(std::int64_t outputs) {
  auto examples = std::make_shared<LinearExamples>();
  examples->rows.width = kFeatures;
  examples->outputs = outputs;
  Rng rng({6, Purpose::kTest, 0, 0});
  for (std::int64_t i = 0; i < kExamples; ++i) {
    for (std::int32_t j = 0; j < kFeatures; ++j) {
      if (rng.Below(2) == 0) continue;
      examples->rows.columns.push_back(j);
      examples->rows.values.push_back(float(1 + rng.Below(3)));
    }
    examples->rows.EndRow();
    for (std::int64_t k = 0; k < outputs; ++k)
      examples->targets.push_back(rng.Below(3) == 0 ? 1.0f : -1.0f);
  }
  return examples;
}

TrainingConfig Config() {
  TrainingConfig config;
  config.learner.algorithm = AlgorithmKind::kClassifier;
  config.learner.batch_size = kExamples;
  config.run.max_updates = 100;
  config.optimizer.type = OptimizerType::kLbfgs;
  config.optimizer.history_size = 4;
  return config;
}

std::unique_ptr<Algorithm> Make(const LinearOptions& options,
                                std::shared_ptr<const LinearExamples> examples,
                                const TrainingConfig& config = Config()) {
  auto made = MakeLinearLbfgs(config, options, std::move(examples));
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return *std::move(made);
}

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

// The largest derivative of the mean loss plus l2/2 |w|² without the bias, by its definition.
double LargestDerivative(const LinearExamples& examples, const LinearOptions& options,
                         std::span<const float> w) {
  double largest = 0;
  for (std::int64_t k = 0; k < examples.outputs; ++k) {
    const auto at = [&](std::int64_t j) {
      return double(w[std::size_t(j * examples.outputs + k)]);
    };
    std::vector<double> gradient(kFeatures + 1);
    for (std::int64_t i = 0; i < kExamples; ++i) {
      const SparseRow row = examples.rows.row(i);
      double z = at(kFeatures);
      for (std::size_t j = 0; j < row.columns.size(); ++j)
        z += at(row.columns[j]) * double(row.values[j]);
      const double y = double(examples.targets[std::size_t(i * examples.outputs + k)]);
      const double slope = options.loss == LinearLoss::kLog ? -y / (1 + std::exp(y * z))
                           : y * z < 1                      ? -2 * y * (1 - y * z)
                                                            : 0;
      for (std::size_t j = 0; j < row.columns.size(); ++j)
        gradient[std::size_t(row.columns[j])] += slope * double(row.values[j]) / kExamples;
      gradient[kFeatures] += slope / kExamples;
    }
    for (std::int64_t j = 0; j < kFeatures; ++j) gradient[std::size_t(j)] += options.l2 * at(j);
    for (const double g : gradient) largest = std::max(largest, std::abs(g));
  }
  return largest;
}

TEST(LinearLbfgsTest, DerivativesVanishAtTheEnd) {
  for (const LinearLoss loss : {LinearLoss::kLog, LinearLoss::kSquaredHinge}) {
    for (const std::int64_t outputs : {1, 3}) {
      const auto examples = RandomExamples(outputs);
      const LinearOptions options{.loss = loss, .l2 = 0.05};
      const auto algorithm = Make(options, examples);
      EXPECT_GT(LargestDerivative(*examples, options, algorithm->value()), 0.05);
      const LossReport report = Update(algorithm.get(), 60);
      EXPECT_LT(LargestDerivative(*examples, options, algorithm->value()), 1e-4)
          << EnumName(loss) << outputs;
      EXPECT_EQ(report.rows, kExamples);
      // The search has ended: nothing changes.
      const std::vector<float> end(algorithm->value().begin(), algorithm->value().end());
      Update(algorithm.get(), 2);
      EXPECT_TRUE(std::ranges::equal(algorithm->value(), end));
      EXPECT_EQ(algorithm->updates(), 62);
    }
  }
}

// Factors of naive Bayes change the penalty only: the published weights fit the original rows.
TEST(LinearLbfgsTest, PublishedWeightsContainTheFactors) {
  const auto examples = RandomExamples(1);
  const LinearOptions options{.loss = LinearLoss::kLog, .l2 = 0, .naive_bayes = true};
  const auto algorithm = Make(options, examples);
  Update(algorithm.get(), 60);
  EXPECT_LT(LargestDerivative(*examples, options, algorithm->value()), 1e-3);
}

TEST(LinearLbfgsTest, RestoredStateContinuesExactly) {
  const auto examples = RandomExamples(1);
  const LinearOptions options{.loss = LinearLoss::kLog, .l2 = 1e-3, .naive_bayes = true};
  const auto plain = Make(options, examples);
  for (int i = 0; i < 12; ++i) {
    const auto again = Make(options, examples);
    ASSERT_TRUE(again->SetState(plain->State()).ok()) << i;
    Update(again.get(), 3);
    Update(plain.get(), 1);
    const auto same = Make(options, examples);
    ASSERT_TRUE(same->SetState(again->State()).ok());
    const auto ahead = Make(options, examples);
    Update(ahead.get(), i + 3);
    ASSERT_TRUE(std::ranges::equal(again->value(), ahead->value())) << i;
    ASSERT_TRUE(std::ranges::equal(same->value(), ahead->value())) << i;
    EXPECT_EQ(again->updates(), i + 3);
  }
}

TEST(LinearLbfgsTest, StatesOfOthersAreRefused) {
  const auto examples = RandomExamples(1);
  const auto algorithm = Make({.loss = LinearLoss::kLog}, examples);
  Update(algorithm.get(), 6);
  const TensorFile good = algorithm->State();
  const std::vector<float> before(algorithm->value().begin(), algorithm->value().end());
  TensorFile other = good;
  other.metadata["optimizer"] = "dual_ascent";
  EXPECT_THAT(algorithm->SetState(other).message(), HasSubstr("\"dual_ascent\" in the state"));
  for (const char* const name : {"lbfgs.scalars", "lbfgs.vectors", "value"}) {
    TensorFile damaged = good;
    damaged.tensors.erase(name);
    EXPECT_THAT(algorithm->SetState(damaged).message(), HasSubstr(name));
    damaged.tensors[name] = good.tensors.at(name).dtype() == DType::kF64
                                ? good.tensors.at("value")
                                : good.tensors.at("lbfgs.scalars");
    EXPECT_FALSE(algorithm->SetState(damaged).ok()) << name;
  }
  // Counts out of range; a scalar of the line search may be infinite.
  const auto scalars = good.tensors.at("lbfgs.scalars").as<double>();
  for (const auto& [place, number, valid] :
       {std::tuple{scalars.size() - 1, std::nan(""), false},
        {scalars.size() - 1, kExamples + 1.0, false},
        {std::size_t{0}, 99.0, false},
        {std::size_t{8}, std::numeric_limits<double>::infinity(), true}}) {
    std::vector<double> changed(scalars.begin(), scalars.end());
    changed[place] = number;
    TensorFile damaged = good;
    damaged.tensors["lbfgs.scalars"] =
        ConstTensor(Buffer::Copy(std::as_bytes(std::span<const double>(changed))),
                    {DType::kF64, {std::ssize(changed)}});
    EXPECT_EQ(algorithm->SetState(damaged).ok(), valid) << place << " " << number;
  }
  // A longer history has other scalars.
  TrainingConfig longer = Config();
  longer.optimizer.history_size = 5;
  const auto wider = Make({.loss = LinearLoss::kLog}, examples, longer);
  EXPECT_THAT(wider->SetState(good).message(), HasSubstr("lbfgs.scalars"));
  EXPECT_TRUE(std::ranges::equal(algorithm->value(), before));
}

TEST(LinearLbfgsTest, ObjectivesWithoutDerivativesAreRefused) {
  const auto made = MakeLinearLbfgs(Config(), {.l1 = 0.1}, RandomExamples(1));
  EXPECT_THAT(made.status().message(), HasSubstr("smooth objective"));
  const auto algorithm = Make({}, RandomExamples(1));
  EXPECT_FALSE(algorithm->ComputeGradient({}, {}, nullptr).ok());
}

}  // namespace
}  // namespace troop
