#include "kernels/loss/policy_gradient_loss.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <vector>

#include "core/base/philox.h"
#include "kernels/loss/lambda_return.h"
#include "kernels/loss/vtrace_return.h"

namespace troop {
namespace {

constexpr std::int64_t kActions = 3, kSteps = 6, kWidth = kActions + 1;

struct Batch {
  std::vector<float> out, log_mu, mu_value, reward, discount, weight;
  std::vector<std::int32_t> action, length;
  std::unique_ptr<CategoricalDistribution> policy;
  PolicyGradientInput input;
};

// Unrolls of 1 to kSteps steps; every third one ends with a termination.
Batch RandomBatch(std::int64_t unrolls, std::uint64_t seed) {
  Rng rng({seed, Purpose::kTest});
  Batch b;
  for (std::int64_t i = 0; i < unrolls; ++i) {
    b.length.push_back(std::int32_t(1 + rng.Below(kSteps)));
    b.weight.push_back(float(rng.Uniform(0.1, 1)));
    for (std::int64_t k = 0; k < (b.length.back() + 1) * kWidth; ++k)
      b.out.push_back(float(rng.Normal()));
    for (std::int32_t t = 0; t < kSteps; ++t) {
      const bool real = t < b.length.back();
      // Past the end an action may be anything.
      b.action.push_back(real ? std::int32_t(rng.Below(kActions)) : 1000);
      b.log_mu.push_back(float(std::log(rng.Uniform(0.1, 0.9))));
      b.mu_value.push_back(real ? float(rng.Normal()) : 1000);
      b.reward.push_back(real ? float(2 * rng.Normal()) : 0);
      b.discount.push_back(i % 3 == 0 && t + 1 == b.length.back() ? 0 : 1);
    }
  }
  b.policy = std::make_unique<CategoricalDistribution>(kActions, b.action.data());
  b.input = {.batch = unrolls,
             .steps = kSteps,
             .policy = b.policy.get(),
             .out = b.out.data(),
             .log_mu = b.log_mu.data(),
             .mu_value = b.mu_value.data(),
             .reward = b.reward.data(),
             .discount = b.discount.data(),
             .length = b.length.data(),
             .weight = b.weight.data(),
             .gamma = 0.9,
             .lambda = 0.8,
             .rho_bar = 1.2,
             .c_bar = 1.1,
             .value_cost = 0.7,
             .entropy_cost = 0.03};
  return b;
}

struct Outcome {
  PolicyGradientSummary summary;
  std::vector<float> dout, priority;
};
Outcome Evaluate(const PolicyGradientInput& in) {
  Outcome r;
  const std::int64_t frames = std::accumulate(in.length, in.length + in.batch, in.batch);
  r.dout.assign(std::size_t(frames * kWidth), -7);
  r.priority.assign(std::size_t(in.batch), -7);
  r.summary = PolicyGradientLoss(in, {r.dout.data(), r.priority.data()});
  return r;
}

double LogPi(const std::vector<double>& out, std::size_t frame, std::size_t action) {
  double sum = 0;
  for (std::size_t a = 0; a < kActions; ++a) sum += std::exp(out[frame * kWidth + a]);
  return out[frame * kWidth + action] - std::log(sum);
}

// Definition 1 of the paper with its sums and products, forward in time, instead of the recursion.
double Target(const VtraceSteps& in, std::int32_t s) {
  double target = in.value[s];
  for (std::int32_t t = s; t < in.length; ++t) {
    double product = 1;
    for (std::int32_t i = s; i < t; ++i)
      product *= in.gamma * double(in.discount[i]) * in.lambda * std::min(in.c_bar, in.ratio[i]);
    const double clip = in.reward_clip, r = double(in.reward[t]);
    const double reward = clip > 0 ? std::min(std::max(r, -clip), clip) : r;
    const double next = in.discount[t] == 0 ? 0 : in.value[t + 1];
    target += product * std::min(in.rho_bar, in.ratio[t]) *
              (reward + in.gamma * double(in.discount[t]) * next - in.value[t]);
  }
  return target;
}

struct Unroll {
  std::vector<float> reward, discount;
  std::vector<double> value, ratio;
  VtraceSteps steps;
};
Unroll RandomUnroll(Rng* rng, bool terminated) {
  Unroll u;
  const auto length = std::int32_t(1 + rng->Below(9));
  for (std::int32_t t = 0; t <= length; ++t) u.value.push_back(rng->Normal());
  for (std::int32_t t = 0; t < length; ++t) {
    u.reward.push_back(float(3 * rng->Normal()));
    u.ratio.push_back(rng->Uniform(0.2, 3));
    u.discount.push_back(t + 1 == length && terminated ? 0 : 1);
  }
  u.steps = {.length = length,
             .reward = u.reward.data(),
             .discount = u.discount.data(),
             .value = u.value.data(),
             .ratio = u.ratio.data(),
             .gamma = 0.95};
  return u;
}

TEST(VtraceReturnTest, EqualsDefinitionOfPaper) {
  Rng rng({3, Purpose::kTest});
  for (int repeat = 0; repeat < 300; ++repeat) {
    Unroll u = RandomUnroll(&rng, repeat % 2 == 0);
    u.steps.reward_clip = repeat % 3 == 0 ? 1 : 0;
    u.steps.rho_bar = rng.Uniform(0.5, 2);
    u.steps.c_bar = rng.Uniform(0.5, u.steps.rho_bar);
    u.steps.lambda = rng.Uniform();
    const auto length = std::size_t(u.steps.length);
    std::vector<double> target(length), advantage(length);
    VtraceReturns(u.steps, target.data(), advantage.data());
    for (std::size_t t = 0; t < length; ++t) {
      EXPECT_NEAR(target[t], Target(u.steps, std::int32_t(t)), 1e-10);
      const double r = double(u.reward[t]), clip = u.steps.reward_clip;
      const double next = t + 1 < length ? target[t + 1] : u.discount[t] == 0 ? 0 : u.value[length];
      EXPECT_NEAR(advantage[t],
                  std::min(u.steps.rho_bar, u.ratio[t]) *
                      ((clip > 0 ? std::min(std::max(r, -clip), clip) : r) +
                       0.95 * double(u.discount[t]) * next - u.value[t]),
                  1e-10);
    }
  }
}

// On-policy data (the paper's remark 1): n-step returns, and TD(λ) returns with λ below 1.
TEST(VtraceReturnTest, OnPolicyTargetsAreReturns) {
  Rng rng({4, Purpose::kTest});
  for (int repeat = 0; repeat < 50; ++repeat) {
    Unroll u = RandomUnroll(&rng, repeat % 2 == 0);
    std::ranges::fill(u.ratio, 1.0);
    const auto length = std::size_t(u.steps.length);
    for (const double lambda : {1.0, 0.6}) {
      u.steps.lambda = lambda;
      std::vector<double> target(length), advantage(length), returns(length);
      VtraceReturns(u.steps, target.data(), advantage.data());
      LambdaReturns({.length = u.steps.length,
                     .reward = u.reward.data(),
                     .discount = u.discount.data(),
                     .value = u.value.data() + 1,
                     .gamma = 0.95},
                    lambda, returns.data());
      for (std::size_t t = 0; t < length; ++t) EXPECT_NEAR(target[t], returns[t], 1e-10);
    }
  }
}

// The objective at other outputs, with the targets, advantages and ratios' denominators of the
// batch: its derivative is the gradient.
class Objective {
 public:
  explicit Objective(const Batch& b) : b_(b) {
    const PolicyGradientInput& in = b.input;
    std::vector<double> out(b.out.begin(), b.out.end());
    std::size_t frame = 0;
    for (std::size_t i = 0; i < b.length.size(); ++i) {
      const auto length = std::size_t(b.length[i]);
      std::vector<double> value, ratio;
      for (std::size_t t = 0; t <= length; ++t)
        value.push_back(out[(frame + t) * kWidth + kActions]);
      for (std::size_t t = 0; t < length; ++t) {
        const std::size_t at = i * kSteps + t;
        ratio.push_back(
            std::exp(LogPi(out, frame + t, std::size_t(b.action[at])) - double(b.log_mu[at])));
      }
      const VtraceSteps steps{.length = b.length[i],
                              .reward = &b.reward[i * kSteps],
                              .discount = &b.discount[i * kSteps],
                              .value = value.data(),
                              .ratio = ratio.data(),
                              .gamma = in.gamma,
                              .reward_clip = in.reward_clip,
                              .rho_bar = in.rho_bar,
                              .c_bar = in.c_bar,
                              .lambda = in.lambda};
      for (std::size_t t = 0; t < length; ++t) {
        target_.push_back(Target(steps, std::int32_t(t)));
        const double next = t + 1 < length ? Target(steps, std::int32_t(t + 1)) : value[length];
        const std::size_t at = i * kSteps + t;
        const double bootstrap = b.discount[at] == 0 ? 0 : in.gamma * double(b.discount[at]) * next;
        const double clip = in.reward_clip, r = double(b.reward[at]);
        const double reward = clip > 0 ? std::min(std::max(r, -clip), clip) : r;
        advantage_.push_back(in.ratio_clip > 0 ? target_.back() - value[t]
                                               : std::min(in.rho_bar, ratio[t]) *
                                                     (reward + bootstrap - value[t]));
      }
      frame += length + 1;
    }
    stopped_ = in.target_kl > 0 && Kl(out) > 1.5 * in.target_kl;
    if (!in.normalize_advantages) return;
    double mean = 0, squares = 0;
    const auto count = double(advantage_.size());
    for (const double a : advantage_) mean += a / count;
    for (const double a : advantage_) squares += (a - mean) * (a - mean) / count;
    for (double& a : advantage_) a = (a - mean) / (std::sqrt(squares) + 1e-8);
  }

