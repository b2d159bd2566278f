#include "kernels/cuda/loss/dqn_loss.h"

#include <cmath>

#include "tests/cuda/parity_cases.h"

namespace troop::cuda {
namespace {

struct Batch {
  std::int64_t items, actions, steps;
  std::vector<float> q, online, target, reward, discount, weight;
  std::vector<std::int32_t> action, length;
};

Batch MakeBatch(Parity& parity, std::int64_t items) {
  Batch b{items, 5, 3, {}, {}, {}, {}, {}, {}, {}, {}};
  b.q = parity.Random(items * b.actions, -3, 3);
  b.online = parity.Random(items * b.actions, -3, 3);
  b.target = parity.Random(items * b.actions, -3, 3);
  b.reward = parity.Random(items * b.steps, -2, 2);
  b.weight = parity.Random(items, 0.1, 1);
  for (std::int64_t i = 0; i < items; ++i) {
    b.action.push_back(std::int32_t(parity.Below(b.actions)));
    b.length.push_back(std::int32_t(1 + parity.Below(b.steps)));
    for (std::int64_t k = 0; k < b.steps; ++k) b.discount.push_back(1);
    if (i % 3 != 0) continue;  // terminated: the last observation is not used
    b.discount[std::size_t(i * b.steps + b.length.back() - 1)] = 0;
    b.target[std::size_t(i * b.actions)] = NAN;
  }
  if (items > 1) b.online[5] = b.online[6] = 9;  // ties go to the first action
  return b;
}

// Runs both implementations; false: only one summary is finite.
void Compare(Parity& parity, const Batch& b, bool double_q, bool weighted, bool huber,
             double clip) {
  const auto q = parity.Upload(b.q), online = parity.Upload(b.online),
             target = parity.Upload(b.target), reward = parity.Upload(b.reward),
             discount = parity.Upload(b.discount), weight = parity.Upload(b.weight);
  const auto action = parity.Upload(b.action), length = parity.Upload(b.length);
  const auto dq = parity.Output<float>(b.items * b.actions),
             priority = parity.Output<float>(b.items);
  const auto summary = parity.Output<DqnLossSummary>(1);
  DqnLossInput in;
  in.batch = b.items;
  in.actions = b.actions;
  in.steps = b.steps;
  in.gamma = 0.9;
  in.huber = huber;
  in.reward_clip = clip;
  const auto point = [&](const float* of_q, const float* of_online, const float* of_target,
                         const std::int32_t* of_action, const float* of_reward,
                         const float* of_discount, const std::int32_t* of_length,
                         const float* of_weight) {
    in.q = of_q;
    in.q_next_online = double_q ? of_online : nullptr;
    in.q_next_target = of_target;
    in.action = of_action;
    in.reward = of_reward;
    in.discount = of_discount;
    in.length = of_length;
    in.weight = weighted ? of_weight : nullptr;
  };
  point(q.data(), online.data(), target.data(), action.data(), reward.data(), discount.data(),
        length.data(), weight.data());
  const LossOutput out{.dq = dq.data(), .priority = priority.data(), .summary = summary.data()};
  DqnLoss(parity.stream(), in, out);
  point(b.q.data(), b.online.data(), b.target.data(), b.action.data(), b.reward.data(),
        b.discount.data(), b.length.data(), b.weight.data());
  std::vector<float> want_dq(b.q.size()), want_priority(std::size_t(b.items), 0);
  const DqnLossSummary want = troop::DqnLoss(in, {want_dq.data(), want_priority.data()});
  // Computed in f64 from the same f32 and rounded once (2^-24). The means are not rounded, except
  // for another order of additions (2^-53).
  parity.Close("dq", parity.Download(dq), Doubles(want_dq), 1e-6);
  parity.Close("priority", parity.Download(priority), Doubles(want_priority), 1e-6);
  const DqnLossSummary got = parity.Download(summary)[0];
  parity.Close("summary", std::vector<double>{got.loss, got.td_error_mean, got.q_mean},
               std::vector<double>{want.loss, want.td_error_mean, want.q_mean}, 1e-12);
}

void EqualsTheCpu(Parity& parity) {
  for (const std::int64_t items : {1, 31, 700}) {
    const Batch b = MakeBatch(parity, items);
    Compare(parity, b, true, true, true, 0);
    Compare(parity, b, false, false, false, 0.5);
  }
}

void WhatIsNotFiniteIsSeen(Parity& parity) {
  Batch b = MakeBatch(parity, 40);
  b.reward[3 * 3] = NAN;
  const auto q = parity.Upload(b.q), target = parity.Upload(b.online),
             reward = parity.Upload(b.reward), discount = parity.Upload(b.discount);
  const auto action = parity.Upload(b.action), length = parity.Upload(b.length);
  const auto dq = parity.Output<float>(b.items * b.actions),
             priority = parity.Output<float>(b.items);
  const auto summary = parity.Output<DqnLossSummary>(1);
  for (const double clip : {0.0, 1.0}) {
    DqnLossInput in;
    in.batch = b.items;
    in.actions = b.actions;
    in.steps = b.steps;
    in.q = q.data();
    in.q_next_target = target.data();
    in.action = action.data();
    in.reward = reward.data();
    in.discount = discount.data();
    in.length = length.data();
    in.reward_clip = clip;
    DqnLoss(parity.stream(), in,
            {.dq = dq.data(), .priority = priority.data(), .summary = summary.data()});
    parity.True("the loss is not finite", !std::isfinite(parity.Download(summary)[0].loss));
  }
}

}  // namespace

std::vector<ParityCase> DqnLossCases() {
  return {{"DqnLoss.EqualsTheCpu", EqualsTheCpu},
          {"DqnLoss.WhatIsNotFiniteIsSeen", WhatIsNotFiniteIsSeen}};
}

}  // namespace troop::cuda
