#include "kernels/cuda/loss/dueling.h"

#include <algorithm>
#include <cmath>

#include "kernels/cuda/loss/distributional_loss.h"
#include "tests/cuda/parity_cases.h"
#include "tests/learners/value_reference.h"

// Dueling heads, combined separately and by the losses, against plain f64 loops.
namespace troop::cuda {
namespace {

using Doubles64 = std::vector<double>;

struct Sizes {
  std::int64_t items, actions, numbers;
};

// v + a - mean(a) for the heads [K] and [A, K] of one row.
Doubles64 Combined(const Sizes& n, const float* value, const float* advantage) {
  Doubles64 q;
  for (std::int64_t a = 0; a < n.actions; ++a) {
    for (std::int64_t k = 0; k < n.numbers; ++k) {
      double mean = 0;
      for (std::int64_t b = 0; b < n.actions; ++b)
        mean += double(advantage[b * n.numbers + k]) / double(n.actions);
      q.push_back(double(value[k]) + double(advantage[a * n.numbers + k]) - mean);
    }
  }
  return q;
}

void CombinesTheHeads(Parity& parity) {
  const std::int64_t rows = parity.large() ? 4096 : 67;
  for (const Sizes n : {Sizes{rows, 18, 1}, {rows, 1, 1}, {1, 3, 1}, {5, 4, 51}, {3, 2, 200}}) {
    const auto value = parity.Random(n.items * n.numbers, -3, 3),
               advantage = parity.Random(n.items * n.actions * n.numbers, -3, 3);
    const auto v = parity.Upload(value), a = parity.Upload(advantage);
    const auto q = parity.Output<float>(std::int64_t(advantage.size()));
    CombineDueling(parity.stream(), {.rows = n.items,
                                     .actions = n.actions,
                                     .numbers = n.numbers,
                                     .value = v.data(),
                                     .advantage = a.data(),
                                     .q = q.data()});
    Doubles64 want;
    for (std::int64_t i = 0; i < n.items; ++i) {
      const Doubles64 row = Combined(n, &value[std::size_t(i * n.numbers)],
                                     &advantage[std::size_t(i * n.actions * n.numbers)]);
      want.insert(want.end(), row.begin(), row.end());
    }
    // f32 sums of up to 18 values: a few roundings of 2^-24.
    parity.Close("q", parity.Download(q), want, 1e-6);
  }
}

struct Heads {
  std::vector<float> value, advantage;  // [B, K], [B, A, K]
};
struct Batch {
  Sizes n;
  std::int64_t steps = 3;
  Heads first, target, online;
  std::vector<float> reward, discount, weight;
  std::vector<std::int32_t> action, length;
};

Heads RandomHeads(Parity& parity, const Sizes& n) {
  return {parity.Random(n.items * n.numbers, -3, 3),
          parity.Random(n.items * n.actions * n.numbers, -3, 3)};
}

Batch MakeBatch(Parity& parity, const Sizes& n) {
  Batch b;
  b.n = n;
  b.first = RandomHeads(parity, n);
  b.target = RandomHeads(parity, n);
  b.online = RandomHeads(parity, n);
  b.reward = parity.Random(n.items * b.steps, -2, 2);
  b.weight = parity.Random(n.items, 0.1, 1);
  for (std::int64_t i = 0; i < n.items; ++i) {
    b.action.push_back(std::int32_t(parity.Below(n.actions)));
    b.length.push_back(std::int32_t(1 + parity.Below(b.steps)));
    for (std::int64_t k = 0; k < b.steps; ++k) b.discount.push_back(1);
    if (i % 3 != 0) continue;  // terminated: the last observation is not used
    b.discount[std::size_t(i * b.steps + b.length.back() - 1)] = 0;
    b.target.value[std::size_t(i * n.numbers)] = NAN;
    b.target.advantage[std::size_t(i * n.actions * n.numbers)] = NAN;
  }
  if (n.items > 1 && n.actions > 2) {  // ties go to the first action
    for (const std::int64_t a : {1, 2}) {
      const std::int64_t at = (n.actions + a) * n.numbers;
      for (std::int64_t k = 0; k < n.numbers; ++k)
        b.online.advantage[std::size_t(at + k)] = k + 1 == n.numbers ? 40.0f : 0.0f;
    }
  }
  return b;
}

constexpr double kGamma = 0.9, kLow = -4, kHigh = 3.5;
using Kind = ValueReference::Kind;

struct Way {
  bool double_q, weighted, huber;
  double clip;
};
struct Wanted {
  Doubles64 dvalue, dadvantage, priority, summary = {0, 0, 0};
};

// Adds the gradient dq [A, K] with respect to combined values, through v + a - mean(a).
void AddGradient(const Sizes& n, const Doubles64& dq, Wanted* want) {
  Doubles64 sums;
  for (std::int64_t k = 0; k < n.numbers; ++k) {
    double sum = 0;
    for (std::int64_t a = 0; a < n.actions; ++a) sum += dq[std::size_t(a * n.numbers + k)];
    sums.push_back(sum);
  }
  want->dvalue.insert(want->dvalue.end(), sums.begin(), sums.end());
  for (std::size_t i = 0; i < dq.size(); ++i)
    want->dadvantage.push_back(dq[i] - sums[i % sums.size()] / double(n.actions));
}

Wanted Reference(const Batch& b, Kind kind, const Way& way) {
  const Sizes& n = b.n;
  const ValueReference values{.kind = kind,
                              .numbers = std::size_t(n.numbers),
                              .low = kLow,
                              .high = kHigh,
                              .huber = way.huber};
  Wanted want;
  for (std::int64_t i = 0; i < n.items; ++i) {
    const auto row = [&](const Heads& heads) {
      return Combined(n, &heads.value[std::size_t(i * n.numbers)],
                      &heads.advantage[std::size_t(i * n.actions * n.numbers)]);
    };
    double sum = 0, factor = 1;
    for (std::int64_t k = 0; k < b.length[std::size_t(i)]; ++k) {
      const double reward = b.reward[std::size_t(i * b.steps + k)];
      sum += factor * (way.clip > 0 ? std::clamp(reward, -way.clip, way.clip) : reward);
      factor *= kGamma * b.discount[std::size_t(i * b.steps + k)];
    }
    Doubles64 next(std::size_t(n.numbers), 0);
    if (factor != 0) {
      next = values.Of(row(b.target), values.Best(row(way.double_q ? b.online : b.target)));
    }
    const auto action = std::size_t(b.action[std::size_t(i)]);
    const Doubles64 out = values.Of(row(b.first), action);
    const auto item = values.Learn(out, next, [&](double z) { return sum + factor * z; });
    const double weight = way.weighted ? b.weight[std::size_t(i)] : 1;
    Doubles64 dq(std::size_t(n.actions * n.numbers), 0);
    for (std::size_t k = 0; k < values.numbers; ++k)
      dq[action * values.numbers + k] = weight / double(n.items) * item.dout[k];
    AddGradient(n, dq, &want);
    want.priority.push_back(item.priority);
    want.summary[0] += weight * item.loss / double(n.items);
    want.summary[1] += item.priority / double(n.items);
    want.summary[2] += values.Mean(out) / double(n.items);
  }
  return want;
}

// Inputs and outputs on the device.
template <class T>
struct Arrays {
  Arrays(Parity& parity, const Batch& b)
      : reward(parity.Upload(b.reward)),
        discount(parity.Upload(b.discount)),
        weight(parity.Upload(b.weight)),
        action(parity.Upload(b.action)),
        length(parity.Upload(b.length)),
        dvalue(parity.Output<T>(std::int64_t(b.first.value.size()))),
        dadvantage(parity.Output<T>(std::int64_t(b.first.advantage.size()))),
        priority(parity.Output<float>(b.n.items)),
        summary(parity.Output<DqnLossSummary>(1)),
        partial(parity.Output<double>(3 * b.n.items)) {
    for (const Heads* heads : {&b.first, &b.target, &b.online}) {
      value.push_back(parity.Upload(heads->value));
      advantage.push_back(parity.Upload(heads->advantage));
    }
  }
  DeviceArray<float> reward, discount, weight;
  DeviceArray<std::int32_t> action, length;
  DeviceArray<T> dvalue, dadvantage;
  DeviceArray<float> priority;
  DeviceArray<DqnLossSummary> summary;
  DeviceArray<double> partial;
  std::vector<DeviceArray<float>> value, advantage;  // first, target, online
};

template <class Input, class T>
Input InputOf(const Batch& b, const Way& way, const Arrays<T>& on) {
  Input in;
  in.batch = b.n.items;
  in.actions = b.n.actions;
  in.steps = b.steps;
  in.action = on.action.data();
  in.reward = on.reward.data();
  in.discount = on.discount.data();
  in.length = on.length.data();
  in.weight = way.weighted ? on.weight.data() : nullptr;
  in.gamma = kGamma;
  in.reward_clip = way.clip;
  return in;
}

template <class T>
void OnDevice(Parity& parity, const Batch& b, Kind kind, const Way& way, Arrays<T>* on) {
  Stream& stream = parity.stream();
  const float* const first = on->advantage[0].data();
  const float* const target = on->advantage[1].data();
  const float* const online = way.double_q ? on->advantage[2].data() : nullptr;
  const DuelingValues values{on->value[0].data(), on->value[1].data(),
                             way.double_q ? on->value[2].data() : nullptr};
  const LossOutput out{.dtype = kElement<T>,
                       .dq = on->dadvantage.data(),
                       .dvalue = on->dvalue.data(),
                       .priority = on->priority.data(),
                       .summary = on->summary.data(),
                       .partial = kind == Kind::kScalar ? nullptr : on->partial.data()};
  if (kind == Kind::kCategorical) {
    auto in = InputOf<CategoricalLossInput>(b, way, *on);
    in.support = {b.n.numbers, kLow, kHigh};
    in.logits = first, in.logits_target = target, in.logits_online = online;
    CategoricalLoss(stream, in, out, values);
  } else if (kind == Kind::kQuantile) {
    auto in = InputOf<QuantileLossInput>(b, way, *on);
    in.quantiles = b.n.numbers;
    in.quantile = first, in.quantile_target = target, in.quantile_online = online;
    QuantileLoss(stream, in, out, values);
  } else {
    auto in = InputOf<DqnLossInput>(b, way, *on);
    in.huber = way.huber;
    in.q = first, in.q_next_target = target, in.q_next_online = online;
    DqnLoss(stream, in, out, values);
  }
}

template <class T>
void Compare(Parity& parity, const Batch& b, Kind kind, const Way& way) {
  Arrays<T> on(parity, b);
  OnDevice(parity, b, kind, way, &on);
  const Wanted want = Reference(b, kind, way);
  // Computed in f64 from the same f32 and rounded once: by at most 2^-24, or 2^-8 for bf16. The
  // means stay f64, with another order of sums and another library's exponentials.
  const double rounding = kElement<T> == DType::kBF16 ? 4e-3 : 1e-6;
  parity.Close("dvalue", parity.DownloadFloats(on.dvalue), want.dvalue, rounding);
  parity.Close("dadvantage", parity.DownloadFloats(on.dadvantage), want.dadvantage, rounding);
  parity.Close("priority", parity.Download(on.priority), want.priority, 1e-6);
  const DqnLossSummary got = parity.Download(on.summary)[0];
  parity.Close("summary", Doubles64{got.loss, got.td_error_mean, got.q_mean}, want.summary, 1e-11);
}

constexpr Way kPlainWay{.double_q = false, .weighted = false, .huber = false, .clip = 0.5};
constexpr Way kWholeWay{.double_q = true, .weighted = true, .huber = true, .clip = 0};

template <Kind kKind>
void JoinsTheHeads(Parity& parity) {
  std::vector<Sizes> sizes = {{1, 2, 2}, {5, 6, 51}, {33, 3, 7}, {2, 18, 200}};
  if (kKind == Kind::kScalar) sizes = {{1, 2, 1}, {31, 5, 1}, {700, 3, 1}, {64, 18, 1}};
  if (parity.large()) sizes.push_back({512, 18, kKind == Kind::kScalar ? 1 : 200});
  for (const Sizes& n : sizes) {
    const Batch b = MakeBatch(parity, n);
    Compare<float>(parity, b, kKind, kWholeWay);
    Compare<float>(parity, b, kKind, kPlainWay);
    Compare<BF16>(parity, b, kKind, kWholeWay);
  }
}

// NaN only in the value head: of the first observation, and of the last one if it is used.
template <Kind kKind>
void WhatIsNotFiniteIsSeen(Parity& parity) {
  for (const bool last : {false, true}) {
    Batch b = MakeBatch(parity, {4, 3, kKind == Kind::kScalar ? 1 : 5});
    Heads& heads = last ? b.target : b.first;
    heads.value[std::size_t(b.n.numbers)] = NAN;  // in item 1, which did not terminate
    Arrays<float> on(parity, b);
    OnDevice(parity, b, kKind, kWholeWay, &on);
    parity.True("the loss is not finite", !std::isfinite(parity.Download(on.summary)[0].loss));
  }
}

}  // namespace

std::vector<ParityCase> DuelingCases() {
  return {{"Dueling.CombinesTheHeads", CombinesTheHeads},
          {"Dueling.JoinedInTheDqnLoss", JoinsTheHeads<Kind::kScalar>},
          {"Dueling.JoinedInTheCategoricalLoss", JoinsTheHeads<Kind::kCategorical>},
          {"Dueling.JoinedInTheQuantileLoss", JoinsTheHeads<Kind::kQuantile>},
          {"Dueling.WhatIsNotFiniteIsSeen", WhatIsNotFiniteIsSeen<Kind::kScalar>},
          {"Dueling.WhatIsNotFiniteIsSeenInAtoms", WhatIsNotFiniteIsSeen<Kind::kCategorical>},
          {"Dueling.WhatIsNotFiniteIsSeenInQuantiles", WhatIsNotFiniteIsSeen<Kind::kQuantile>}};
}

}  // namespace troop::cuda
