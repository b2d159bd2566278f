#include "kernels/loss/sequence_q_loss.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "core/base/philox.h"
#include "kernels/loss/value_rescaling.h"

namespace troop {
namespace {

constexpr std::int64_t kActions = 3, kStride = 9, kStepsMax = 7;
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Batch {
  std::vector<float> q, q_target, reward, discount, weight;
  std::vector<std::int32_t> action, length;
  SequenceQLossInput input;
};

// Unrolls of 1 to 7 steps; every third one ends with a termination.
Batch RandomBatch(std::int64_t unrolls, std::uint64_t seed) {
  Rng rng({seed, Purpose::kTest});
  Batch b;
  for (std::int64_t i = 0; i < unrolls; ++i) {
    b.length.push_back(std::int32_t(1 + rng.Below(kStepsMax)));
    b.weight.push_back(float(rng.Uniform(0.1, 1)));
    for (std::int64_t k = 0; k < (b.length.back() + 1) * kActions; ++k) {
      b.q.push_back(float(2 * rng.Normal()));
      b.q_target.push_back(float(2 * rng.Normal()));
    }
    for (std::int32_t t = 0; t < kStride; ++t) {
      const bool real = t < b.length.back();
      // Past the end an action may be anything.
      b.action.push_back(real ? std::int32_t(rng.Below(kActions)) : 1000);
      b.reward.push_back(real ? float(20 * rng.Normal()) : kNaN);
      b.discount.push_back(i % 3 == 0 && t + 1 == b.length.back() ? 0 : 1);
    }
  }
  b.input = {.batch = unrolls,
             .actions = kActions,
             .q = b.q.data(),
             .q_target = b.q_target.data(),
             .stride = kStride,
             .action = b.action.data(),
             .reward = b.reward.data(),
             .discount = b.discount.data(),
             .length = b.length.data(),
             .weight = b.weight.data(),
             .gamma = 0.9,
             .n_step = 3};
  return b;
}

struct Outcome {
  DqnLossSummary summary;
  std::vector<float> dq, priority;
};
Outcome Evaluate(const SequenceQLossInput& in) {
  Outcome r;
  const std::int64_t frames = std::accumulate(in.length, in.length + in.batch, in.batch);
  r.dq.assign(std::size_t(frames * in.actions), -7);
  r.priority.assign(std::size_t(in.batch), -7);
  r.summary = SequenceQLoss(in, {r.dq.data(), r.priority.data()});
  return r;
}

// h by its formula, and h⁻¹ by bisection.
double H(double x) { return (x < 0 ? -1 : 1) * (std::sqrt(std::abs(x) + 1) - 1) + 0.001 * x; }
double InverseOfH(double y) {
  double low = -1e7, high = 1e7;
  for (int i = 0; i < 200; ++i) {
    const double middle = (low + high) / 2;
    (H(middle) < y ? low : high) = middle;
  }
  return (low + high) / 2;
}

TEST(ValueRescalingTest, IsItsFormulaAndInvertible) {
  for (const double x : {0.0, 1e-9, -1e-3, 0.5, -1.0, 7.0, -100.0, 1e4, -1e6}) {
    EXPECT_NEAR(RescaleValue(x), H(x), 1e-12 * (1 + std::abs(x)));
    EXPECT_NEAR(UnrescaleValue(H(x)), x, 1e-9 * (1e-6 + std::abs(x)));
  }
  EXPECT_TRUE(std::isnan(RescaleValue(std::nan(""))));
  EXPECT_TRUE(std::isnan(UnrescaleValue(std::nan(""))));
}

// TD error of step t of unroll i, whose frames begin at row `first`: the sum over the rewards, with
// each discounted on its own.
double TdError(const SequenceQLossInput& in, std::size_t i, std::size_t first, std::int32_t t) {
  const float* reward = in.reward + std::int64_t(i) * in.stride;
  const float* discount = in.discount + std::int64_t(i) * in.stride;
  double sum = 0;
  bool ended = false;
  std::int32_t at = t;
  for (; at < in.length[i] && at < t + in.n_step && !ended; ++at) {
    const double r = reward[at];
    const double clipped =
        in.reward_clip > 0 ? std::min(std::max(r, -in.reward_clip), in.reward_clip) : r;
    sum += std::pow(in.gamma, at - t) * clipped;
    ended = discount[at] == 0;
  }
  if (!ended) {
    const float* online = in.q + (std::int64_t(first) + at) * in.actions;
    const float* target = in.q_target + (std::int64_t(first) + at) * in.actions;
    std::int64_t best = 0;
    for (std::int64_t a = 1; a < in.actions; ++a) {
      const float* const by = in.double_q ? online : target;
      if (by[a] > by[best]) best = a;
    }
    const double value = in.rescale ? InverseOfH(target[best]) : double(target[best]);
    sum += std::pow(in.gamma, at - t) * value;
  }
  const double q =
      in.q[(std::int64_t(first) + t) * in.actions + in.action[std::int64_t(i) * in.stride + t]];
  return (in.rescale ? H(sum) : sum) - q;
}

TEST(SequenceQLossTest, MatchesDefinition) {
  for (int form = 0; form < 16; ++form) {
    Batch b = RandomBatch(12, std::uint64_t(form));
    b.input.double_q = form & 1;
    b.input.rescale = form & 2;
    b.input.huber = form & 4;
    b.input.reward_clip = form & 8 ? 1.5 : 0;
    b.input.n_step = 1 + form % 5;
    b.input.largest_share = form % 3 == 0 ? 0.9 : 0.25;
    const Outcome got = Evaluate(b.input);
    const double all = std::accumulate(b.length.begin(), b.length.end(), 0.0);
    double loss = 0, error = 0;
    std::size_t first = 0;
    for (std::size_t i = 0; i < b.length.size(); ++i) {
      double largest = 0, sum = 0;
      for (std::int32_t t = 0; t < b.length[i]; ++t) {
        const double td = TdError(b.input, i, first, t), size = std::abs(td);
        const bool linear = b.input.huber && size > 1;
        loss += double(b.weight[i]) * (linear ? size - 0.5 : td * td / 2) / all;
        error += size / all;
        sum += size;
        largest = std::max(largest, size);
        for (std::int64_t a = 0; a < kActions; ++a) {
          const bool taken = a == b.action[i * kStride + std::size_t(t)];
          const double slope = linear ? (td > 0 ? 1 : -1) : td;
          EXPECT_NEAR(got.dq[(first + std::size_t(t)) * kActions + std::size_t(a)],
                      taken ? -double(b.weight[i]) * slope / all : 0, 1e-6);
        }
      }
      for (std::size_t a = 0; a < kActions; ++a)
        EXPECT_EQ(got.dq[(first + std::size_t(b.length[i])) * kActions + a], 0);
      const double eta = b.input.largest_share;
      EXPECT_NEAR(got.priority[i], eta * largest + (1 - eta) * sum / b.length[i],
                  1e-5 * (1 + largest));
      first += std::size_t(b.length[i]) + 1;
    }
    EXPECT_NEAR(got.summary.loss, loss, 1e-6 * (1 + loss));
    EXPECT_NEAR(got.summary.td_error_mean, error, 1e-6 * (1 + error));
  }
}

// One step, no rescaling, the whole unroll as the bootstrap: the n-step double-Q loss.
TEST(SequenceQLossTest, OfOneStepEqualsDqnLoss) {
  Batch b = RandomBatch(8, 3);
  std::ranges::fill(b.length, 1);
  b.input.rescale = false;
  b.input.n_step = 1;
  const Outcome got = Evaluate(b.input);
  std::vector<float> q, online, target, dq(8 * kActions), priority(8);
  std::vector<std::int32_t> action;
  std::vector<float> reward, discount;
  for (std::size_t i = 0; i < 8; ++i) {
    const auto row = [&](const std::vector<float>& from, std::size_t frame) {
      const auto at = from.begin() + std::ptrdiff_t(frame * kActions);
      return std::vector<float>(at, at + kActions);
    };
    for (const float x : row(b.q, 2 * i)) q.push_back(x);
    for (const float x : row(b.q, 2 * i + 1)) online.push_back(x);
    for (const float x : row(b.q_target, 2 * i + 1)) target.push_back(x);
    action.push_back(b.action[i * kStride]);
    reward.push_back(b.reward[i * kStride]);
    discount.push_back(b.discount[i * kStride]);
  }
  const DqnLossSummary want = DqnLoss({.batch = 8,
                                       .actions = kActions,
                                       .steps = 1,
                                       .q = q.data(),
                                       .q_next_online = online.data(),
                                       .q_next_target = target.data(),
                                       .action = action.data(),
                                       .reward = reward.data(),
                                       .discount = discount.data(),
                                       .length = b.length.data(),
                                       .weight = b.weight.data(),
                                       .gamma = 0.9,
                                       .huber = false},
                                      {dq.data(), priority.data()});
  EXPECT_NEAR(got.summary.loss, want.loss, 1e-9 * (1 + want.loss));
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_FLOAT_EQ(got.priority[i], priority[i]);
    for (std::size_t a = 0; a < kActions; ++a)
      EXPECT_FLOAT_EQ(got.dq[2 * i * kActions + a], dq[i * kActions + a]);
  }
}

TEST(SequenceQLossTest, UsedNaNShowsInLossAndUnusedDoesNot) {
  Batch b = RandomBatch(3, 1);
  b.length = {2, 2, 2};
  b.discount[1] = 0;  // unroll 0 terminates
  b.input.n_step = 5;
  for (std::size_t t = 0; t < 2; ++t) {
    for (std::size_t i = 0; i < 3; ++i)
      b.reward[i * kStride + t] = 1, b.action[i * kStride + t] = 0;
  }
  for (std::size_t a = 0; a < kActions; ++a)
    b.q[2 * kActions + a] = b.q_target[2 * kActions + a] = kNaN;
  EXPECT_TRUE(std::isfinite(Evaluate(b.input).summary.loss));
  // Unroll 1 does not terminate: its bootstrap frame is row 5.
  const float kept = b.q[5 * kActions + 1];
  b.q[5 * kActions + 1] = kNaN;
  EXPECT_FALSE(std::isfinite(Evaluate(b.input).summary.loss));
  b.q[5 * kActions + 1] = kept;
  b.q[3 * kActions] = kNaN;  // a taken action
  const Outcome bad = Evaluate(b.input);
  EXPECT_FALSE(std::isfinite(bad.summary.loss));
  EXPECT_TRUE(std::isnan(bad.priority[1]));
}

}  // namespace
}  // namespace troop
