#include "nn/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/base/philox.h"

namespace troop {
namespace {

constexpr std::size_t kCount = 50;

// Those that step with gradients of random batches: all but L-BFGS, the last one.
constexpr OptimizerType kTypes[] = {OptimizerType::kAdam, OptimizerType::kRmsProp,
                                    OptimizerType::kSgd, OptimizerType::kAdaGrad,
                                    OptimizerType::kRAdam};
static_assert(std::size(kTypes) + 1 == EnumNames(OptimizerType()).size());

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

std::vector<float> Gradient(std::uint64_t step, std::size_t count = kCount) {
  Rng rng({step, Purpose::kTest});
  std::vector<float> g(count);
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

// torch.optim.SGD's page: g = g + λ θ, b = μ b + g, θ = θ - γ b.
TEST(OptimizerTest, SgdMatchesPyTorchFormulaForHundredSteps) {
  for (const auto& [momentum, decay] : {std::pair{0.0, 0.0}, {0.9, 0.0}, {0.0, 0.1}, {0.9, 0.1}}) {
    OptimizerConfig config = ConfigOf(OptimizerType::kSgd);
    config.momentum = momentum;
    config.weight_decay = decay;
    const auto optimizer = Make(config);
    EXPECT_EQ(optimizer->slots().size(), momentum > 0 ? 1u : 0u);
    std::vector<float> value(kCount, 1);
    std::vector<double> want(kCount, 1), b(kCount);
    for (int t = 1; t <= 100; ++t) {
      const std::vector<float> g = Gradient(std::uint64_t(t));
      optimizer->Step(g, 0.5f, 0.01f, value);
      for (std::size_t i = 0; i < kCount; ++i) {
        b[i] = momentum * b[i] + 0.5 * double(g[i]) + decay * want[i];
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

// Liu et al. 2020, algorithm 2, in f64: its l_t and r_t, a divisor with Adam's ε, and the threshold
// of PyTorch. With β2 = 0.8, the lengths stay below 9.
TEST(OptimizerTest, RAdamMatchesPaperAcrossItsThreshold) {
  for (const double beta2 : {0.999, 0.8}) {
    for (const double weight_decay : {0.0, 0.1}) {
      for (const std::size_t count : {1, 7, 33, 101}) {
        OptimizerConfig config = ConfigOf(OptimizerType::kRAdam);
        config.beta2 = beta2, config.weight_decay = weight_decay, config.epsilon = 1e-3;
        const auto optimizer = *MakeOptimizer(config, std::int64_t(count));
        std::vector<float> value(count, 1);
        std::vector<double> want(count, 1), m(count), v(count);
        const double limit = 2 / (1 - beta2) - 1;
        int divided = 0;
        for (int t = 1; t <= 40; ++t) {
          const std::vector<float> g = Gradient(std::uint64_t(t), count);
          optimizer->Step(g, 0.5f, 0.1f, value);
          const double power = std::pow(beta2, t), length = limit - 2 * t * power / (1 - power);
          divided += length > 5;
          for (std::size_t i = 0; i < count; ++i) {
            const double gi = 0.5 * double(g[i]);
            v[i] = beta2 * v[i] + (1 - beta2) * gi * gi;
            m[i] = 0.9 * m[i] + (1 - 0.9) * gi;
            want[i] *= 1 - 0.1 * weight_decay;
            double step = 0.1 * m[i] / (1 - std::pow(0.9, t));
            if (length > 5) {
              step *= std::sqrt((length - 4) / (limit - 4) * (length - 2) / (limit - 2) * limit /
                                length);
              step /= std::sqrt(v[i] / (1 - power)) + 1e-3;
            }
            want[i] -= step;
            ASSERT_NEAR(value[i], want[i], 2e-5) << beta2 << " " << t << " " << i;
          }
        }
        EXPECT_EQ(divided, beta2 == 0.999 ? 35 : 34);
      }
    }
  }
}

// torch.optim.RAdam of PyTorch 1.13.1 in f64 (lr = 1/4, p *= 1 - lr · weight decay before each
// step): 7 parameters after steps 5, 6 and 20.
TEST(OptimizerTest, RAdamGivesTheValuesOfPyTorch) {
  struct Fixture {
    double weight_decay;
    int step;
    double want[7];
  };
  const Fixture fixtures[] = {
      {0,
       5,
       {0.093822817, 0.466458711, 0.114181653, 0.416064935, 0.515697817, 0.888333711, 1.105762060}},
      {0,
       6,
       {0.094924567, 0.468380869, 0.114971798, 0.413597670, 0.515298788, 0.888978879, 1.107942353}},
      {0,
       20,
       {0.083648678, 0.476641701, 0.111107536, 0.419456260, 0.506435418, 0.890040000, 1.109862347}},
      {0.25,
       5,
       {0.064589574, 0.366053589, 0.054535740, 0.290074581, 0.357736900, 0.659200914, 0.821671276}},
      {0.25,
       6,
       {0.061654475, 0.345097397, 0.051917401, 0.269477654, 0.334979314, 0.618646024, 0.772497115}},
      {0.25,
       20,
       {0.018606308, 0.143192674, 0.015728956, 0.113826291, 0.132597584, 0.253231739,
        0.313830979}}};
  for (const Fixture& fixture : fixtures) {
    OptimizerConfig config = ConfigOf(OptimizerType::kRAdam);
    config.weight_decay = fixture.weight_decay;
    const auto optimizer = *MakeOptimizer(config, 7);
    std::vector<float> value(7), g(7);
    for (int i = 0; i < 7; ++i) value[std::size_t(i)] = float(i + 1) / 8;
    for (int t = 1; t <= fixture.step; ++t) {
      for (int i = 0; i < 7; ++i) g[std::size_t(i)] = float((7 * t + 13 * i) % 17 - 8) / 16;
      optimizer->Step(g, 1, 0.25f, value);
    }
    for (std::size_t i = 0; i < 7; ++i) EXPECT_NEAR(value[i], fixture.want[i], 1e-6) << i;
  }
}

// The factors of a step follow from the restored step count alone.
TEST(OptimizerTest, RAdamRestoredAtAnyStepContinuesBitExact) {
  for (std::uint64_t at = 1; at <= 10; ++at) {
    const auto first = Make(ConfigOf(OptimizerType::kRAdam));
    std::vector<float> value(kCount, 1);
    for (std::uint64_t t = 0; t < at; ++t) first->Step(Gradient(t), 1, 0.01f, value);
    const auto second = Make(ConfigOf(OptimizerType::kRAdam));
    ASSERT_EQ(first->slots().size(), 2u);
    for (std::size_t s = 0; s < 2; ++s)
      std::ranges::copy(first->slots()[s].values, second->slots()[s].values.begin());
    second->set_steps(first->steps());
    std::vector<float> copy = value;
    for (std::uint64_t t = at; t < 12; ++t) {
      first->Step(Gradient(t), 1, 0.01f, value);
      second->Step(Gradient(t), 1, 0.01f, copy);
      EXPECT_EQ(value, copy) << at << " " << t;
    }
  }
}

TEST(OptimizerTest, RestoredSlotsAndStepsContinueBitExact) {
  for (const OptimizerType type : kTypes) {
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
  for (const OptimizerType type : kTypes) {
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
  for (const OptimizerType type : kTypes) {
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
  for (const OptimizerType type : kTypes) {
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
  for (const OptimizerType type : {OptimizerType::kAdam, OptimizerType::kSgd}) {
    OptimizerConfig config = ConfigOf(type);
    config.weight_decay = 0.5;
    const auto optimizer = Make(config);
    std::vector<float> value(kCount, 1), zero(kCount, 0);
    const std::vector<Optimizer::Group> groups{{kCount / 2, 0.1f},
                                               {kCount - kCount / 2, 0.1f, false}};
    optimizer->StepGroups(zero, 1, groups, value);
    for (std::size_t i = 0; i < kCount; ++i) EXPECT_EQ(value[i], i < kCount / 2 ? 0.95f : 1) << i;
  }
}

TEST(OptimizerTest, ElementWithoutGradientStaysZero) {
  for (const OptimizerType type : kTypes) {
    const auto optimizer = Make(ConfigOf(type));
    std::vector<float> value(kCount, 0), g(kCount, 0);
    for (int t = 0; t < 5; ++t) optimizer->Step(g, 1, 0.1f, value);
    for (float x : value) EXPECT_EQ(x, 0);
  }
}

}  // namespace
}  // namespace troop
