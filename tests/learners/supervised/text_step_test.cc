#include "learners/supervised/text_step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "learners/supervised/class_weights.h"
#include "learners/supervised/supervised.h"
#include "tests/learners/supervised_fixture.h"
#include "tests/nn/transformer_bench.h"

namespace troop {
namespace {

// A module whose parameters are the logits, so that their gradient can be read.
class Logits final : public Module {
 public:
  explicit Logits(const Shape& shape) : params_{{.name = "x", .shape = shape}} {}
  std::span<const ParamSpec> params() const override { return params_; }
  Result<Plan> MakePlan(std::span<const TensorSpec>) const override {
    return Plan{.out = {{DType::kF32, params_[0].shape}}};
  }
  std::unique_ptr<Packed> MakePacked(Precision) const override { return nullptr; }
  void Pack(std::span<const float>, Packed*) const override {}
  void Forward(const StepContext& context, std::span<const ConstTensor>,
               std::span<const Tensor> out, Cache) const override {
    std::ranges::copy(context.value, out[0].data<float>());
  }
  void Backward(const StepContext& context, std::span<const ConstTensor>,
                std::span<const ConstTensor> dout, Cache, std::span<const Tensor>) const override {
    std::ranges::copy(dout[0].as<float>(), context.gradient.begin());
  }

