#pragma once

#include "kernels/cuda/runtime/device_code.h"

namespace troop::cuda {

// Sum over the values of a block's kThreads threads, in a fixed order. Thread 0 gets the sum. Call
// it at most once per kernel, as the shared array is not reused safely. Only for .cu files.
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
