// Range checks of actions: one pass that copies, and a search for the fault only if there is one.

#include "envs/vector/action_check.h"

#include <cmath>

#include "core/base/check.h"

namespace troop {
namespace {

// Copies all and accumulates the check, which the compiler vectorizes; a wrong value is rare, so
// its index is found afterwards.
template <class Int>
Status CopyDiscrete(std::span<const Int> from, std::int64_t count, std::span<std::int32_t> to) {
  TROOP_CHECK(from.size() == to.size(), "{} actions for {}", from.size(), to.size());
  bool good = true;
  for (std::size_t i = 0; i < from.size(); ++i) {
    good &= from[i] >= 0 && from[i] < count;
    to[i] = std::int32_t(from[i]);
  }
  for (std::size_t i = 0; !good && i < from.size(); ++i) {
    if (from[i] >= 0 && from[i] < count) continue;
    return InvalidArgument("action {} of environment {} is outside 0 to {}", from[i], i, count - 1);
  }
  return Status::Ok();
}

}  // namespace

Status CopyDiscreteActions(std::span<const std::int64_t> from, std::int64_t count,
                           std::span<std::int32_t> to) {
  return CopyDiscrete(from, count, to);
}

Status CopyDiscreteActions(std::span<const std::int32_t> from, std::int64_t count,
                           std::span<std::int32_t> to) {
  return CopyDiscrete(from, count, to);
}

Status CopyContinuousActions(std::span<const float> from, const ActionSpec& spec,
                             std::span<float> to) {
  const std::size_t size = spec.low.size();
  TROOP_CHECK(from.size() == to.size() && size > 0 && from.size() % size == 0,
              "{} action elements for {}, {} each", from.size(), to.size(), size);
  for (std::size_t i = 0; i < from.size(); ++i) {
    const std::size_t element = i % size;
    // Negated, so that NaN is an error too.
    if (!(from[i] >= spec.low[element] && from[i] <= spec.high[element])) {
      return InvalidArgument(
          "action[{}] of environment {} is {}, must be within [{}, {}]; clip it first", element,
          i / size, from[i], spec.low[element], spec.high[element]);
    }
    if (spec.integers && from[i] != std::trunc(from[i])) {
      return InvalidArgument("action[{}] of environment {} is {}, must be an integer", element,
                             i / size, from[i]);
    }
    to[i] = from[i];
  }
  return Status::Ok();
}

}  // namespace troop
