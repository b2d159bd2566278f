#include "kernels/cuda/bias.h"

#include "kernels/cuda/launch.h"
#include "kernels/cuda/vectors.h"

namespace troop::cuda {
namespace {

constexpr int kThreads = 256;

TROOP_DEVICE float Activated(Epilogue epilogue, float z) {
  if (epilogue == Epilogue::kBiasRelu) return z > 0 ? z : z != z ? z : 0;  // NaN stays
  if (epilogue == Epilogue::kBiasGeluTanh)
    return 0.5f * z * (1 + tanhf(0.7978845608f * (z + 0.044715f * z * z * z)));
  return z;
}

template <class T>
TROOP_KERNEL void BiasKernel(Epilogue epilogue, std::int64_t m, std::int64_t n, std::int64_t ldc,
                             const float* bias, T* c) {
  const std::int64_t i = std::int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= m * n) return;
  const std::int64_t row = i / n, column = i % n;
  T* at = c + row * ldc + column;
  Put(at, Activated(epilogue, Get(at) + bias[column]));
}

// A block sums 32 columns: 32 threads side by side read a row's, eight such rows at a time; then
// the eight sums are added. The sum of many rows is a long way, but such gradients have few
// columns: a few blocks are under way while others multiply.
template <class T>
TROOP_KERNEL void SumRowsKernel(std::int64_t rows, std::int64_t n, std::int64_t stride, const T* x,
                                bool add, float* sum) {
  TROOP_SHARED(float, sums, 8 * 33);
  const int lane = int(threadIdx.x % 32), part = int(threadIdx.x / 32);
  const std::int64_t column = std::int64_t(blockIdx.x) * 32 + lane;
  float total[4] = {};
  if (column < n) {
    std::int64_t row = part;
    for (; row + 24 < rows; row += 32) {
      for (int j = 0; j < 4; ++j) total[j] += Get(x + (row + 8 * j) * stride + column);
    }
    for (; row < rows; row += 8) total[0] += Get(x + row * stride + column);
  }
  sums[part * 33 + lane] = (total[0] + total[1]) + (total[2] + total[3]);
  __syncthreads();
  if (part != 0 || column >= n) return;
  float all = 0;
  for (int i = 0; i < 8; ++i) all += sums[i * 33 + lane];
  sum[column] = add ? sum[column] + all : all;
}

}  // namespace

void BiasAndActivate(Stream& stream, Epilogue epilogue, std::int64_t m, std::int64_t n,
                     std::int64_t ldc, const float* bias, void* c, DType c_dtype) {
  const LaunchShape shape{dim3(unsigned(CeilDivide(m * n, kThreads))), dim3(kThreads)};
  const std::int64_t row = ldc > 0 ? ldc : n;
  if (c_dtype == DType::kBF16) {
    Launch(stream, "BiasAndActivate", shape, BiasKernel<BF16>, epilogue, m, n, row, bias,
           static_cast<BF16*>(c));
  } else {
    Launch(stream, "BiasAndActivate", shape, BiasKernel<float>, epilogue, m, n, row, bias,
           static_cast<float*>(c));
  }
}

void SumRows(Stream& stream, std::int64_t rows, std::int64_t n, const void* x, DType dtype,
             float* sum, bool add, std::int64_t stride) {
  if (stride == 0) stride = n;
  const LaunchShape shape{dim3(unsigned(CeilDivide(n, 32))), dim3(kThreads)};
  if (dtype == DType::kBF16) {
    Launch(stream, "SumRows", shape, SumRowsKernel<BF16>, rows, n, stride,
           static_cast<const BF16*>(x), add, sum);
  } else {
    Launch(stream, "SumRows", shape, SumRowsKernel<float>, rows, n, stride,
           static_cast<const float*>(x), add, sum);
  }
}

}  // namespace troop::cuda