  // Schulman's estimate of KL(μ, π) that is never negative.
  double Kl(const std::vector<double>& out) const {
    double sum = 0;
    std::size_t frame = 0, steps = 0;
    for (std::size_t i = 0; i < b_.length.size(); ++i, ++frame) {
      for (std::size_t t = 0; t < std::size_t(b_.length[i]); ++t, ++frame, ++steps) {
        const std::size_t at = i * kSteps + t;
        const double log_ratio =
            LogPi(out, frame, std::size_t(b_.action[at])) - double(b_.log_mu[at]);
        sum += std::exp(log_ratio) - 1 - log_ratio;
      }
    }
    return sum / double(steps);
  }

  double At(const std::vector<double>& out) const {
    const PolicyGradientInput& in = b_.input;
    double loss = 0;
    std::size_t frame = 0, step = 0;
    for (std::size_t i = 0; i < b_.length.size(); ++i, ++frame) {
      for (std::size_t t = 0; t < std::size_t(b_.length[i]); ++t, ++frame, ++step) {
        const std::size_t at = i * kSteps + t;
        const double log_pi = LogPi(out, frame, std::size_t(b_.action[at]));
        const double advantage = advantage_[step];
        double policy = -log_pi * advantage;
        if (in.ratio_clip > 0) {
          const double ratio = std::exp(log_pi - double(b_.log_mu[at]));
          const double bound = std::min(std::max(ratio, 1 - in.ratio_clip), 1 + in.ratio_clip);
          policy = -std::min(ratio * advantage, bound * advantage);
        }
        double entropy = 0;
        for (std::size_t a = 0; a < kActions; ++a) {
          const double l = LogPi(out, frame, a);
          entropy -= std::exp(l) * l;
        }
        const double value = out[frame * kWidth + kActions], old = double(b_.mu_value[at]);
        double squares = std::pow(target_[step] - value, 2);
        if (in.value_clip > 0) {
          const double near = std::max(old - in.value_clip, std::min(old + in.value_clip, value));
          squares = std::max(squares, std::pow(target_[step] - near, 2));
        }
        const double of_policy = stopped_ ? 0 : policy - in.entropy_cost * entropy;
        loss += double(b_.weight[i]) * (of_policy + in.value_cost * squares / 2);
      }
    }
    return loss / double(step);
  }

