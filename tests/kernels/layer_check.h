#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/base/philox.h"
#include "kernels/elementwise/cast.h"
#include "kernels/onednn/layer_kernel.h"

namespace troop::test {

// Random numbers as the kernel sees them (f32 or bf16) and the same numbers in f64.
struct Operand {
  Operand(std::int64_t n, DType dtype, std::uint64_t index)
      : f64(std::size_t(n)), data(dtype, {n}) {
    Rng rng({7, Purpose::kTest, index});
    for (std::int64_t i = 0; i < n; ++i) {
      float x = float(rng.Normal());
      if (dtype == DType::kBF16) {
        data.data<BF16>()[i] = ToBF16(x);
        x = ToF32(data.data<BF16>()[i]);
      } else {
        data.data<float>()[i] = x;
      }
      f64[std::size_t(i)] = x;
    }
  }
  std::vector<double> f64;
  Tensor data;
};

inline double At(const Tensor& t, std::int64_t i) {
  return t.dtype() == DType::kF32 ? t.data<float>()[i] : ToF32(t.data<BF16>()[i]);
}

// |got - expected| against sums of `terms` products of standard normals: their spread is
// sqrt(terms), each f32 operation adds 2^-24 of the running sum; 40 of them cover the worst of a
// million outputs. A result stored as bf16 is off by another 2^-8 of itself (half that when rounded
// well).
inline void ExpectNear(const Tensor& got, const std::vector<double>& expected, std::int64_t terms,
                       const char* what) {
  ASSERT_EQ(std::size_t(got.elements()), expected.size()) << what;
  const double spread =
      std::sqrt(double(terms)) * 40 / 16777216.0 * (1 + std::sqrt(double(terms)) / 8);
  for (std::int64_t i = 0; i < got.elements(); ++i) {
    const double e = expected[std::size_t(i)];
    const double rounding = got.dtype() == DType::kBF16 ? std::abs(e) / 256 : 0;
    ASSERT_NEAR(At(got, i), e, spread + rounding) << what << " at " << i;
  }
}

}  // namespace troop::test
