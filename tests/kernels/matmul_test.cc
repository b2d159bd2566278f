#include "kernels/matmul.h"

#include "tests/kernels/layer_check.h"

namespace troop {
namespace {

using testing::ExpectNear;
using testing::Operand;

std::int64_t At(std::int64_t row, std::int64_t column, std::int64_t stride, bool transposed) {
  return transposed ? column * stride + row : row * stride + column;
}

// Both ways of both operands, rows wider than what is multiplied, and results that are added to.
TEST(MatMulTest, EqualsPlainLoopsForEveryShapeAndStride) {
  const std::int64_t sizes[][3] = {{1, 1, 1}, {3, 17, 5}, {33, 2, 70}, {64, 65, 16}, {5, 130, 31}};
  std::uint64_t index = 0;
  for (const auto& [m, n, k] : sizes) {
    for (int way = 0; way < 4; ++way) {
      for (const std::int64_t wider : {0, 3}) {
        const bool ta = way & 1, tb = way & 2;
        const MatMulShape shape{.m = m,
                                .n = n,
                                .k = k,
                                .transpose_a = ta,
                                .transpose_b = tb,
                                .lda = wider == 0 ? 0 : (ta ? m : k) + wider,
                                .ldb = wider == 0 ? 0 : (tb ? k : n) + wider,
                                .ldc = wider == 0 ? 0 : n + wider};
        const std::int64_t lda = (ta ? m : k) + wider, ldb = (tb ? k : n) + wider, ldc = n + wider;
        const Operand a((ta ? k : m) * lda, DType::kF32, ++index);
        const Operand b((tb ? n : k) * ldb, DType::kF32, ++index);
        const Operand c(m * ldc, DType::kF32, ++index);
        for (const float beta : {0.0f, 1.0f}) {
          std::vector<double> expected = c.f64;
          Tensor got(DType::kF32, {m * ldc});
          for (std::int64_t i = 0; i < m * ldc; ++i) {
            const bool read = beta != 0 || i % ldc >= n;  // poison where it may not be
            got.data<float>()[i] = read ? c.data.data<float>()[i] : NAN;
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
          MatMul(shape, a.data.data<float>(), b.data.data<float>(), beta, got.data<float>());
          ExpectNear(got, expected, k, "product");
        }
      }
    }
  }
}

TEST(MatMulTest, NothingIsDoneForNoRows) {
  MatMul({.m = 0, .n = 4, .k = 3}, nullptr, nullptr, 0, nullptr);
}

}  // namespace
}  // namespace troop
