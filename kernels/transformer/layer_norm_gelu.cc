// Selection of the transformer kernels, and operations on rows that need only vector additions.
#include "kernels/transformer/layer_norm_gelu.h"

#include <cstring>

#include "kernels/optim/optimizer_step.h"

namespace troop {

namespace plain {
extern const TransformerKernels kTransformerKernels;
}
namespace avx2 {
extern const TransformerKernels kTransformerKernels;
}
namespace avx512 {
extern const TransformerKernels kTransformerKernels;
}

const TransformerKernels& TransformerKernelsFor(CpuLevel level) {
  if (level >= CpuLevel::kAvx512) return avx512::kTransformerKernels;
  return level == CpuLevel::kAvx2 ? avx2::kTransformerKernels : plain::kTransformerKernels;
}

// A weight of 1 adds x itself, without rounding a product.
void AddInto(std::int64_t n, const float* x, float* y) {
  static const OptimizerKernels& kernels = OptimizerKernelsFor(BestCpuLevel());
  kernels.add_scaled(n, 1, x, y);
}

void GatherRows(std::span<const std::int32_t> ids, std::int64_t width, const float* table,
                bool accumulate, float* out) {
  for (const std::int32_t id : ids) {
    // out += or out = the row of the table.
    if (accumulate) {
      AddInto(width, table + id * width, out);
    } else {
      std::memcpy(out, table + id * width, std::size_t(width) * sizeof(float));
    }
    out += width;
  }
}

// Equal ids add up, so the rows are processed in order.
void ScatterAddRows(std::span<const std::int32_t> ids, std::int64_t width, const float* dout,
                    float* dtable) {
  for (const std::int32_t id : ids) {
    AddInto(width, dout, dtable + id * width);
    dout += width;
  }
}

// A stride of 0 stands for rows without gaps.
void AddToRows(std::int64_t rows, std::int64_t n, const float* bias, float* x,
               std::int64_t stride) {
  for (std::int64_t r = 0; r < rows; ++r) AddInto(n, bias, x + r * (stride == 0 ? n : stride));
}

void SumOfRows(std::int64_t rows, std::int64_t n, const float* dx, float* dbias,
               std::int64_t stride) {
  for (std::int64_t r = 0; r < rows; ++r) AddInto(n, dx + r * (stride == 0 ? n : stride), dbias);
}

}  // namespace troop
