#include "nn/policy_library/policy_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/base/philox.h"

namespace troop {
namespace {

struct Sizes {
  std::int64_t rows, columns, segments, length, row_step, segment_step;
};

// Plain loops in f64, for all instruction sets of this processor, around the sizes of tiles.
TEST(PolicyKernelsTest, ProductsMatchPlainLoops) {
  Rng rng({.run_seed = 3});
  for (const Sizes& s :
       {Sizes{1, 1, 1, 1, 1, 0}, Sizes{1, 64, 1, 4, 4, 0}, Sizes{2, 17, 1, 33, 33, 0},
        Sizes{7, 64, 3, 12, 8, 40}, Sizes{20, 32, 8, 32, 16, 336}, Sizes{16, 15, 1, 100, 100, 0},
        Sizes{13, 130, 2, 5, 5, 70}}) {
    const std::int64_t depth = s.segments * s.length;
    std::vector<float> weight(std::size_t(s.columns * depth)), bias(std::size_t(s.columns));
    std::vector<float> in(
        std::size_t((s.rows - 1) * s.row_step + (s.segments - 1) * s.segment_step + s.length));
    for (std::vector<float>* const all : {&weight, &bias, &in})
      for (float& x : *all) x = float(rng.Normal());
    const PackedWeights packed(weight.data(), bias.data(), s.columns, depth);
    for (int isa = 0; isa <= int(BestPolicyIsa()); ++isa) {
      std::vector<float> out(std::size_t(s.rows * s.columns) + 1, -77);
      Multiply(PolicyIsa(isa), {.weights = &packed,
                                .activation = PolicyActivation::kRelu,
                                .rows = s.rows,
                                .row_step = s.row_step,
                                .segments = s.segments,
                                .segment_step = s.segment_step,
                                .length = s.length,
                                .in = in.data(),
                                .out = out.data()});
      for (std::int64_t r = 0; r < s.rows; ++r) {
        for (std::int64_t c = 0; c < s.columns; ++c) {
          double sum = bias[std::size_t(c)];
          for (std::int64_t i = 0; i < depth; ++i)
            sum +=
                double(weight[std::size_t(c * depth + i)]) *
                double(
                    in[std::size_t(r * s.row_step + i / s.length * s.segment_step + i % s.length)]);
          ASSERT_NEAR(out[std::size_t(r * s.columns + c)], std::max(sum, 0.0),
                      1e-5 * std::sqrt(double(depth)))
              << "isa " << isa << ", row " << r << ", column " << c;
        }
      }
      EXPECT_EQ(out.back(), -77) << "a value after the last row";
    }
  }
}

TEST(PolicyKernelsTest, ReluPassesNan) {
  const float weight = 1, bias = 0, x = std::numeric_limits<float>::quiet_NaN();
  const PackedWeights packed(&weight, &bias, 1, 1);
  for (int isa = 0; isa <= int(BestPolicyIsa()); ++isa) {
    float out = 0;
    Multiply(PolicyIsa(isa), {.weights = &packed,
                              .activation = PolicyActivation::kRelu,
                              .rows = 1,
                              .row_step = 1,
                              .length = 1,
                              .in = &x,
                              .out = &out});
    EXPECT_TRUE(std::isnan(out)) << isa;
  }
}

TEST(PolicyKernelsTest, TanhIsAccurate) {
  for (double x = -12; x < 12; x += 0.0003) {
    const double want = std::tanh(double(float(x)));
    ASSERT_NEAR(PolicyTanh(float(x)), want, 4e-7 * std::abs(want) + 1e-12) << x;
  }
  EXPECT_TRUE(std::isnan(PolicyTanh(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_NEAR(PolicyTanh(std::numeric_limits<float>::infinity()), 1, 4e-7);
}

}  // namespace
}  // namespace troop