 private:
  const Batch& b_;
  std::vector<double> target_, advantage_;
  bool stopped_ = false;
};

TEST(PolicyGradientLossTest, LossAndGradientMatchDifferences) {
  for (int variant = 0; variant < 24; ++variant) {
    Batch b = RandomBatch(9, std::uint64_t(variant));
    b.input.ratio_clip = variant % 2 == 0 ? 0 : 0.2;
    b.input.normalize_advantages = variant % 4 >= 2;
    b.input.reward_clip = variant % 8 < 4 ? 0 : 1;
    b.input.value_clip = variant < 8 ? 0 : 0.4;
    const Outcome got = Evaluate(b.input);
    const Objective objective(b);
    std::vector<double> out(b.out.begin(), b.out.end());
    EXPECT_NEAR(got.summary.loss, objective.At(out), 1e-6) << variant;
    for (std::size_t k = 0; k < out.size(); ++k) {
      const double kept = out[k], step = 1e-6;
      out[k] = kept + step;
      const double above = objective.At(out);
      out[k] = kept - step;
      const double below = objective.At(out);
      out[k] = kept;
      EXPECT_NEAR(got.dout[k], (above - below) / (2 * step), 1e-6) << variant << ", " << k;
    }
  }
}

// A batch whose policy has moved too far trains the value only.
TEST(PolicyGradientLossTest, TargetKlStopsPolicyOfDistantBatches) {
  for (const double share : {0.9, 1.1}) {
    Batch b = RandomBatch(9, 31);
    b.input.ratio_clip = 0.2;
    const std::vector<double> out(b.out.begin(), b.out.end());
    const double kl = Objective(b).Kl(out);
    b.input.target_kl = share * kl / 1.5;
    const Outcome got = Evaluate(b.input);
    const bool stopped = share < 1;
    EXPECT_EQ(got.summary.stopped, stopped);
    EXPECT_NEAR(got.summary.divergence, kl, 1e-9);
    EXPECT_NEAR(got.summary.loss, Objective(b).At(out), 1e-6);
    double of_policy = 0, of_value = 0;
    for (std::size_t k = 0; k < got.dout.size(); ++k)
      (k % kWidth == kActions ? of_value : of_policy) += std::abs(double(got.dout[k]));
    EXPECT_GT(of_value, 0);
    EXPECT_EQ(of_policy == 0, stopped);
    EXPECT_EQ(got.summary.policy_loss == 0, stopped);
  }
}

// At equal policies the ratio is 1, where PPO's surrogate has the slope of the policy gradient.
TEST(PolicyGradientLossTest, FirstStepOfPpoIsPolicyGradient) {
  Batch b = RandomBatch(7, 11);
  std::size_t frame = 0;
  const std::vector<double> out(b.out.begin(), b.out.end());
  for (std::size_t i = 0; i < b.length.size(); ++i, ++frame) {
    for (std::size_t t = 0; t < std::size_t(b.length[i]); ++t, ++frame) {
      const std::size_t at = i * kSteps + t;
      b.log_mu[at] = float(LogPi(out, frame, std::size_t(b.action[at])));
    }
  }
  // With λ = 1 the advantage of both is the return without the value.
  b.input.lambda = 1;
  const Outcome plain = Evaluate(b.input);
  b.input.ratio_clip = 0.2;
  const Outcome clipped = Evaluate(b.input);
  for (std::size_t k = 0; k < plain.dout.size(); ++k)
    EXPECT_NEAR(plain.dout[k], clipped.dout[k], 1e-6);
  EXPECT_NEAR(clipped.summary.divergence, 0, 1e-6);
  EXPECT_EQ(clipped.summary.clipped, 0);
}

TEST(PolicyGradientLossTest, BootstrapFramesHaveNoGradient) {
  const Batch b = RandomBatch(5, 2);
  const Outcome got = Evaluate(b.input);
  std::size_t frame = 0;
  for (const std::int32_t length : b.length) {
    frame += std::size_t(length);
    for (std::size_t k = 0; k < kWidth; ++k) EXPECT_EQ(got.dout[frame * kWidth + k], 0);
    ++frame;
  }
}

// No value follows a termination, so it may be anything.
TEST(PolicyGradientLossTest, IgnoresValuesAfterTerminationButNoOthers) {
  Batch b = RandomBatch(4, 9);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::size_t last = std::size_t(b.length[0]) * kWidth;  // unroll 0 terminates
  std::fill(b.out.begin() + std::ptrdiff_t(last), b.out.begin() + std::ptrdiff_t(last + kWidth),
            nan);
  EXPECT_TRUE(std::isfinite(Evaluate(b.input).summary.loss));
  b.log_mu[std::size_t(kSteps)] = nan;  // the first step of unroll 1
  EXPECT_FALSE(std::isfinite(Evaluate(b.input).summary.loss));
  b = RandomBatch(4, 9);
  b.mu_value[std::size_t(kSteps)] = nan;
  EXPECT_TRUE(std::isfinite(Evaluate(b.input).summary.loss)) << "it is not used";
  b.input.value_clip = 0.1;
  EXPECT_FALSE(std::isfinite(Evaluate(b.input).summary.loss));
}

TEST(PolicyGradientLossTest, UniformPolicyHasEntropyOfItsActions) {
  Batch b = RandomBatch(3, 6);
  std::ranges::fill(b.out, 0.0F);
  EXPECT_NEAR(Evaluate(b.input).summary.entropy, std::log(double(kActions)), 1e-12);
}

}  // namespace
}  // namespace troop
