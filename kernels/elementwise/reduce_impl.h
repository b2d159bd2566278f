#pragma once

#pragma GCC optimize("O3")
#include "kernels/elementwise/reduce.h"

// Loops of reduce.h, compiled once per instruction set. TROOP_ISA names the copy:
// otherwise the linker could use an inline function of the AVX-512 copy on a machine without
// AVX-512.
namespace troop::TROOP_ISA {
namespace {

// Exact. Narrow rounds to nearest even and keeps NaN, as ToBF16.
inline float Widen(BF16 x) { return __builtin_bit_cast(float, std::uint32_t(x.bits) << 16); }
inline BF16 Narrow(float x) {
  const auto bits = __builtin_bit_cast(std::uint32_t, x);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const std::uint32_t nan = (bits >> 16) | 0x40u;
  return {std::uint16_t((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded)};
}

// Signed integers are added as unsigned ones, because signed overflow is undefined.
template <class T>
struct Add {
  static T Of(T a, T b) { return T(a + b); }
};
template <>
struct Add<std::int32_t> {
  static std::int32_t Of(std::int32_t a, std::int32_t b) {
    return std::int32_t(std::uint32_t(a) + std::uint32_t(b));
  }
};
template <>
struct Add<std::int64_t> {
  static std::int64_t Of(std::int64_t a, std::int64_t b) {
    return std::int64_t(std::uint64_t(a) + std::uint64_t(b));
  }
};
// a != a is true for NaN. With it, NaN on either side gives NaN. Without branches (| instead of ||)
// the loops vectorize.
template <class T>
struct Larger {
  static T Of(T a, T b) { return ((a > b) | (a != a)) ? a : b; }
};
template <class T>
struct Smaller {
  static T Of(T a, T b) { return ((a < b) | (a != a)) ? a : b; }
};

// ivdep allows vectorization although out may be a or b.
template <class T, template <class> class Operation>
void Loop(std::int64_t n, const void* a_in, const void* b_in, void* out_in) {
  const auto* a = static_cast<const T*>(a_in);
  const auto* b = static_cast<const T*>(b_in);
  auto* out = static_cast<T*>(out_in);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) out[i] = Operation<T>::Of(a[i], b[i]);
}

// bf16 is reduced in f32; min and max are exact there.
template <template <class> class Operation>
void LoopBF16(std::int64_t n, const void* a_in, const void* b_in, void* out_in) {
  const auto* a = static_cast<const BF16*>(a_in);
  const auto* b = static_cast<const BF16*>(b_in);
  auto* out = static_cast<BF16*>(out_in);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    out[i] = Narrow(Operation<float>::Of(Widen(a[i]), Widen(b[i])));
  }
}

// Dispatch on the element type.
template <template <class> class Operation>
void ReduceAs(DType dtype, std::int64_t n, const void* a, const void* b, void* out) {
  // u8 sums wrap as well, by the conversion to T.
  switch (dtype) {
    case DType::kF32:
      return Loop<float, Operation>(n, a, b, out);
    case DType::kF64:
      return Loop<double, Operation>(n, a, b, out);
    case DType::kBF16:
      return LoopBF16<Operation>(n, a, b, out);
    case DType::kU8:
      return Loop<std::uint8_t, Operation>(n, a, b, out);
    case DType::kI32:
      return Loop<std::int32_t, Operation>(n, a, b, out);
    case DType::kI64:
      return Loop<std::int64_t, Operation>(n, a, b, out);
    case DType::kU64:
      return Loop<std::uint64_t, Operation>(n, a, b, out);
    case DType::kU32:
      return Loop<std::uint32_t, Operation>(n, a, b, out);
  }
}

}  // namespace

void Reduce(const ReduceArgs& args) {
  const auto& [reduction, dtype, n, a, b, out] = args;
  // One loop per operation and type.
  switch (reduction) {
    case Reduction::kSum:
      return ReduceAs<Add>(dtype, n, a, b, out);
    case Reduction::kMax:
      return ReduceAs<Larger>(dtype, n, a, b, out);
    case Reduction::kMin:
      return ReduceAs<Smaller>(dtype, n, a, b, out);
  }
}

}  // namespace troop::TROOP_ISA