 private:
  const std::vector<ParamSpec> params_;
};

// Losses of PyTorch on the same logits (tools/make_loss_fixtures.py).
const TensorFile& File() {
  static const TensorFile* const file =
      new TensorFile(test::ReadTensors("text.safetensors", "losses/"));
  return *file;
}
template <class T>
std::vector<T> Read(const std::string& name) {
  const std::span<const T> values = File().tensors.at(name).as<T>();
  return {values.begin(), values.end()};
}

// A batch of one token per text.
TextBatch BatchOf(std::size_t rows) {
  TextBatch batch;
  batch.ids.assign(rows, 5);
  batch.starts.resize(rows + 1);
  std::iota(batch.starts.begin(), batch.starts.end(), 0);
  return batch;
}

// Rows [first, first + rows) of a loss, with its gradient scaled by 1 / 7: the mean of the file.
struct Made {
  TextOutcome outcome;
  std::vector<float> gradient;
};
Made Compute(ProblemType problem, const TextBatch& batch, const std::vector<float>& x) {
  const auto rows = std::int64_t(batch.starts.size()) - 1;
  const Logits module({rows, std::int64_t(x.size()) / rows});
  TextStep step(&module, 0, problem);
  Made made{.gradient = std::vector<float>(x.size())};
  const auto forward = step.Forward({x}, batch);
  EXPECT_TRUE(forward.ok()) << forward.status().ToString();
  const auto outcome = step.ForwardBackward({x}, batch, {made.gradient, 1.0f / 7});
  EXPECT_TRUE(outcome.ok()) << outcome.status().ToString();
  made.outcome = *outcome;
  EXPECT_EQ(forward->loss, outcome->loss);
  EXPECT_EQ(forward->right, outcome->right);
  return made;
}

void Expect(const std::string& name, double loss, const std::vector<float>& gradient) {
  EXPECT_NEAR(loss, Read<double>(name + "_loss")[0], 1e-6) << name;
  const auto expected = Read<double>(name + "_gradient");
  ASSERT_EQ(gradient.size(), expected.size());
  for (std::size_t i = 0; i < gradient.size(); ++i)
    EXPECT_NEAR(gradient[i], expected[i], 1e-7 * (1 + std::abs(expected[i]))) << name << " " << i;
}

TEST(TextStepTest, CrossEntropyOfFourClassesMatchesPyTorch) {
  TextBatch batch = BatchOf(7);
  batch.labels = Read<std::int32_t>("label");
  const auto x = Read<float>("x");
  const Made made = Compute(ProblemType::kSingleLabel, batch, x);
  Expect("single_label", made.outcome.loss / 7, made.gradient);
  std::int64_t right = 0;
  for (std::size_t i = 0; i < 7; ++i) {
    const auto row = std::span(x).subspan(4 * i, 4);
    right += std::ranges::max_element(row) - row.begin() == batch.labels[i];
  }
  EXPECT_EQ(made.outcome.right, right);
  EXPECT_EQ(made.outcome.rows, 7);
}

// The parts are weighted by the mean of the whole batch, so their sum is torch's weighted mean.
TEST(TextStepTest, WeightedCrossEntropyMatchesPyTorchForAnySplit) {
  const auto x = Read<float>("x");
  const auto labels = Read<std::int32_t>("label");
  const auto weights = Read<float>("weight");
  for (const std::size_t first : {0U, 1U, 3U, 6U}) {
    double loss = 0, rows = 0;
    std::vector<float> gradient;
    for (const auto& [begin, end] : {std::pair(std::size_t{0}, first), std::pair(first, 7UL)}) {
      if (begin == end) continue;
      TextBatch batch = BatchOf(end - begin);
      batch.labels.assign(labels.begin() + std::ptrdiff_t(begin),
                          labels.begin() + std::ptrdiff_t(end));
      batch.weights = RowWeights(weights, labels, batch.labels);
      const Made made =
          Compute(ProblemType::kSingleLabel, batch,
                  {x.begin() + std::ptrdiff_t(4 * begin), x.begin() + std::ptrdiff_t(4 * end)});
      loss += made.outcome.loss;
      rows += double(made.outcome.rows);
      gradient.insert(gradient.end(), made.gradient.begin(), made.gradient.end());
    }
    Expect("weighted", loss / rows, gradient);
  }
}

TEST(TextStepTest, BinaryCrossEntropyMatchesPyTorch) {
  TextBatch batch = BatchOf(7);
  batch.targets = Read<float>("target");
  const auto x = Read<float>("x");
  const Made made = Compute(ProblemType::kMultiLabel, batch, x);
  Expect("multi_label", made.outcome.loss / 7, made.gradient);
  EXPECT_EQ(made.outcome.rows, 7);
  EXPECT_EQ(made.outcome.sequences, 7);
  // Rows with all labels on the correct side of a probability of 1/2.
  std::int64_t right = 0;
  for (std::size_t i = 0; i < 7; ++i) {
    bool all = true;
    for (std::size_t j = 4 * i; j < 4 * i + 4; ++j)
      all &= (1 / (1 + std::exp(-double(x[j]))) > 0.5) == (batch.targets[j] == 1);
    right += all;
  }
  EXPECT_EQ(made.outcome.right, right);
}

TEST(TextStepTest, RefusesTargetsOfAnotherWidth) {
  TextBatch batch = BatchOf(2);
  batch.targets = {1, 0, 1};
  const Logits module({2, 2});
  TextStep step(&module, 0, ProblemType::kMultiLabel);
  const auto outcome = step.Forward({std::vector<float>(4)}, batch);
  EXPECT_EQ(outcome.status().code(), Code::kInvalidArgument);
  EXPECT_EQ(outcome.status().message(), "3 targets for 4 outputs of the model");
}

TEST(TextStepTest, SquaredErrorMatchesPyTorch) {
  TextBatch batch = BatchOf(7);
  std::vector<float> x;
  for (std::size_t i = 0; i < 7; ++i) {
    x.push_back(Read<float>("x")[4 * i]);
    const auto target = Read<float>("target");
    batch.targets.push_back(target[4 * i + 1] - 2 * target[4 * i]);
  }
  const Made made = Compute(ProblemType::kRegression, batch, x);
  // The other columns have no gradient in the file.
  std::vector<float> gradient(28);
  for (std::size_t i = 0; i < 7; ++i) gradient[4 * i] = made.gradient[i];
  Expect("regression", made.outcome.loss / 7, gradient);
  EXPECT_EQ(made.outcome.right, 0);
}

// Logits that overflow exp, and damaged ones.
TEST(TextStepTest, ExtremeLogitsHaveFiniteLossesAndDamagedOnesDoNot) {
  TextBatch batch = BatchOf(1);
  batch.targets = {1, 0, 0};
  const Made made = Compute(ProblemType::kMultiLabel, batch, {-500, 500, -500});
  EXPECT_NEAR(made.outcome.loss, 1000.0 / 3, 1e-3);
  EXPECT_NEAR(made.gradient[0], -1.0 / 21, 1e-6);
  EXPECT_NEAR(made.gradient[2], 0, 1e-6);
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (const ProblemType problem : {ProblemType::kMultiLabel, ProblemType::kRegression}) {
      TextBatch one = BatchOf(1);
      one.targets = {1};
      const Logits module({1, 1});
      TextStep step(&module, 0, problem);
      const auto outcome = step.Forward({std::vector<float>{bad}}, one);
      ASSERT_TRUE(outcome.ok());
      EXPECT_FALSE(std::isfinite(outcome->loss));
    }
  }
}

// n / (k · count), as scikit-learn's compute_class_weight("balanced").
TEST(TextStepTest, BalancedWeightsAreThoseOfScikitLearn) {
  const std::vector<std::int32_t> labels{0, 0, 0, 3, 3, 1, -1, 0};
  const auto weights = BalancedClassWeights(labels);
  const std::vector<float> expected{7 / 12.0f, 7 / 3.0f, 0, 7 / 6.0f};
  ASSERT_EQ(weights.size(), expected.size());
  for (std::size_t i = 0; i < 4; ++i) EXPECT_FLOAT_EQ(weights[i], expected[i]);
  EXPECT_TRUE(RowWeights({}, labels, labels).empty());
}

// All learners' parts of each batch: their weights have mean 1, in the ratio of the classes'.
TEST(TextStepTest, RowsOfAllLearnersHaveBalancedWeights) {
  TrainingConfig config = test::SupervisedConfig("bert");
  config.learner.class_weights = ClassWeights::kBalanced;
  config.learner.batch_size = 5;
  config.learner.micro_batch_size = 2;
  const auto loaded = LoadReviewData(config);
  ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  auto data = std::make_shared<ReviewData>(**loaded);
  std::ranges::fill(data->train.labels, 0);
  std::fill_n(data->train.labels.begin(), 3, 1);
  bool both = false;
  for (const int ranks : {1, 2, 3}) {
    for (std::uint64_t update = 0; update < 3; ++update) {
      double sum = 0, rows = 0;
      std::set<float> positive, negative;
      for (int rank = 0; rank < ranks; ++rank) {
        DistributedSampler share(config, data);
        share.SetRank(rank, ranks);
        double seconds = 0;
        const auto add = [&](const TextBatch& text, float, bool) {
          EXPECT_EQ(text.weights.size(), text.labels.size());
          for (std::size_t i = 0; i < text.weights.size(); ++i) {
            (text.labels[i] == 1 ? positive : negative).insert(text.weights[i]);
            sum += double(text.weights[i]);
          }
          rows += double(text.rows());
          return Status::Ok();
        };
        ASSERT_TRUE(share.ForEach(update, &seconds, add).ok());
      }
      EXPECT_NEAR(sum, rows, 1e-5);
      if (positive.empty() || negative.empty()) continue;
      both = true;
      ASSERT_EQ(positive.size() + negative.size(), 2u) << "equal for all learners";
      EXPECT_NEAR(*positive.begin() / *negative.begin(), 9.0 / 3, 1e-5);
    }
  }
  EXPECT_TRUE(both);
}

}  // namespace
}  // namespace troop
