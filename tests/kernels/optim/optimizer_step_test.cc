#include "kernels/optim/optimizer_step.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/base/philox.h"

namespace troop {
namespace {

using Floats = std::vector<float>;

Floats Random(std::size_t n, std::uint64_t seed, double low, double high) {
  Rng rng({seed, Purpose::kTest});
  Floats x(n);
  for (float& v : x) v = float(rng.Uniform(low, high));
  return x;
}

// NaN-proof: the same bytes.
bool SameBits(const Floats& a, const Floats& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

struct State {
  Floats gradient, m, v, value;
};
State RandomState(std::size_t n) {
  return {Random(n, 1, -3, 3), Random(n, 2, -1, 1), Random(n, 3, 1, 4), Random(n, 4, -1, 1)};
}

AdamStep SomeAdamStep() {
  AdamStep step;
  step.gradient_scale = 0.37f;
  step.step_size = 0.011f;
  step.root_scale = 1.7f;
  step.epsilon = 1e-5f;
  step.decay_factor = 0.999f;
  return step;
}
RmsPropStep SomeRmsPropStep() {
  RmsPropStep step;
  step.gradient_scale = 0.37f;
  step.learning_rate = 0.011f;
  step.epsilon = 1.5e-7f;
  step.decay_factor = 0.999f;
  return step;
}

// RAdam's step before it divides: m alone.
AdamStep MomentumStep() {
  AdamStep step = SomeAdamStep();
  step.root_scale = 0, step.epsilon = 1;
  return step;
}

TEST(OptimizerKernelsTest, LevelsMatchBitwiseForEveryLength) {
  for (std::size_t n = 0; n < 70; ++n) {
    std::vector<State> adam, undivided, centered, plain, momentum, sgd, adagrad, added;
    std::vector<double> sums;
    for (CpuLevel level : SupportedCpuLevels()) {
      const OptimizerKernels& k = OptimizerKernelsFor(level);
      const auto length = std::int64_t(n);
      State s = RandomState(n);
      sums.push_back(k.sum_squares(length, s.gradient.data()));
      k.adam(SomeAdamStep(), length, s.gradient.data(), s.m.data(), s.v.data(), s.value.data());
      adam.push_back(s);
      s = RandomState(n);
      k.adam(MomentumStep(), length, s.gradient.data(), s.m.data(), s.v.data(), s.value.data());
      undivided.push_back(s);
      s = RandomState(n);
      k.rmsprop(SomeRmsPropStep(), length, s.gradient.data(), s.m.data(), s.v.data(),
                s.value.data());
      centered.push_back(s);
      s = RandomState(n);
      k.rmsprop(SomeRmsPropStep(), length, s.gradient.data(), nullptr, s.v.data(), s.value.data());
      plain.push_back(s);
      s = RandomState(n);
      k.sgd({0.37f, 0.9f, 0.011f, 0.3f}, length, s.gradient.data(), s.m.data(), s.value.data());
      momentum.push_back(s);
      s = RandomState(n);
      k.sgd({0.37f, 0, 0.011f, 0.3f}, length, s.gradient.data(), nullptr, s.value.data());
      sgd.push_back(s);
      s = RandomState(n);
      k.adagrad({0.37f, 0.011f, 1e-5f}, length, s.gradient.data(), s.v.data(), s.value.data());
      adagrad.push_back(s);
      s = RandomState(n);
      k.add_scaled(length, 0.37f, s.gradient.data(), s.value.data());
      added.push_back(s);
    }
    for (const auto& states : {adam, undivided, centered, plain, momentum, sgd, adagrad, added}) {
      for (const State& s : states) {
        ASSERT_TRUE(SameBits(s.value, states[0].value)) << n;
        ASSERT_TRUE(SameBits(s.m, states[0].m)) << n;
        ASSERT_TRUE(SameBits(s.v, states[0].v)) << n;
      }
    }
    for (double sum : sums) ASSERT_EQ(sum, sums[0]) << n;
  }
}

TEST(OptimizerKernelsTest, NeverWritesOutsideArrays) {
  for (CpuLevel level : SupportedCpuLevels()) {
    for (std::int64_t n : {1, 7, 17, 33}) {
      State s = RandomState(64);
      const State before = s;
      OptimizerKernelsFor(level).adam(SomeAdamStep(), n, s.gradient.data() + 5, s.m.data() + 5,
                                      s.v.data() + 5, s.value.data() + 5);
      for (std::size_t i = 0; i < 64; ++i) {
        const bool inside = i >= 5 && i < 5 + std::size_t(n);
        EXPECT_EQ(s.value[i] != before.value[i], inside) << i;
        EXPECT_EQ(s.v[i] != before.v[i], inside) << i;
      }
    }
  }
}

// f32 against f64: a handful of roundings of 6e-8 each in every result.
TEST(OptimizerKernelsTest, AdamMatchesF64Formula) {
  const State before = RandomState(37);
  State s = before;
  const AdamStep step = SomeAdamStep();
  OptimizerKernelsFor(BestCpuLevel())
      .adam(step, 37, s.gradient.data(), s.m.data(), s.v.data(), s.value.data());
  for (std::size_t i = 0; i < 37; ++i) {
    const double g = double(before.gradient[i]) * step.gradient_scale;
    const double m = 0.9 * before.m[i] + 0.1 * g;
    const double v = 0.999 * before.v[i] + 0.001 * g * g;
    const double value = double(before.value[i]) * step.decay_factor -
                         step.step_size * m / (std::sqrt(v) * step.root_scale + step.epsilon);
    EXPECT_NEAR(s.m[i], m, 5e-7);
    EXPECT_NEAR(s.v[i], v, 2e-6);
    EXPECT_NEAR(s.value[i], value, 5e-7);
  }
}

// The divisor is exactly 1, whatever v is; v is tracked nevertheless.
TEST(OptimizerKernelsTest, AdamStepWithoutDivisorMovesByTheMeanExactly) {
  const AdamStep step = MomentumStep();
  for (const CpuLevel level : SupportedCpuLevels()) {
    for (const std::size_t n : {1, 7, 33}) {
      State s = RandomState(n), divided = s;
      s.v[0] = divided.v[0] = 3e38f;
      const Floats before = s.value;
      const OptimizerKernels& k = OptimizerKernelsFor(level);
      k.adam(step, std::int64_t(n), s.gradient.data(), s.m.data(), s.v.data(), s.value.data());
      k.adam(SomeAdamStep(), std::int64_t(n), divided.gradient.data(), divided.m.data(),
             divided.v.data(), divided.value.data());
      for (std::size_t i = 0; i < n; ++i) {
        const float kept = step.decay_factor * before[i], change = step.step_size * s.m[i];
        EXPECT_EQ(s.value[i], kept - change) << i;
      }
      EXPECT_TRUE(SameBits(s.m, divided.m) && SameBits(s.v, divided.v)) << n;
    }
  }
}

TEST(AdamFactorsTest, AdamCorrectsTheBiasOfBothMoments) {
  for (int t = 1; t <= 30; ++t) {
    AdamStep step;
    SetAdamFactors({.beta1 = 0.8, .beta2 = 0.99, .epsilon = 0.02}, t, 0.25, &step);
    // By sums of the weights of the gradients: 1 - β^t = (1 - β) Σ β^i.
    double mean = 0, square = 0;
    for (int i = 0; i < t; ++i) {
      mean = 0.8 * mean + (1 - 0.8);
      square = 0.99 * square + (1 - 0.99);
    }
    EXPECT_NEAR(step.step_size, 0.25 / mean, 1e-6);
    EXPECT_NEAR(step.root_scale, 1 / std::sqrt(square), 1e-5);
    EXPECT_EQ(step.epsilon, 0.02f);
  }
}

// The length of an average with exponential weights w_i is that of a plain average with the same
// mean age of its terms (Liu et al. 2020, sec. 4.1): Σ w_i (t + 1 - i) = (length + 1) / 2.
TEST(AdamFactorsTest, RAdamDividesFromTheSixthStep) {
  for (const double beta2 : {0.9, 0.99, 0.999, 0.99999}) {
    const AdamSettings plain{.beta2 = beta2}, rectified{.beta2 = beta2, .rectified = true};
    for (int t = 1; t <= 3000; ++t) {
      AdamStep adam, step;
      SetAdamFactors(plain, t, 0.25, &adam);
      SetAdamFactors(rectified, t, 0.25, &step);
      double weights = 0, ages = 0;
      for (int age = 1; age <= t; ++age) {
        weights += std::pow(beta2, age - 1);
        ages += age * std::pow(beta2, age - 1);
      }
      const double length = 2 * ages / weights - 1, limit = 2 / (1 - beta2) - 1;
      // The variance of the factor of a step with that many squared gradients (sec. 3.2), to first
      // order 1 / (2 (length - 2) (length - 4) / length), relative to its limit.
      const auto variance = [](double rho) { return rho / (2 * (rho - 2) * (rho - 4)); };
      if (beta2 >= 0.99) {
        EXPECT_EQ(length > 5, t >= 6) << beta2 << " " << t;
      }
      if (length > 5) {
        const double size = std::sqrt(variance(limit) / variance(length));
        EXPECT_NEAR(step.step_size / (size * double(adam.step_size)), 1, 1e-5) << beta2 << " " << t;
        EXPECT_EQ(step.root_scale, adam.root_scale);
        EXPECT_EQ(step.epsilon, adam.epsilon);
      } else {
        EXPECT_EQ(step.step_size, adam.step_size) << beta2 << " " << t;
        EXPECT_EQ(step.root_scale, 0);
        EXPECT_EQ(step.epsilon, 1);
      }
      if (t > 40) t += 97;
    }
  }
}

// Lengths of at most 5 at all steps: nothing is divided, and nothing is NaN.
TEST(AdamFactorsTest, RAdamWithSmallBeta2NeverDivides) {
  for (const double beta2 : {0.0, 0.3, 0.5, 0.6, 2.0 / 3}) {
    for (int t = 1; t <= 100; ++t) {
      AdamStep step;
      SetAdamFactors({.beta1 = 0, .beta2 = beta2, .rectified = true}, t, 0.25, &step);
      EXPECT_EQ(step.step_size, 0.25f) << beta2 << " " << t;
      EXPECT_EQ(step.root_scale, 0);
    }
  }
}

TEST(OptimizerKernelsTest, RmsPropMatchesF64Formula) {
  const State before = RandomState(37);
  const RmsPropStep step = SomeRmsPropStep();
  for (bool centered : {true, false}) {
    State s = before;
    OptimizerKernelsFor(BestCpuLevel())
        .rmsprop(step, 37, s.gradient.data(), centered ? s.m.data() : nullptr, s.v.data(),
                 s.value.data());
    for (std::size_t i = 0; i < 37; ++i) {
      const double g = double(before.gradient[i]) * step.gradient_scale;
      const double m = centered ? 0.95 * before.m[i] + 0.05 * g : 0;
      const double v = 0.95 * before.v[i] + 0.05 * g * g;
      const double value = double(before.value[i]) * step.decay_factor -
                           step.learning_rate * g / std::sqrt(v - m * m + step.epsilon);
      if (centered) {
        EXPECT_NEAR(s.m[i], m, 5e-7);
      }
      EXPECT_NEAR(s.v[i], v, 2e-6);
      // v >= 0.95 and |m| < 1.1: where v - m² is small, its rounding error counts for more.
      if (v - m * m > 0.1) {
        EXPECT_NEAR(s.value[i], value, 2e-6);
      }
    }
  }
}

TEST(OptimizerKernelsTest, SgdAdaGradAndSumsMatchF64Formulas) {
  const State before = RandomState(37);
  State with = before, without = before, decayed = before, adagrad = before, sum = before,
        plain_sum = before;
  const OptimizerKernels& k = OptimizerKernelsFor(BestCpuLevel());
  k.sgd({0.37f, 0.9f, 0.011f}, 37, with.gradient.data(), with.m.data(), with.value.data());
  k.sgd({0.37f, 0.9f, 0.011f}, 37, without.gradient.data(), nullptr, without.value.data());
  k.sgd({0.37f, 0.9f, 0.011f, 0.3f}, 37, decayed.gradient.data(), decayed.m.data(),
        decayed.value.data());
  k.adagrad({0.37f, 0.011f, 1e-5f}, 37, adagrad.gradient.data(), adagrad.v.data(),
            adagrad.value.data());
  k.add_scaled(37, 0.37f, sum.gradient.data(), sum.value.data());
  k.add_scaled(37, 1, plain_sum.gradient.data(), plain_sum.value.data());
  for (std::size_t i = 0; i < 37; ++i) {
    const double g = double(before.gradient[i]) * 0.37f;
    const double value = double(before.value[i]);
    const double m = 0.9 * before.m[i] + g;
    EXPECT_NEAR(with.m[i], m, 5e-7);
    EXPECT_NEAR(with.value[i], value - 0.011 * m, 5e-7);
    EXPECT_NEAR(without.value[i], value - 0.011 * g, 5e-7);
    EXPECT_EQ(without.m[i], before.m[i]);
    EXPECT_NEAR(decayed.m[i], m + 0.3 * value, 5e-7);
    EXPECT_NEAR(decayed.value[i], value - 0.011 * (m + 0.3 * value), 5e-7);
    const double v = double(before.v[i]) + g * g;
    EXPECT_NEAR(adagrad.v[i], v, 2e-6);
    EXPECT_NEAR(adagrad.value[i], value - 0.011 * g / (std::sqrt(v) + 1e-5), 5e-7);
    EXPECT_NEAR(sum.value[i], value + g, 5e-7);
    EXPECT_EQ(plain_sum.value[i], before.value[i] + before.gradient[i]);
  }
}

// A constant gradient: v - m² is 0 but for rounding, which must not become the root of a negative.
TEST(OptimizerKernelsTest, CenteredRmsPropStaysFiniteWithConstantGradient) {
  for (CpuLevel level : SupportedCpuLevels()) {
    Floats gradient(21, 0.7f), m(21), v(21), value(21);
    RmsPropStep step = SomeRmsPropStep();
    step.epsilon = 1e-12f;
    for (int i = 0; i < 500; ++i) {
      OptimizerKernelsFor(level).rmsprop(step, 21, gradient.data(), m.data(), v.data(),
                                         value.data());
    }
    for (float x : value) EXPECT_TRUE(std::isfinite(x));
  }
}

TEST(OptimizerKernelsTest, SumOfSquaresIsExactInF64AndReportsNonFinite) {
  for (CpuLevel level : SupportedCpuLevels()) {
    const auto sum = [&](const Floats& x) {
      return OptimizerKernelsFor(level).sum_squares(std::int64_t(x.size()), x.data());
    };
    Floats integers(1001);
    double want = 0;
    for (std::size_t i = 0; i < integers.size(); ++i) {
      integers[i] = float(i);
      want += double(i) * double(i);
    }
    EXPECT_EQ(sum(integers), want);
    EXPECT_EQ(sum({}), 0);
    EXPECT_EQ(sum({3e30f, 4e30f}), double(3e30f) * double(3e30f) + double(4e30f) * double(4e30f));
    for (float bad :
         {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      for (std::size_t at : {std::size_t(0), std::size_t(500), std::size_t(1000)}) {
        Floats x = integers;
        x[at] = bad;
        EXPECT_FALSE(std::isfinite(sum(x)));
      }
    }
  }
}

}  // namespace
}  // namespace troop
