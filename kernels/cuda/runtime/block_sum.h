#pragma once

#include "kernels/cuda/runtime/device_code.h"

namespace troop::cuda {

// The sum of a block's kThreads values, to its first thread, in one order. Once in a kernel. Only
// for .cu files.
template <int kThreads>
TROOP_DEVICE double BlockSum(double x) {
  TROOP_SHARED(double, sums, kThreads / 32);
  x = WarpSum(x);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = x;
  __syncthreads();
  if (threadIdx.x >= 32) return 0;
  return WarpSum(threadIdx.x < kThreads / 32 ? sums[threadIdx.x] : 0.0);
}

}  // namespace troop::cuda
