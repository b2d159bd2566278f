#include "learners/rollback.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "learners/checkpoint.h"
#include "nn/models/model.h"

namespace troop {
namespace {

TEST(RollbackRuleTest, RollsBackAfterHundredConsecutiveSkips) {
  RollbackRule rule;
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < RollbackRule::kSkippedMax - 1; ++i) EXPECT_FALSE(rule.CountSkipped());
    rule.CountGood();
  }
  for (int i = 0; i < RollbackRule::kSkippedMax - 1; ++i) EXPECT_FALSE(rule.CountSkipped());
  EXPECT_TRUE(rule.CountSkipped());
  EXPECT_TRUE(rule.GoBack());
  EXPECT_FALSE(rule.CountSkipped());  // the count restarts
}

TEST(RollbackRuleTest, GivesUpAfterThreeFutileRollbacks) {
  RollbackRule rule;
  for (int i = 0; i < RollbackRule::kRollbacksMax; ++i) {
    for (int k = 0; k < RollbackRule::kGoodMin - 1; ++k) rule.CountGood();
    EXPECT_TRUE(rule.GoBack());
  }
  EXPECT_FALSE(rule.GoBack());
}

TEST(RollbackRuleTest, ResetsCountAfterThousandGoodUpdates) {
  RollbackRule rule;
  for (int round = 0; round < 10; ++round) {
    for (int k = 0; k < RollbackRule::kGoodMin; ++k) rule.CountGood();
    for (int i = 0; i < RollbackRule::kRollbacksMax; ++i) EXPECT_TRUE(rule.GoBack());
  }
}

class RollBackTest : public testing::Test {
 protected:
  RollBackTest() {
    env_.id = "test";
    env_.observation = {DType::kF32, {3}};
    env_.action.count = 2;
    LayerConfig layer;
    layer.type = LayerType::kLinear;
    layer.units = 8;
    config_.network.layers = {layer};
    algorithm_ = std::move(*MakeAlgorithm(config_, env_));
    start_ = algorithm_->State();
  }
  // The state that all elements of the value and of the target are `number` of, at that update.
  TensorFile Filled(float number, int updates) const {
    TensorFile state = start_;
    for (const char* name : {"value", "target"}) {
      Tensor filled(DType::kF32, start_.tensors.at(name).shape());
      std::ranges::fill(filled.as<float>(), number);
      state.tensors[name] = filled;
    }
    state.metadata["updates"] = std::to_string(updates);
    return state;
  }
  void Write(float number, int updates) {
    const auto module = MakeNetwork(ModelSetupOf(config_), env_);
    const auto path =
        WriteCheckpoint(run_.get(), **module,
                        {.updates = std::uint64_t(updates), .state = Filled(number, updates)}, 10);
    ASSERT_TRUE(path.ok()) << path.status().ToString();
  }

  EnvSpec env_;
  TrainingConfig config_;
  std::unique_ptr<Algorithm> algorithm_;
  TensorFile start_;
  std::unique_ptr<Storage> run_ = MakeMemoryStorage();
};

TEST_F(RollBackTest, ReturnsToNewestFiniteCheckpoint) {
  Write(2, 10);
  Write(3, 20);
  Write(std::numeric_limits<float>::quiet_NaN(), 30);
  ASSERT_TRUE(algorithm_->SetState(Filled(9, 40)).ok());
  const auto to = RollBack(algorithm_.get(), run_.get(), config_, env_);
  ASSERT_TRUE(to.ok()) << to.status().ToString();
  EXPECT_EQ(*to, "checkpoints/000000000020, of update 20");
  EXPECT_TRUE(std::ranges::all_of(algorithm_->value(), [](float x) { return x == 3; }));
  EXPECT_EQ(algorithm_->updates(), 41u);
}

TEST_F(RollBackTest, ReturnsToInitialWeightsWithoutCheckpoint) {
  ASSERT_TRUE(algorithm_->SetState(Filled(9, 40)).ok());
  const auto to = RollBack(algorithm_.get(), run_.get(), config_, env_);
  ASSERT_TRUE(to.ok()) << to.status().ToString();
  EXPECT_EQ(*to, "the weights of a new run");
  EXPECT_TRUE(std::ranges::equal(algorithm_->value(), start_.tensors.at("value").as<float>()));
  EXPECT_EQ(algorithm_->updates(), 41u);
}

}  // namespace
}  // namespace troop
