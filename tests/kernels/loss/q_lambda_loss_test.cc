#include "kernels/loss/q_lambda_loss.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "core/base/philox.h"
#include "kernels/loss/lambda_return.h"

namespace troop {
namespace {

constexpr std::int64_t kActions = 3, kSteps = 6;

struct Batch {
  std::vector<float> q, reward, discount, weight;
  std::vector<std::int32_t> action, length;
  QLambdaLossInput input;
};

// Unrolls of 1 to kSteps steps; every third one ends with a termination.
Batch RandomBatch(std::int64_t unrolls, std::uint64_t seed) {
  Rng rng({seed, Purpose::kTest});
  Batch b;
  for (std::int64_t i = 0; i < unrolls; ++i) {
    b.length.push_back(std::int32_t(1 + rng.Below(kSteps)));
    b.weight.push_back(float(rng.Uniform(0.1, 1)));
    for (std::int64_t k = 0; k < (b.length.back() + 1) * kActions; ++k)
      b.q.push_back(float(rng.Normal()));
    for (std::int32_t t = 0; t < kSteps; ++t) {
      const bool real = t < b.length.back();
      // Past the end an action may be anything.
      b.action.push_back(real ? std::int32_t(rng.Below(kActions)) : 1000);
      b.reward.push_back(real ? float(2 * rng.Normal()) : 0);
      b.discount.push_back(i % 3 == 0 && t + 1 == b.length.back() ? 0 : 1);
    }
  }
  b.input = {.batch = unrolls,
             .actions = kActions,
             .steps = kSteps,
             .q = b.q.data(),
             .action = b.action.data(),
             .reward = b.reward.data(),
             .discount = b.discount.data(),
             .length = b.length.data(),
             .weight = b.weight.data(),
             .gamma = 0.9,
             .lambda = 0.7,
             .huber = false};
  return b;
}

struct Outcome {
  DqnLossSummary summary;
  std::vector<float> dq, priority;
};
Outcome Evaluate(const QLambdaLossInput& in) {
  Outcome r;
  const std::int64_t frames = std::accumulate(in.length, in.length + in.batch, in.batch);
  r.dq.assign(std::size_t(frames * in.actions), -7);
  r.priority.assign(std::size_t(in.batch), -7);
  r.summary = QLambdaLoss(in, {r.dq.data(), r.priority.data()});
  return r;
}

// Sutton and Barto's definition instead of the recursion: the mixture of all n-step returns of step
// t, where the last one has the remaining weight.
double MixtureOfReturns(const UnrollSteps& in, double lambda, std::int32_t t) {
  double mixture = 0, weight = 1;
  for (std::int32_t last = t; last < in.length; ++last) {
    double value = 0, factor = 1;
    for (std::int32_t k = t; k <= last; ++k) {
      const double r = double(in.reward[k]), clip = in.reward_clip;
      value += factor * (clip > 0 ? std::min(std::max(r, -clip), clip) : r);
      factor *= in.gamma * double(in.discount[k]);
    }
    value += factor * in.value[last];
    // Nothing follows a termination.
    const bool end = last + 1 == in.length || in.discount[last] == 0;
    mixture += (end ? weight : weight * (1 - lambda)) * value;
    weight *= lambda;
    if (end) break;
  }
  return mixture;
}

TEST(LambdaReturnTest, EqualsMixtureOfNStepReturns) {
  Rng rng({3, Purpose::kTest});
  for (int repeat = 0; repeat < 200; ++repeat) {
    const auto length = std::int32_t(1 + rng.Below(9));
    std::vector<float> reward, discount;
    std::vector<double> value, result(std::size_t(length), -7);
    for (std::int32_t t = 0; t < length; ++t) {
      reward.push_back(float(3 * rng.Normal()));
      value.push_back(rng.Normal());
      discount.push_back(t + 1 == length && repeat % 2 == 0 ? 0 : 1);
    }
    const UnrollSteps in{.length = length,
                         .reward = reward.data(),
                         .discount = discount.data(),
                         .value = value.data(),
                         .gamma = 0.95,
                         .reward_clip = repeat % 3 == 0 ? 1.0 : 0.0};
    for (const double lambda : {0.0, 0.65, 1.0}) {
      LambdaReturns(in, lambda, result.data());
      for (std::int32_t t = 0; t < length; ++t)
        EXPECT_NEAR(result[std::size_t(t)], MixtureOfReturns(in, lambda, t), 1e-12);
    }
  }
}

// λ = 0 is a one-step target; λ = 1 is the n-step return of the whole unroll.
TEST(LambdaReturnTest, LimitsAreOneStepAndWholeUnroll) {
  const float reward[] = {1, 2, 4}, discount[] = {1, 1, 1};
  const double value[] = {10, 20, 40};
  const UnrollSteps in{
      .length = 3, .reward = reward, .discount = discount, .value = value, .gamma = 0.5};
  double result[3];
  LambdaReturns(in, 0, result);
  EXPECT_DOUBLE_EQ(result[0], 1 + 0.5 * 10);
  EXPECT_DOUBLE_EQ(result[1], 2 + 0.5 * 20);
  EXPECT_DOUBLE_EQ(result[2], 4 + 0.5 * 40);
  LambdaReturns(in, 1, result);
  EXPECT_DOUBLE_EQ(result[0], 1 + 0.5 * 2 + 0.25 * 4 + 0.125 * 40);
  EXPECT_DOUBLE_EQ(result[2], 4 + 0.5 * 40);
}

TEST(QLambdaLossTest, MatchesDefinitionWithConstantTargets) {
  for (const bool huber : {false, true}) {
    for (const double clip : {0.0, 0.5}) {
      Batch b = RandomBatch(11, 5);
      b.input.huber = huber;
      b.input.reward_clip = clip;
      const Outcome got = Evaluate(b.input);
      const double all = std::accumulate(b.length.begin(), b.length.end(), 0.0);
      double loss = 0, td_sum = 0, q_sum = 0;
      std::size_t frame = 0;
      for (std::size_t i = 0; i < b.length.size(); ++i) {
        const auto length = std::size_t(b.length[i]);
        std::vector<double> value;
        for (std::size_t t = 1; t <= length; ++t) {
          const float* row = &b.q[(frame + t) * kActions];
          value.push_back(double(std::max({row[0], row[1], row[2]})));
        }
        const UnrollSteps steps{.length = b.length[i],
                                .reward = &b.reward[i * kSteps],
                                .discount = &b.discount[i * kSteps],
                                .value = value.data(),
                                .gamma = 0.9,
                                .reward_clip = clip};
        double priority = 0;
        for (std::size_t t = 0; t < length; ++t) {
          const auto action = std::size_t(b.action[i * kSteps + t]);
          const double q = double(b.q[(frame + t) * kActions + action]);
          const double td = MixtureOfReturns(steps, 0.7, std::int32_t(t)) - q;
          const bool linear = huber && std::abs(td) > 1;
          loss += double(b.weight[i]) * (linear ? std::abs(td) - 0.5 : td * td / 2);
          td_sum += std::abs(td);
          q_sum += q;
          priority += std::abs(td) / double(length);
          const double slope = linear ? (td > 0 ? 1 : -1) : td;
          for (std::size_t a = 0; a < kActions; ++a) {
            EXPECT_NEAR(got.dq[(frame + t) * kActions + a],
                        a == action ? -double(b.weight[i]) * slope / all : 0, 1e-6);
          }
        }
        EXPECT_NEAR(got.priority[i], priority, 1e-5);
        // The frame of the bootstrap value.
        for (std::size_t a = 0; a < kActions; ++a)
          EXPECT_EQ(got.dq[(frame + length) * kActions + a], 0);
        frame += length + 1;
      }
      EXPECT_NEAR(got.summary.loss, loss / all, 1e-6);
      EXPECT_NEAR(got.summary.td_error_mean, td_sum / all, 1e-6);
      EXPECT_NEAR(got.summary.q_mean, q_sum / all, 1e-6);
    }
  }
}

// A truncated episode has another target than a terminated one: the last observation's value.
TEST(QLambdaLossTest, BootstrapsTruncatedButNotTerminatedSteps) {
  Batch b = RandomBatch(1, 8);
  b.length = {1};
  b.q = {1, 2, 3, 7, 5, 6};
  b.input.q = b.q.data();
  b.action[0] = 1;
  b.reward[0] = 10;
  b.weight[0] = 1;
  for (const bool terminated : {false, true}) {
    b.discount[0] = terminated ? 0 : 1;
    EXPECT_FLOAT_EQ(Evaluate(b.input).priority[0], terminated ? 10 - 2 : 10 + 0.9F * 7 - 2);
  }
}

// No value follows a termination, so it may be anything.
TEST(QLambdaLossTest, IgnoresValuesAfterTerminationButNoOthers) {
  Batch b = RandomBatch(4, 9);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  // Unroll 0 terminates.
  const std::size_t last = std::size_t(b.length[0]) * kActions;
  std::fill(b.q.begin() + std::ptrdiff_t(last), b.q.begin() + std::ptrdiff_t(last + kActions), nan);
  EXPECT_TRUE(std::isfinite(Evaluate(b.input).summary.loss));
  b.reward[std::size_t(kSteps)] = nan;  // the first step of unroll 1
  EXPECT_FALSE(std::isfinite(Evaluate(b.input).summary.loss));
}

}  // namespace
}  // namespace troop
