#include "kernels/linear/matmul.h"

#include "tests/kernels/layer_check.h"

namespace troop {
namespace {

using test::ExpectNear;

// Random numbers as the kernel is given them, f32 that are no bf16 ones, and as it sees them.
struct F32 {
  F32(std::int64_t n, DType seen, std::uint64_t index) {
    Rng rng({7, Purpose::kTest, index});
    for (std::int64_t i = 0; i < n; ++i) {
      values.push_back(float(rng.Normal()));
      f64.push_back(seen == DType::kBF16 ? ToF32(ToBF16(values.back())) : values.back());
    }
  }
  std::vector<float> values;
  std::vector<double> f64;
};

std::int64_t At(std::int64_t row, std::int64_t column, std::int64_t stride, bool transposed) {
  return transposed ? column * stride + row : row * stride + column;
}

constexpr std::int64_t kSizes[][3] = {
    {1, 1, 1}, {3, 17, 5}, {33, 2, 70}, {64, 65, 16}, {5, 130, 31}};

// Both ways of both operands, rows wider than what is multiplied, and results that are added to.
void ExpectPlainLoops(MatMulFunction multiply, DType dtype,
                      std::span<const std::int64_t[3]> sizes) {
  std::uint64_t index = 0;
  for (const auto& [m, n, k] : sizes) {
    for (int way = 0; way < 4; ++way) {
      for (const std::int64_t wider : {0, 3}) {
        const bool ta = way & 1, tb = way & 2;
        const std::int64_t lda = (ta ? m : k) + wider, ldb = (tb ? k : n) + wider, ldc = n + wider;
        MatMulShape shape{.m = m, .n = n, .k = k, .transpose_a = ta, .transpose_b = tb};
        if (wider > 0) shape.lda = lda, shape.ldb = ldb, shape.ldc = ldc;
        const F32 a((ta ? k : m) * lda, dtype, ++index), b((tb ? n : k) * ldb, dtype, ++index);
        const F32 c(m * ldc, DType::kF32, ++index);
        for (const float beta : {0.0f, 1.0f}) {
          std::vector<double> expected = c.f64;
          Tensor got(DType::kF32, {m * ldc});
          for (std::int64_t i = 0; i < m * ldc; ++i) {
            const bool read = beta != 0 || i % ldc >= n;  // poison where it may not be
            got.data<float>()[i] = read ? c.values[std::size_t(i)] : NAN;
          }
          for (std::int64_t i = 0; i < m; ++i) {
            for (std::int64_t j = 0; j < n; ++j) {
              double sum = 0;
              for (std::int64_t l = 0; l < k; ++l) {
                sum +=
                    a.f64[std::size_t(At(i, l, lda, ta))] * b.f64[std::size_t(At(l, j, ldb, tb))];
              }
              double& out = expected[std::size_t(i * ldc + j)];
              out = sum + beta * out;
            }
          }
          multiply(shape, a.values.data(), b.values.data(), beta, got.data<float>());
          ExpectNear(got, expected, k, "product");
        }
      }
    }
  }
}

TEST(MatMulTest, MatchesReferenceForEveryShapeAndStride) {
  ExpectPlainLoops(&MatMul, DType::kF32, kSizes);
}

// Tiles of 14 x 32, blocks of 224 x 384: more of each than one, and no multiple of it.
TEST(MatMulTest, BF16MatchesReferenceOfRoundedOperands) {
  constexpr std::int64_t kBlocks[][3] = {{14, 32, 32}, {29, 33, 401}, {226, 31, 40}};
  for (const CpuLevel level : {CpuLevel::kPlain, BestCpuLevel()}) {
    ExpectPlainLoops(MatMulBF16For(level), DType::kBF16, kSizes);
    ExpectPlainLoops(MatMulBF16For(level), DType::kBF16, kBlocks);
  }
}

// Columns of b beyond a block.
TEST(MatMulTest, BF16MultipliesMoreColumnsThanABlock) {
  const std::vector<float> a = {1, 2}, b(2 * 3100, 0.5f);
  std::vector<float> c(3100, NAN);
  MatMulBF16({.m = 1, .n = 3100, .k = 2}, a.data(), b.data(), 0, c.data());
  for (const float x : c) ASSERT_EQ(x, 1.5f);
}

TEST(MatMulTest, BF16RoundsOperandsToNearest) {
  const float a = 1 + 0x1.8p-8f, b = 1;  // three quarters of the way to the next bf16 number
  for (const CpuLevel level : {CpuLevel::kPlain, BestCpuLevel()}) {
    float c = NAN;
    MatMulBF16For(level)({.m = 1, .n = 1, .k = 1}, &a, &b, 0, &c);
    EXPECT_EQ(c, ToF32(ToBF16(a)));
  }
}

TEST(MatMulTest, AcceptsZeroRows) {
  MatMul({.m = 0, .n = 4, .k = 3}, nullptr, nullptr, 0, nullptr);
}

}  // namespace
}  // namespace troop
