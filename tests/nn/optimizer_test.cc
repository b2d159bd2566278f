#include "nn/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/base/philox.h"

namespace troop {
namespace {

constexpr std::size_t kCount = 50;

OptimizerConfig ConfigOf(OptimizerType type) {
  OptimizerConfig config;
  config.type = type;
  return config;
}

std::unique_ptr<Optimizer> Make(const OptimizerConfig& config) {
  auto made = MakeOptimizer(config, std::int64_t(kCount));
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return std::move(made).value();
}

std::vector<float> Gradient(std::uint64_t step) {
  Rng rng({step, Purpose::kTest});
  std::vector<float> g(kCount);
  for (float& x : g) x = float(rng.Normal());
  return g;
}

// Kingma & Ba, algorithm 1, from the paper's page, in f64.
TEST(OptimizerTest, AdamMatchesPaperForHundredSteps) {
  for (double weight_decay : {0.0, 0.1}) {
    OptimizerConfig config = ConfigOf(OptimizerType::kAdam);
    config.weight_decay = weight_decay;
    const auto optimizer = Make(config);
    std::vector<float> value(kCount, 1);
    std::vector<double> want(kCount, 1), m(kCount), v(kCount);
    for (int t = 1; t <= 100; ++t) {
      const std::vector<float> g = Gradient(std::uint64_t(t));
      optimizer->Step(g, 0.5f, 0.01f, value);
      for (std::size_t i = 0; i < kCount; ++i) {
        const double gi = 0.5 * double(g[i]);
        m[i] = 0.9 * m[i] + (1 - 0.9) * gi;
        v[i] = 0.999 * v[i] + (1 - 0.999) * gi * gi;
        const double m_hat = m[i] / (1 - std::pow(0.9, t));
        const double v_hat = v[i] / (1 - std::pow(0.999, t));
        want[i] -= 0.01 * weight_decay * want[i];
        want[i] -= 0.01 * m_hat / (std::sqrt(v_hat) + 1e-8);
      }
    }
    EXPECT_EQ(optimizer->steps(), 100);
    for (std::size_t i = 0; i < kCount; ++i) EXPECT_NEAR(value[i], want[i], 2e-5);
  }
}

TEST(OptimizerTest, CenteredRmsPropHasEpsilonInsideRoot) {
  OptimizerConfig config = ConfigOf(OptimizerType::kRmsProp);
  config.epsilon = 0.04;
  const auto optimizer = Make(config);
  std::vector<float> value(kCount, 0), g(kCount, 2);
  optimizer->Step(g, 1, 1, value);
  // m = 0.05 * 2, v = 0.05 * 4
  const double want = -2 / std::sqrt(0.2 - 0.01 + 0.04);
  for (float x : value) EXPECT_NEAR(x, want, 1e-6);
}

TEST(OptimizerTest, RmsPropMatchesFormulaForHundredSteps) {
  for (bool centered : {true, false}) {
    OptimizerConfig config = ConfigOf(OptimizerType::kRmsProp);
    config.centered = centered;
    config.epsilon = 1e-3;
    const auto optimizer = Make(config);
    EXPECT_EQ(optimizer->slots().size(), centered ? 2u : 1u);
    std::vector<float> value(kCount, 1);
    std::vector<double> want(kCount, 1), m(kCount), v(kCount);
    for (int t = 1; t <= 100; ++t) {
      const std::vector<float> g = Gradient(std::uint64_t(t));
      optimizer->Step(g, 1, 0.01f, value);
      for (std::size_t i = 0; i < kCount; ++i) {
        m[i] = centered ? 0.95 * m[i] + 0.05 * double(g[i]) : 0;
        v[i] = 0.95 * v[i] + 0.05 * double(g[i]) * double(g[i]);
        want[i] -= 0.01 * double(g[i]) / std::sqrt(v[i] - m[i] * m[i] + 1e-3);
      }
    }
    for (std::size_t i = 0; i < kCount; ++i) EXPECT_NEAR(value[i], want[i], 1e-4);
  }
}

// torch.optim.SGD's page: b = μ b + g, θ = θ - γ b.
TEST(OptimizerTest, SgdMatchesPyTorchFormulaForHundredSteps) {
  for (const double momentum : {0.0, 0.9}) {
    OptimizerConfig config = ConfigOf(OptimizerType::kSgd);
    config.momentum = momentum;
    const auto optimizer = Make(config);
    EXPECT_EQ(optimizer->slots().size(), momentum > 0 ? 1u : 0u);
    std::vector<float> value(kCount, 1);
    std::vector<double> want(kCount, 1), b(kCount);
    for (int t = 1; t <= 100; ++t) {
      const std::vector<float> g = Gradient(std::uint64_t(t));
      optimizer->Step(g, 0.5f, 0.01f, value);
      for (std::size_t i = 0; i < kCount; ++i) {
        b[i] = momentum * b[i] + 0.5 * double(g[i]);
        want[i] -= 0.01 * b[i];
      }
    }
    for (std::size_t i = 0; i < kCount; ++i) EXPECT_NEAR(value[i], want[i], 2e-5);
  }
}

// torch.optim.Adagrad's page, without decays: s += g², θ = θ - γ g / (sqrt(s) + ε).
TEST(OptimizerTest, AdaGradMatchesPyTorchFormulaForHundredSteps) {
  OptimizerConfig config = ConfigOf(OptimizerType::kAdaGrad);
  config.epsilon = 1e-3;
  const auto optimizer = Make(config);
  std::vector<float> value(kCount, 1);
  std::vector<double> want(kCount, 1), s(kCount);
  for (int t = 1; t <= 100; ++t) {
    const std::vector<float> g = Gradient(std::uint64_t(t));
    optimizer->Step(g, 0.5f, 0.1f, value);
    for (std::size_t i = 0; i < kCount; ++i) {
      const double gi = 0.5 * double(g[i]);
      s[i] += gi * gi;
      want[i] -= 0.1 * gi / (std::sqrt(s[i]) + 1e-3);
    }
  }
  for (std::size_t i = 0; i < kCount; ++i) EXPECT_NEAR(value[i], want[i], 2e-5);
}

TEST(OptimizerTest, RestoredSlotsAndStepsContinueBitExact) {
  for (const OptimizerType type : {OptimizerType::kAdam, OptimizerType::kRmsProp,
                                   OptimizerType::kSgd, OptimizerType::kAdaGrad}) {
    OptimizerConfig config = ConfigOf(type);
    if (config.type == OptimizerType::kSgd) config.momentum = 0.9;
    const auto first = Make(config);
    std::vector<float> value(kCount, 1);
    for (std::uint64_t t = 0; t < 10; ++t) first->Step(Gradient(t), 1, 0.01f, value);
    const auto second = Make(config);
    for (std::size_t s = 0; s < first->slots().size(); ++s) {
      EXPECT_EQ(first->slots()[s].name, second->slots()[s].name);
      std::ranges::copy(first->slots()[s].values, second->slots()[s].values.begin());
    }
    second->set_steps(first->steps());
    std::vector<float> copy = value;
    for (std::uint64_t t = 10; t < 20; ++t) {
      first->Step(Gradient(t), 1, 0.01f, value);
      second->Step(Gradient(t), 1, 0.01f, copy);
    }
    EXPECT_EQ(value, copy) << EnumName(type);
  }
}

TEST(OptimizerTest, GroupsMatchSeparateOptimizers) {
  constexpr std::size_t kFirst = kCount / 3;
  for (const OptimizerType type : {OptimizerType::kAdam, OptimizerType::kRmsProp,
                                   OptimizerType::kSgd, OptimizerType::kAdaGrad}) {
    OptimizerConfig config = ConfigOf(type);
    if (config.type == OptimizerType::kSgd) config.momentum = 0.9;
    const auto together = Make(config), slow = Make(config), fast = Make(config);
    std::vector<float> value(kCount, 1), slow_value = value, fast_value = value;
    for (std::uint64_t t = 0; t < 10; ++t) {
      const std::vector<Optimizer::Group> groups{{std::int64_t(kFirst), 0.01f},
                                                 {std::int64_t(kCount - kFirst), 0.1f}};
      together->StepGroups(Gradient(t), 0.5f, groups, value);
      slow->Step(Gradient(t), 0.5f, 0.01f, slow_value);
      fast->Step(Gradient(t), 0.5f, 0.1f, fast_value);
    }
    for (std::size_t i = 0; i < kCount; ++i) {
      EXPECT_EQ(value[i], i < kFirst ? slow_value[i] : fast_value[i]) << EnumName(type) << " " << i;
    }
    EXPECT_EQ(together->steps(), 10);
  }
}

// A group that changes at each third step, against an optimizer that steps only then.
TEST(OptimizerTest, DelayedGroupMatchesOptimizerOfItsSteps) {
  constexpr std::size_t kFirst = kCount / 2;
  for (const OptimizerType type : {OptimizerType::kAdam, OptimizerType::kRmsProp,
                                   OptimizerType::kSgd, OptimizerType::kAdaGrad}) {
    OptimizerConfig config = ConfigOf(type);
    if (config.type == OptimizerType::kSgd) config.momentum = 0.9;
    const auto together = Make(config), seldom = Make(config), always = Make(config);
    std::vector<float> value(kCount, 1), seldom_value = value, always_value = value;
    const std::vector<Optimizer::Group> groups{
        {.count = std::int64_t(kFirst), .learning_rate = 0.01f, .every = 3},
        {.count = std::int64_t(kCount - kFirst), .learning_rate = 0.01f}};
    for (std::uint64_t t = 1; t <= 10; ++t) {
      EXPECT_EQ(together->ChangesNext(3), t % 3 == 0) << t;
      together->StepGroups(Gradient(t), 1, groups, value);
      always->Step(Gradient(t), 1, 0.01f, always_value);
      if (t % 3 == 0) seldom->Step(Gradient(t), 1, 0.01f, seldom_value);
    }
    for (std::size_t i = 0; i < kCount; ++i)
      EXPECT_EQ(value[i], (i < kFirst ? seldom_value : always_value)[i]) << EnumName(type) << i;
  }
}

TEST(OptimizerTest, GradientInPartsMatchesWhole) {
  for (const OptimizerType type : {OptimizerType::kAdam, OptimizerType::kRmsProp,
                                   OptimizerType::kSgd, OptimizerType::kAdaGrad}) {
    const auto whole = Make(ConfigOf(type)), parts = Make(ConfigOf(type));
    std::vector<float> value(kCount, 1), same = value;
    for (std::uint64_t t = 0; t < 5; ++t) {
      const std::vector<float> g = Gradient(t);
      whole->Step(g, 0.5f, 0.01f, value);
      const std::span<const float> all(g);
      const std::vector<std::span<const float>> cut{all.first(3), {}, all.subspan(3)};
      const std::vector<Optimizer::Group> groups{{1, 0.01f}, {5, 0.01f}, {kCount - 6, 0.01f}};
      parts->StepParts(cut, 0.5f, groups, same);
    }
    EXPECT_EQ(value, same) << EnumName(type);
    EXPECT_EQ(parts->steps(), 5);
  }
}

// A gradient of 0: what is left is the decay, of the first half alone.
TEST(OptimizerTest, WeightDecaySkipsUndecayedGroups) {
  OptimizerConfig config = ConfigOf(OptimizerType::kAdam);
  config.weight_decay = 0.5;
  const auto optimizer = Make(config);
  std::vector<float> value(kCount, 1), zero(kCount, 0);
  const std::vector<Optimizer::Group> groups{{kCount / 2, 0.1f},
                                             {kCount - kCount / 2, 0.1f, false}};
  optimizer->StepGroups(zero, 1, groups, value);
  for (std::size_t i = 0; i < kCount; ++i) EXPECT_EQ(value[i], i < kCount / 2 ? 0.95f : 1) << i;
}

TEST(OptimizerTest, ElementWithoutGradientStaysZero) {
  for (const OptimizerType type : {OptimizerType::kAdam, OptimizerType::kRmsProp,
                                   OptimizerType::kSgd, OptimizerType::kAdaGrad}) {
    const auto optimizer = Make(ConfigOf(type));
    std::vector<float> value(kCount, 0), g(kCount, 0);
    for (int t = 0; t < 5; ++t) optimizer->Step(g, 1, 0.1f, value);
    for (float x : value) EXPECT_EQ(x, 0);
  }
}

}  // namespace
}  // namespace troop
