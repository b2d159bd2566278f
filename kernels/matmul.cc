#include "kernels/matmul.h"

#include <dnnl.h>

#include "core/check.h"
#include "kernels/dnnl_layer.h"

namespace troop {

void MatMul(const MatMulShape& s, const float* a, const float* b, float beta, float* c) {
  if (s.m == 0 || s.n == 0) return;
  TROOP_CHECK(s.m > 0 && s.n > 0 && s.k > 0, "a product of {} x {} x {}", s.m, s.k, s.n);
  PrepareKernelThread();
  const std::int64_t lda = s.lda != 0 ? s.lda : s.transpose_a ? s.m : s.k;
  const std::int64_t ldb = s.ldb != 0 ? s.ldb : s.transpose_b ? s.k : s.n;
  const dnnl_status_t status =
      dnnl_sgemm(s.transpose_a ? 'T' : 'N', s.transpose_b ? 'T' : 'N', s.m, s.n, s.k, 1.0f, a, lda,
                 b, ldb, beta, c, s.ldc != 0 ? s.ldc : s.n);
  TROOP_CHECK(status == dnnl_success, "oneDNN sgemm of {} x {} x {}: status {}", s.m, s.k, s.n,
              int(status));
}

}  // namespace troop
