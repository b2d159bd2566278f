// Tests for NaN and infinity, by blocks that the compiler vectorizes.
#include "kernels/elementwise/is_finite.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "core/base/check.h"

namespace troop {
namespace {

constexpr std::size_t kBlock = 64;  // a constant count, so that the compiler vectorizes

// Not finite: all exponent bits are set. Integer tests vectorize without branches.
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

std::size_t FirstNonFinite(std::span<const float> x) {
  std::size_t begin = 0;
  while (x.size() - begin >= kBlock && BlockIsFinite(x.data() + begin)) begin += kBlock;
  // The first failing block, or the rest.
  const auto rest = x.subspan(begin);
  return begin + std::size_t(std::ranges::find_if(rest, [](float v) { return !std::isfinite(v); }) -
                             rest.begin());
}

std::size_t CopyFinite(std::span<const float> from, std::span<float> to) {
  TROOP_CHECK(from.size() == to.size(), "cannot copy {} values to {}", from.size(), to.size());
  std::size_t begin = 0;
  for (; from.size() - begin >= kBlock; begin += kBlock) {
    if (!BlockIsFinite(from.data() + begin)) return begin + FirstNonFinite(from.subspan(begin));
    std::copy_n(from.data() + begin, kBlock, to.data() + begin);
  }
  // The rest is copied as a whole; the contents after a non-finite element are unspecified.
  std::ranges::copy(from.subspan(begin), to.begin() + std::ptrdiff_t(begin));
  return begin + FirstNonFinite(from.subspan(begin));
}

}  // namespace troop
