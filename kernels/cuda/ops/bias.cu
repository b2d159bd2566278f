// Bias with activation, and sums over rows.
#include "kernels/cuda/ops/bias.h"

#include "kernels/cuda/runtime/launch.h"
#include "kernels/cuda/runtime/vector_types.h"

namespace troop::cuda {
namespace {

constexpr int kThreads = 256;

TROOP_DEVICE float Activated(Epilogue epilogue, float z) {
  if (epilogue == Epilogue::kBiasRelu) return z > 0 ? z : z != z ? z : 0;  // NaN stays NaN
  if (epilogue == Epilogue::kBiasGeluTanh)
    return 0.5f * z * (1 + tanhf(0.7978845608f * (z + 0.044715f * z * z * z)));
  return z;
}

// One thread per element; rows are ldc apart.
template <class T>
TROOP_KERNEL void BiasKernel(Epilogue epilogue, std::int64_t m, std::int64_t n, std::int64_t ldc,
                             const T* bias, T* c) {
  const std::int64_t i = std::int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= m * n) return;
  const std::int64_t row = i / n, column = i % n;
  T* at = c + row * ldc + column;
  Put(at, Activated(epilogue, Get(at) + Get(bias + column)));
}

// Tiling of SumRows. A block sums kColumns columns of `each` rows: a thread reads eight columns,
// eight threads read a row, and 32 rows are read at a time, with four such reads in flight.
// blockIdx.y is the part.
constexpr int kColumns = 64, kEight = 8, kAcross = kColumns / kEight, kDown = kThreads / kAcross;
constexpr int kUnderWay = 4;
constexpr std::int64_t kRowsOfPart = 512;

// SumRowsArgs as a kernel argument. each: rows of a part.
template <class T>
struct SumShape {
  std::int64_t rows, n, stride, each;
  const T* x;
  const std::int32_t* group;
  std::int32_t number;
};

// kWide: n and the addresses of rows are multiples of eight elements. kSome: only the rows of a
// group.
template <class T, bool kWide, bool kSome>
TROOP_KERNEL void __launch_bounds__(kThreads) SumRowsKernel(SumShape<T> s, bool add, float* sum) {
  // Partial sums of all threads; rows are padded against bank conflicts.
  TROOP_SHARED(float, sums, kDown*(kColumns + 1));
  const int across = int(threadIdx.x) % kAcross, down = int(threadIdx.x) / kAcross;
  const std::int64_t first_column = std::int64_t(blockIdx.x) * kColumns;
  const std::int64_t column = first_column + across * kEight, first = blockIdx.y * s.each;
  const std::int64_t end = s.rows - first < s.each ? s.rows : first + s.each;
  float total[kEight] = {};
  // The eight columns of this thread in a row.
  const auto read = [&](std::int64_t row, float(&x)[kEight]) {
    const T* const at = s.x + row * s.stride + column;
    if (kSome && s.group[row] != s.number) {
      TROOP_UNROLL for (int j = 0; j < kEight; ++j) x[j] = 0;
    } else if constexpr (kWide) {
      GetVector(at, x);
    } else {
      TROOP_UNROLL for (int j = 0; j < kEight; ++j) x[j] = column + j < s.n ? Get(at + j) : 0;
    }
  };
  if (column < s.n) {
    std::int64_t row = first + down;
    for (; row + (kUnderWay - 1) * kDown < end; row += kUnderWay * kDown) {
      float x[kUnderWay][kEight];
      TROOP_UNROLL for (int i = 0; i < kUnderWay; ++i) read(row + i * kDown, x[i]);
      TROOP_UNROLL for (int i = 0; i < kUnderWay; ++i) {
        TROOP_UNROLL for (int j = 0; j < kEight; ++j) total[j] += x[i][j];
      }
    }
    for (; row < end; row += kDown) {
      float x[kEight];
      read(row, x);
      TROOP_UNROLL for (int j = 0; j < kEight; ++j) total[j] += x[j];
    }
  }
  TROOP_UNROLL for (int j = 0; j < kEight; ++j) {
    sums[down * (kColumns + 1) + across * kEight + j] = total[j];
  }
  __syncthreads();
  const std::int64_t mine = first_column + threadIdx.x;
  if (threadIdx.x >= kColumns || mine >= s.n) return;
  // The first threads add the partial sums of a column.
  float all = 0;
  for (int i = 0; i < kDown; ++i) all += sums[i * (kColumns + 1) + int(threadIdx.x)];
  float* const to = sum + std::int64_t(blockIdx.y) * s.n + mine;
  *to = add ? *to + all : all;
}

// sum (+)= Σ over the parts, in their order.
TROOP_KERNEL void SumOfPartsKernel(std::int64_t n, std::int64_t parts, const float* partial,
                                   bool add, float* sum) {
  const std::int64_t i = std::int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= n) return;
  float all = add ? sum[i] : 0;
  for (std::int64_t p = 0; p < parts; ++p) all += partial[p * n + i];
  sum[i] = all;
}

