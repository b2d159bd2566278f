#include "kernels/loss/dqn_loss.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/base/philox.h"

namespace troop {
namespace {

struct Batch {
  std::vector<float> q, online, target, reward, discount, weight;
  std::vector<std::int32_t> action, length;
  DqnLossInput input;
};

Batch RandomBatch(std::int64_t items, std::int64_t actions, std::int64_t steps) {
  Rng rng({9, Purpose::kTest});
  Batch b;
  for (std::int64_t i = 0; i < items * actions; ++i) {
    for (auto* q : {&b.q, &b.online, &b.target}) q->push_back(float(rng.Normal()));
  }
  for (std::int64_t i = 0; i < items; ++i) {
    b.action.push_back(std::int32_t(rng.Below(std::uint32_t(actions))));
    b.length.push_back(std::int32_t(1 + rng.Below(std::uint32_t(steps))));
    b.weight.push_back(float(rng.Uniform(0.1, 1)));
    const bool ends = rng.Below(3) == 0;
    for (std::int32_t k = 0; k < steps; ++k) {
      const bool real = k < b.length.back();
      b.reward.push_back(real ? float(2 * rng.Normal()) : 0);
      b.discount.push_back(real && ends && k + 1 == b.length.back() ? 0 : 1);
    }
  }
  b.input = {items,
             actions,
             steps,
             b.q.data(),
             b.online.data(),
             b.target.data(),
             b.action.data(),
             b.reward.data(),
             b.discount.data(),
             b.length.data(),
             b.weight.data(),
             0.9,
             0,
             true};
  return b;
}

struct Outcome {
  DqnLossSummary summary;
  std::vector<float> dq, priority;
};
Outcome Evaluate(const DqnLossInput& in) {
  Outcome r;
  r.dq.assign(std::size_t(in.batch * in.actions), -7);
  r.priority.assign(std::size_t(in.batch), -7);
  r.summary = DqnLoss(in, {r.dq.data(), r.priority.data()});
  return r;
}

// The target from the recursion G_k = r_k + γ d_k G_{k+1}, with which the kernel has no line in
// common.
double RecursiveTarget(const DqnLossInput& in, std::int64_t i) {
  const float* chooser =
      (in.q_next_online != nullptr ? in.q_next_online : in.q_next_target) + i * in.actions;
  std::int64_t best = 0;
  for (std::int64_t a = 1; a < in.actions; ++a) best = chooser[a] > chooser[best] ? a : best;
  double g = in.q_next_target[i * in.actions + best];
  for (std::int64_t k = in.length[i] - 1; k >= 0; --k) {
    double r = in.reward[i * in.steps + k];
    if (in.reward_clip > 0) r = std::fmax(-in.reward_clip, std::fmin(in.reward_clip, r));
    g = r + in.gamma * double(in.discount[i * in.steps + k]) * g;
  }
  return g;
}

TEST(DqnLossTest, MatchesRecursiveReturnInEveryVariant) {
  for (int variant = 0; variant < 16; ++variant) {
    const Batch b = RandomBatch(23, 5, 4);
    DqnLossInput in = b.input;
    in.huber = (variant & 1) != 0;
    if (variant & 2) in.q_next_online = nullptr;
    if (variant & 4) in.reward_clip = 0.5;
    if (variant & 8) in.weight = nullptr;
    const Outcome r = Evaluate(in);
    double loss = 0, error = 0, q_sum = 0;
    for (std::int64_t i = 0; i < in.batch; ++i) {
      const double q = in.q[i * in.actions + in.action[i]];
      const double td = RecursiveTarget(in, i) - q, w = in.weight != nullptr ? in.weight[i] : 1;
      const bool far = in.huber && std::abs(td) > 1;
      loss += w * (far ? std::abs(td) - 0.5 : td * td / 2) / double(in.batch);
      error += std::abs(td) / double(in.batch);
      q_sum += q / double(in.batch);
      EXPECT_NEAR(r.priority[std::size_t(i)], std::abs(td), 1e-6);
      const double slope = far ? (td > 0 ? 1 : -1) : td;
      for (std::int64_t a = 0; a < in.actions; ++a) {
        const double want = a == in.action[i] ? -w * slope / double(in.batch) : 0;
        EXPECT_NEAR(r.dq[std::size_t(i * in.actions + a)], want, 1e-7);
      }
    }
    EXPECT_NEAR(r.summary.loss, loss, 1e-12);
    EXPECT_NEAR(r.summary.td_error_mean, error, 1e-12);
    EXPECT_NEAR(r.summary.q_mean, q_sum, 1e-12);
  }
}

TEST(DqnLossTest, GradientMatchesFiniteDifferences) {
  Batch b = RandomBatch(6, 3, 3);
  for (bool huber : {true, false}) {
    b.input.huber = huber;
    const Outcome r = Evaluate(b.input);
    for (std::size_t j = 0; j < b.q.size(); ++j) {
      const float at = b.q[j], step = 1.0f / 1024;
      b.q[j] = at + step;
      const double up = Evaluate(b.input).summary.loss, up_at = b.q[j];
      b.q[j] = at - step;
      const double down = Evaluate(b.input).summary.loss, down_at = b.q[j];
      b.q[j] = at;
      EXPECT_NEAR((up - down) / (up_at - down_at), r.dq[j], 2e-4);
    }
  }
}

// One item, one step, γ = 0.5, q = 0, next q = {1, 2} online, {10, 20} target.
struct Tiny {
  float q[2] = {0, 0}, online[2] = {2, 1}, target[2] = {10, 20}, reward[2] = {1, 0};
  float discount[2] = {1, 1};
  std::int32_t action = 0, length = 1;
  DqnLossInput input() {
    return {1, 2, 2, q, online, target, &action, reward, discount, &length, nullptr, 0.5, 0, false};
  }
};

TEST(DqnLossTest, DoubleQUsesOnlineChoiceAndSingleQTargetChoice) {
  Tiny t;
  DqnLossInput in = t.input();
  EXPECT_EQ(Evaluate(in).priority[0], 1 + 0.5f * 10);
  in.q_next_online = nullptr;
  EXPECT_EQ(Evaluate(in).priority[0], 1 + 0.5f * 20);
}

TEST(DqnLossTest, TerminationStopsBootstrapAndTruncationDoesNot) {
  Tiny t;
  t.discount[0] = 0;
  EXPECT_EQ(Evaluate(t.input()).priority[0], 1);
  t.discount[0] = 1;  // truncated: shorter than N, bootstraps with γ^length, not γ^N
  EXPECT_EQ(Evaluate(t.input()).priority[0], 6);
}

TEST(DqnLossTest, IgnoresNextQAfterTermination) {
  Tiny t;
  t.discount[0] = 0;
  t.target[0] = t.target[1] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(Evaluate(t.input()).priority[0], 1);
}

TEST(DqnLossTest, NonFiniteInputMakesLossNonFinite) {
  for (float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (int where = 0; where < 3; ++where) {
      Tiny t;
      DqnLossInput in = t.input();
      (where == 0 ? t.q[0] : where == 1 ? t.reward[0] : t.target[0]) = bad;
      EXPECT_FALSE(std::isfinite(Evaluate(in).summary.loss)) << where;
    }
    Tiny t;
    t.reward[0] = std::numeric_limits<float>::quiet_NaN();
    DqnLossInput in = t.input();
    in.reward_clip = 1;
    EXPECT_FALSE(std::isfinite(Evaluate(in).summary.loss));
  }
}

}  // namespace
}  // namespace troop
