#include "kernels/cuda/loss/distributional_loss.h"

#include <array>
#include <cmath>

#include "tests/cuda/parity_cases.h"

namespace troop::cuda {
namespace {

struct Batch {
  std::int64_t items, actions, values, steps;
  std::vector<float> first, online, target, reward, discount, weight;
  std::vector<std::int32_t> action, length;
};

Batch MakeBatch(Parity& parity, std::int64_t items, std::int64_t actions, std::int64_t values) {
  Batch b{items, actions, values, 3, {}, {}, {}, {}, {}, {}, {}, {}};
  const std::int64_t all = items * actions * values;
  b.first = parity.Random(all, -3, 3);
  b.online = parity.Random(all, -3, 3);
  b.target = parity.Random(all, -3, 3);
  b.reward = parity.Random(items * b.steps, -2, 2);
  b.weight = parity.Random(items, 0.1, 1);
  for (std::int64_t i = 0; i < items; ++i) {
    b.action.push_back(std::int32_t(parity.Below(actions)));
    b.length.push_back(std::int32_t(1 + parity.Below(b.steps)));
    for (std::int64_t k = 0; k < b.steps; ++k) b.discount.push_back(1);
    if (i % 3 != 0) continue;  // terminated: the last observation is not used
    b.discount[std::size_t(i * b.steps + b.length.back() - 1)] = 0;
    b.target[std::size_t(i * actions * values)] = NAN;
  }
  return b;
}

// Inputs and outputs of both losses on the device.
struct Arrays {
  Arrays(Parity& parity, const Batch& b)
      : first(parity.Upload(b.first)),
        online(parity.Upload(b.online)),
        target(parity.Upload(b.target)),
        reward(parity.Upload(b.reward)),
        discount(parity.Upload(b.discount)),
        weight(parity.Upload(b.weight)),
        action(parity.Upload(b.action)),
        length(parity.Upload(b.length)),
        gradient(parity.Output<float>(std::int64_t(b.first.size()))),
        priority(parity.Output<float>(b.items)),
        partial(parity.Output<double>(3 * b.items)),
        summary(parity.Output<DqnLossSummary>(1)) {}
  DeviceArray<float> first, online, target, reward, discount, weight;
  DeviceArray<std::int32_t> action, length;
  DeviceArray<float> gradient, priority;
  DeviceArray<double> partial;
  DeviceArray<DqnLossSummary> summary;
};

// Sets the fields that both losses have.
template <class Input, class From>
void Point(Input* in, const Batch& b, const From& from, const float* weight, double clip) {
  in->batch = b.items;
  in->actions = b.actions;
  in->steps = b.steps;
  in->action = from.action.data();
  in->reward = from.reward.data();
  in->discount = from.discount.data();
  in->length = from.length.data();
  in->weight = weight;
  in->gamma = 0.9;
  in->reward_clip = clip;
}
template <class From>
void PointValues(CategoricalLossInput* in, const Batch& b, const From& from, bool double_q) {
  in->support = {b.values, -4, 3.5};
  in->logits = from.first.data();
  in->logits_target = from.target.data();
  in->logits_online = double_q ? from.online.data() : nullptr;
}
template <class From>
void PointValues(QuantileLossInput* in, const Batch& b, const From& from, bool double_q) {
  in->quantiles = b.values;
  in->kappa = double_q ? 1 : 0;
  in->quantile = from.first.data();
  in->quantile_target = from.target.data();
  in->quantile_online = double_q ? from.online.data() : nullptr;
}

DqnLossSummary OnCpu(const CategoricalLossInput& in, const DqnLossOutput& out) {
  return troop::CategoricalLoss(in, out);
}
DqnLossSummary OnCpu(const QuantileLossInput& in, const DqnLossOutput& out) {
  return troop::QuantileLoss(in, out);
}
LossOutput OutputOf(const Arrays& a) {
  return {.dq = a.gradient.data(),
          .priority = a.priority.data(),
          .summary = a.summary.data(),
          .partial = a.partial.data()};
}
void OnDevice(Parity& parity, const CategoricalLossInput& in, const Arrays& a) {
  CategoricalLoss(parity.stream(), in, OutputOf(a));
}
void OnDevice(Parity& parity, const QuantileLossInput& in, const Arrays& a) {
  QuantileLoss(parity.stream(), in, OutputOf(a));
}

template <class Input>
void Compare(Parity& parity, const Batch& b, bool double_q, bool weighted, double clip) {
  Arrays arrays(parity, b);
  Input in;
  Point(&in, b, arrays, weighted ? arrays.weight.data() : nullptr, clip);
  PointValues(&in, b, arrays, double_q);
  OnDevice(parity, in, arrays);
  Point(&in, b, b, weighted ? b.weight.data() : nullptr, clip);
  PointValues(&in, b, b, double_q);
  std::vector<float> gradient(b.first.size()), priority(std::size_t(b.items), 0);
  const DqnLossSummary want = OnCpu(in, {gradient.data(), priority.data()});
  // Computed in f64 and rounded once to f32 (2^-24); the means stay f64, with another order of sums
  // and another library's exponentials.
  parity.Close("gradient", parity.Download(arrays.gradient), Doubles(gradient), 1e-6);
  parity.Close("priority", parity.Download(arrays.priority), Doubles(priority), 1e-6);
  const DqnLossSummary got = parity.Download(arrays.summary)[0];
  parity.Close("summary", std::vector<double>{got.loss, got.td_error_mean, got.q_mean},
               std::vector<double>{want.loss, want.td_error_mean, want.q_mean}, 1e-11);
}

template <class Input>
void EqualsTheCpu(Parity& parity) {
  for (const auto& [items, actions, values] :
       {std::array<std::int64_t, 3>{1, 1, 2}, {5, 6, 51}, {33, 3, 7}, {2, 18, 200}}) {
    const Batch b = MakeBatch(parity, items, actions, values);
    Compare<Input>(parity, b, true, true, 0);
    Compare<Input>(parity, b, false, false, 0.5);
  }
  if (parity.large()) Compare<Input>(parity, MakeBatch(parity, 512, 18, 200), true, true, 0);
}

template <class Input>
void WhatIsNotFiniteIsSeen(Parity& parity) {
  for (const int what : {0, 1, 2}) {
    Batch b = MakeBatch(parity, 4, 3, 5);
    if (what == 0) b.reward[3] = NAN;  // in item 1, which did not terminate
    if (what == 1) b.reward[3] = INFINITY;
    if (what == 2)
      for (std::size_t k = 15; k < 30; ++k) b.first[k] = NAN;
    Arrays arrays(parity, b);
    Input in;
    Point(&in, b, arrays, nullptr, 0);
    PointValues(&in, b, arrays, true);
    OnDevice(parity, in, arrays);
    parity.True("the loss is not finite", !std::isfinite(parity.Download(arrays.summary)[0].loss));
  }
}

}  // namespace

std::vector<ParityCase> DistributionLossCases() {
  return {{"CategoricalLoss.EqualsTheCpu", EqualsTheCpu<CategoricalLossInput>},
          {"CategoricalLoss.WhatIsNotFiniteIsSeen", WhatIsNotFiniteIsSeen<CategoricalLossInput>},
          {"QuantileLoss.EqualsTheCpu", EqualsTheCpu<QuantileLossInput>},
          {"QuantileLoss.WhatIsNotFiniteIsSeen", WhatIsNotFiniteIsSeen<QuantileLossInput>}};
}

}  // namespace troop::cuda