// Parts of kRowsOfPart rows, summed in parallel.
std::int64_t PartsOf(std::int64_t rows) { return CeilDivide(rows, kRowsOfPart); }

template <class T>
void RunSumRows(Stream& stream, const SumRowsArgs& args) {
  const std::int64_t stride = args.stride > 0 ? args.stride : args.n;
  // Without workspace there is one part.
  const std::int64_t parts = args.workspace != nullptr ? PartsOf(args.rows) : 1;
  // Vector accesses need aligned rows.
  const bool wide = args.n % kEight == 0 && stride % kEight == 0 &&
                    reinterpret_cast<std::uintptr_t>(args.x) % 16 == 0;
  const SumShape<T> s{args.rows,
                      args.n,
                      stride,
                      parts > 1 ? kRowsOfPart : args.rows,
                      static_cast<const T*>(args.x),
                      args.group,
                      args.number};
  const LaunchShape shape{dim3(unsigned(CeilDivide(args.n, kColumns)), unsigned(parts)),
                          dim3(kThreads)};
  const auto kernel = args.group != nullptr
                          ? (wide ? SumRowsKernel<T, true, true> : SumRowsKernel<T, false, true>)
                          : (wide ? SumRowsKernel<T, true, false> : SumRowsKernel<T, false, false>);
  Launch(stream, "SumRows", shape, kernel, s, parts == 1 && args.add,
         parts == 1 ? args.sum : args.workspace);
  if (parts == 1) return;
  Launch(stream, "SumRows of parts", {dim3(unsigned(CeilDivide(args.n, kThreads))), dim3(kThreads)},
         SumOfPartsKernel, args.n, parts, args.workspace, args.add, args.sum);
}

}  // namespace

void BiasAndActivate(Stream& stream, const BiasAndActivateArgs& args) {
  const std::int64_t m = args.m, n = args.n, row = args.ldc > 0 ? args.ldc : n;
  const LaunchShape shape{dim3(unsigned(CeilDivide(m * n, kThreads))), dim3(kThreads)};
  if (args.c_dtype == DType::kBF16) {
    Launch(stream, "BiasAndActivate", shape, BiasKernel<BF16>, args.epilogue, m, n, row,
           static_cast<const BF16*>(args.bias), static_cast<BF16*>(args.c));
  } else {
    Launch(stream, "BiasAndActivate", shape, BiasKernel<float>, args.epilogue, m, n, row,
           static_cast<const float*>(args.bias), static_cast<float*>(args.c));
  }
}

void SumRows(Stream& stream, const SumRowsArgs& args) {
  if (args.dtype == DType::kBF16) {
    RunSumRows<BF16>(stream, args);
  } else {
    RunSumRows<float>(stream, args);
  }
}

std::int64_t SumRowsWorkspace(std::int64_t rows, std::int64_t n) { return PartsOf(rows) * n; }

}  // namespace troop::cuda
