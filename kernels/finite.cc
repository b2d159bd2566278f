#include "kernels/finite.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace troop {
namespace {

constexpr std::size_t kBlock = 64;  // a fixed count: what the compiler turns into vectors

// By its bits: all ones in the exponent.
bool BlockIsFinite(const float* x) {
  constexpr std::uint32_t kExponent = 0x7F800000u;
  std::uint32_t bad = 0;
  for (std::size_t i = 0; i < kBlock; ++i) {
    bad |= std::uint32_t((std::bit_cast<std::uint32_t>(x[i]) & kExponent) == kExponent);
  }
  return bad == 0;
}

}  // namespace

bool AllFinite(std::span<const float> x) {
  for (; x.size() >= kBlock; x = x.subspan(kBlock)) {
    if (!BlockIsFinite(x.data())) return false;
  }
  return std::ranges::all_of(x, [](float v) { return std::isfinite(v); });
}

std::size_t FirstUnfinite(std::span<const float> x) {
  return std::size_t(std::ranges::find_if(x, [](float v) { return !std::isfinite(v); }) -
                     x.begin());
}

}  // namespace troop
