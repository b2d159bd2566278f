// Matrix products: f32 by oneDNN; bf16 by matmul_avx512bf16.cc, or as a rounded f32 product.
#include "kernels/linear/matmul.h"

#include <dnnl.h>

#include "core/base/buffer.h"
#include "core/base/check.h"
#include "kernels/elementwise/cast.h"
#include "kernels/linear/matmul_bf16.h"
#include "kernels/onednn/onednn_layer.h"

namespace troop {
namespace {

// The shape with explicit leading dimensions in place of 0.
MatMulShape Strided(const MatMulShape& shape) {
  MatMulShape s = shape;
  TROOP_CHECK(s.m >= 0 && s.n >= 0 && s.k > 0, "a product of {} x {} x {}", s.m, s.k, s.n);
  if (s.lda == 0) s.lda = s.transpose_a ? s.m : s.k;
  if (s.ldb == 0) s.ldb = s.transpose_b ? s.k : s.n;
  if (s.ldc == 0) s.ldc = s.n;
  return s;
}

// Scratch of the calling thread that only grows. which: 0 or 1.
template <class T>
T* ThreadScratch(int which, std::size_t count) {
  thread_local MutableBuffer buffers[2];
  MutableBuffer& buffer = buffers[which];
  if (buffer.size() < count * sizeof(T)) buffer = MutableBuffer(count * sizeof(T));
  return reinterpret_cast<T*>(buffer.data());
}

// bf16 with vdpbf16ps.
void MatMulNative(const MatMulShape& shape, const float* a, const float* b, float beta, float* c) {
  if (shape.m == 0 || shape.n == 0) return;
  const MatMulShape s = Strided(shape);
  const MatMulBlocks blocks = BlocksOf(s);
  MatMulAvx512Bf16({.shape = s,
                    .a = a,
                    .b = b,
                    .beta = beta,
                    .c = c,
                    .packed_a = ThreadScratch<std::uint32_t>(0, blocks.a_words()),
                    .packed_b = ThreadScratch<std::uint32_t>(1, blocks.b_words())});
}

// x [rows, n] with row stride `stride`, rounded to bf16 and stored densely as f32.
const float* Rounded(int which, std::int64_t rows, std::int64_t n, const float* x,
                     std::int64_t stride) {
  float* const out = ThreadScratch<float>(which, std::size_t(rows * n));
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t i = 0; i < n; ++i) out[r * n + i] = ToF32(ToBF16(x[r * stride + i]));
  }
  return out;
}

// bf16 on other processors: the same rounding, then an f32 product.
void MatMulRounded(const MatMulShape& shape, const float* a, const float* b, float beta, float* c) {
  if (shape.m == 0 || shape.n == 0) return;
  MatMulShape s = Strided(shape);
  const float* const left =
      Rounded(0, s.transpose_a ? s.k : s.m, s.transpose_a ? s.m : s.k, a, s.lda);
  const float* const right =
      Rounded(1, s.transpose_b ? s.n : s.k, s.transpose_b ? s.k : s.n, b, s.ldb);
  s.lda = s.ldb = 0;
  MatMul(s, left, right, beta, c);
}

}  // namespace

void MatMul(const MatMulShape& shape, const float* a, const float* b, float beta, float* c) {
  if (shape.m == 0 || shape.n == 0) return;
  const MatMulShape s = Strided(shape);
  // dnnl_sgemm is row-major.
  PrepareKernelThread();
  const dnnl_status_t status = dnnl_sgemm(s.transpose_a ? 'T' : 'N', s.transpose_b ? 'T' : 'N', s.m,
                                          s.n, s.k, 1.0f, a, s.lda, b, s.ldb, beta, c, s.ldc);
  TROOP_CHECK(status == dnnl_success, "oneDNN sgemm of {} x {} x {}: status {}", s.m, s.k, s.n,
              int(status));
}

MatMulFunction MatMulBF16For(CpuLevel level) {
  return level >= CpuLevel::kAvx512Bf16 ? &MatMulNative : &MatMulRounded;
}

void MatMulBF16(const MatMulShape& shape, const float* a, const float* b, float beta, float* c) {
  static const MatMulFunction best = MatMulBF16For(BestCpuLevel());
  best(shape, a, b, beta, c);
}

}  // namespace troop
