// Implements the value forms: their checks, mean values, and gradients.
#include "nn/models/value_head.h"

#include <algorithm>
#include <numeric>

#include "core/base/check.h"

namespace troop {

using Kind = ValueHead::Kind;

ValueHead GetValueHead(const ModelSetup& setup) {
  switch (setup.critic) {
    case CriticKind::kScalar:
      break;
    case CriticKind::kCategorical:
      return {setup.critic, setup.atoms, setup.v_min, setup.v_max};
    case CriticKind::kQuantile:
      return {.kind = setup.critic, .numbers = setup.atoms};
  }
  return {};
}

// Atoms must increase strictly: their spacing is a divisor.
Status CheckValueHead(const ModelSetup& setup) {
  const ValueHead form = GetValueHead(setup);
  if (form.kind == Kind::kCategorical && (setup.atoms < 2 || !(setup.v_min < setup.v_max))) {
    return InvalidArgument(
        "learner.atoms is {} (at least 2) from v_min = {} to v_max = {}, which must increase",
        setup.atoms, setup.v_min, setup.v_max);
  }
  if (form.numbers < 1)
    return InvalidArgument("learner.atoms is {}, must be at least 1", setup.atoms);
  return Status::Ok();
}

// Scalar: a copy. Categorical: the mean of the atoms. Quantile: the mean of the quantiles, summed
// in f64.
void ExpectedValues(const ValueHead& form, std::span<const float> out, std::span<float> q) {
  const auto k = std::size_t(form.numbers);
  TROOP_CHECK(out.size() == q.size() * k, "{} outputs for {} values of size {}", out.size(),
              q.size(), k);
  switch (form.kind) {
    case Kind::kScalar:
      std::ranges::copy(out, q.begin());
      return;
    case Kind::kCategorical:
      return ExpectedValues(form.support(), std::int64_t(q.size()), out.data(), q.data());
    case Kind::kQuantile:
      for (std::size_t i = 0; i < q.size(); ++i) {
        const auto of = out.subspan(i * k, k);
        q[i] = float(std::accumulate(of.begin(), of.end(), 0.0) / double(k));
      }
  }
}

// The mean of scalars and quantiles is linear, so their gradient is constant.
void ExpectedValueGradient(const ValueHead& form, std::span<const float> out, double scale,
                           std::span<float> dout) {
  if (form.kind == Kind::kCategorical) {
    return ExpectedValueGradient(form.support(), std::int64_t(out.size()) / form.numbers,
                                 out.data(), scale, dout.data());
  }
  std::ranges::fill(dout, float(scale / double(form.numbers)));
}

}  // namespace troop
