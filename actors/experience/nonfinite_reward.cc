// Implements the search for non-finite and very large values in steps.

#include "actors/experience/nonfinite_reward.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/tensor/trajectory.h"
#include "kernels/elementwise/is_finite.h"

namespace troop {

std::string ToString(const NonFiniteValue& bad) {
  const float value = std::isnan(bad.value) ? std::abs(bad.value) : bad.value;  // not "-nan"
  if (bad.index < 0) return fmt::format("{} is {}", bad.what, value);
  return fmt::format("{}[{}] is {}", bad.what, bad.index, value);
}

std::string DescribeOrigin(std::string_view what, const StepName& step) {
  return fmt::format(
      "{}: {} at step {} of episode {} of environment {} (seed {}, weights of update {})", step.env,
      what, step.step, step.episode, step.environment, step.seed, UpdatesOf(step.version));
}

// A tensor of rank 1 has one scalar per row, which needs no index.
std::optional<NonFiniteValue> FindNonFinite(std::string_view what, const ConstTensor& rows,
                                            std::size_t row) {
  // Integers are always finite.
  if (rows.dtype() != DType::kF32) return std::nullopt;
  const std::span<const float> all = rows.as<float>();
  const std::size_t size = all.size() / std::size_t(rows.dim(0));
  const std::span<const float> x = all.subspan(row * size, size);
  const std::size_t at = FirstNonFinite(x);
  if (at == x.size()) return std::nullopt;
  // A row of one scalar is named without an index, such as a reward.
  const bool one = rows.shape().rank() == 1;
  return NonFiniteValue{.what = what, .index = one ? -1 : std::int64_t(at), .value = x[at]};
}

// Finite values only; FindNonFinite reports the others.
std::optional<NonFiniteValue> FindSuspectNumber(std::string_view what, const ConstTensor& rows,
                                                std::size_t row) {
  if (rows.dtype() != DType::kF32) return std::nullopt;
  const std::span<const float> all = rows.as<float>();
  const std::size_t size = all.size() / std::size_t(rows.dim(0));
  const std::span<const float> x = all.subspan(row * size, size);
  const auto at = std::ranges::find_if(
      x, [](float v) { return std::abs(v) >= kSuspiciousMagnitude && std::isfinite(v); });
  if (at == x.end()) return std::nullopt;
  const bool one = rows.shape().rank() == 1;
  return NonFiniteValue{.what = what, .index = one ? -1 : at - x.begin(), .value = *at};
}

bool AnySuspectNumber(const ConstTensor& rows) {
  if (rows.dtype() != DType::kF32) return false;
  bool any = false;  // no early exit, so that it vectorizes
  for (const float v : rows.as<float>()) any |= std::abs(v) >= kSuspiciousMagnitude;
  return any;
}

bool AnyNonFinite(const ConstTensor& rows) {
  return rows.dtype() == DType::kF32 && !AllFinite(rows.as<float>());
}

}  // namespace troop
