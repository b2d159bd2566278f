// Logits of linear models, by the definitions of their probabilities.
#include "nn/sparse/linear_outputs.h"

#include <gmock/gmock.h>

#include <cmath>

namespace troop {
namespace {

using testing::ElementsAre;

// The probabilities are σ(z) of two classes, and σ(z) over their sum of more.
TEST(LinearOutputsTest, SoftmaxOfLogitsGivesTheProbabilities) {
  const auto sigmoid = [](double z) { return 1 / (1 + std::exp(-z)); };
  std::vector<float> logits;
  const double two[] = {0.7}, three[] = {2, -1, 0.5}, large[] = {1e4};
  AppendLinearLogits(ProblemType::kSingleLabel, two, &logits);
  ASSERT_EQ(logits.size(), 2u);
  EXPECT_NEAR(std::exp(logits[1]) / (std::exp(logits[0]) + std::exp(logits[1])), sigmoid(0.7),
              1e-6);
  logits.clear();
  AppendLinearLogits(ProblemType::kSingleLabel, three, &logits);
  const double sum = sigmoid(2) + sigmoid(-1) + sigmoid(0.5);
  double all = 0;
  for (const float logit : logits) all += std::exp(double(logit));
  for (std::size_t k = 0; k < 3; ++k)
    EXPECT_NEAR(std::exp(double(logits[k])) / all, sigmoid(three[k]) / sum, 1e-6) << k;
  // Other kinds have no softmax.
  logits.clear();
  AppendLinearLogits(ProblemType::kMultiLabel, three, &logits);
  AppendLinearLogits(ProblemType::kRegression, two, &logits);
  EXPECT_THAT(logits, ElementsAre(2, -1, 0.5f, 0.7f));
  logits.clear();
  AppendLinearLogits(ProblemType::kSingleLabel, large, &logits);
  EXPECT_THAT(logits, ElementsAre(-1e4f, 0));
}

// Classes by the largest output, labels by their signs.
TEST(LinearOutputsTest, PredictionsAreThoseOfTheOutputs) {
  const auto right = [](ProblemType problem, std::vector<double> outputs,
                        std::vector<float> targets) {
    return IsLinearRight(problem, outputs, targets);
  };
  EXPECT_TRUE(right(ProblemType::kSingleLabel, {0.1}, {1}));
  EXPECT_TRUE(right(ProblemType::kSingleLabel, {0}, {-1}));
  EXPECT_FALSE(right(ProblemType::kSingleLabel, {-0.1}, {1}));
  EXPECT_TRUE(right(ProblemType::kSingleLabel, {-3, -1, -2}, {-1, 1, -1}));
  EXPECT_FALSE(right(ProblemType::kSingleLabel, {3, 4, 1}, {1, -1, -1}));
  EXPECT_TRUE(right(ProblemType::kMultiLabel, {3, 4, -1}, {1, 1, -1}));
  EXPECT_FALSE(right(ProblemType::kMultiLabel, {3, 4, -1}, {1, -1, -1}));
  EXPECT_FALSE(right(ProblemType::kRegression, {2}, {2}));
}

}  // namespace
}  // namespace troop
