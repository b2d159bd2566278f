#pragma once

#include <cstddef>
#include <cstdint>

#include "core/tensor/dtype.h"

// The language of kernels: CUDA C++, plus functions for instructions that need PTX. nvcc compiles
// them to the instructions. For a C++ compiler (in tests) emulator.h implements each of them, and
// the same source runs on a CPU, block by block, with all threads, barriers and shuffles.
//
// Rules that keep both working: shared memory only by TROOP_SHARED and DynamicShared(); warp
// functions pass their mask; inline PTX and CUDA headers only in this file.
#ifdef __CUDACC__

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#define TROOP_KERNEL __global__
#define TROOP_DEVICE __device__ __forceinline__
#define TROOP_HOST_DEVICE __host__ __device__ __forceinline__
// Unrolls a loop with constant bounds, so that the arrays it indexes stay in registers.
#define TROOP_UNROLL _Pragma("unroll")
// Array of `n` (a constant) uninitialized elements, shared by the threads of a block.
#define TROOP_SHARED(T, name, n) __shared__ __align__(16) T name[n]

namespace troop::cuda {

// The block's dynamic shared memory, 128-byte aligned.
TROOP_DEVICE std::byte* DynamicShared() {
  extern __shared__ __align__(128) unsigned char troop_dynamic_shared[];
  return reinterpret_cast<std::byte*>(troop_dynamic_shared);
}

// Address in the shared memory window, as PTX instructions take it.
TROOP_DEVICE unsigned SharedAddress(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

// Asynchronous copy of 16 bytes from global to shared memory, both 16-byte aligned. Complete after
// CopyWait. If not `valid`, writes zeros and does not read from. CopyCommit groups the preceding
// copies of the thread; CopyWait<N> waits until at most N of its groups are in flight. Other
// threads see the data after a barrier.
TROOP_DEVICE void CopyAsync16(void* to, const void* from, bool valid = true) {
#if __CUDA_ARCH__ >= 800
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(SharedAddress(to)),
               "l"(from), "r"(bytes)
               : "memory");
#else
  *static_cast<uint4*>(to) = valid ? *static_cast<const uint4*>(from) : make_uint4(0, 0, 0, 0);
#endif
}
TROOP_DEVICE void CopyCommit() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;\n" ::: "memory");
#endif
}
template <int kUnderWay>
TROOP_DEVICE void CopyWait() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kUnderWay) : "memory");
#endif
}

// Loads four 8 x 8 matrices of 16-bit elements from shared memory. Lane l passes the address of row
// l % 8 of matrix l / 8 (16 bytes, 16-byte aligned). r[i] receives row l / 4, columns 2 (l % 4) and
// the next, of matrix i; the transposed version swaps row and column.
TROOP_DEVICE void LoadMatrix4(std::uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(SharedAddress(row))
               : "memory");
}
TROOP_DEVICE void LoadMatrix4Transposed(std::uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(SharedAddress(row))
               : "memory");
}

// d [16, 8] += a [16, 16] b [16, 8], bf16 inputs, f32 sums, distributed over a warp (PTX ISA,
// mma.m16n8k16). With g = lane / 4 and t = lane % 4:
//   a[0], a[1]: rows g, g + 8 of columns 2t, 2t + 1; a[2], a[3]: the same rows of columns 2t + 8,
//   2t + 9;
//   b[0], b[1]: of column g, rows 2t, 2t + 1, and rows 2t + 8, 2t + 9;
//   d[0], d[1]: row g, columns 2t, 2t + 1; d[2], d[3]: row g + 8.
TROOP_DEVICE void MultiplyBF16(float (&d)[4], const std::uint32_t (&a)[4],
                               const std::uint32_t (&b)[2]) {
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  __trap();  // needs compute capability 8.0, which callers check in Device::info()
#endif
}
// d [16, 8] += a [16, 8] b [8, 8] with TF32 inputs, f32 whose lower 13 bits are ignored (m16n8k8):
//   a[0], a[1]: rows g, g + 8 of column t; a[2], a[3]: the same rows of column t + 4;
//   b[0], b[1]: rows t, t + 4 of column g; d: as above.
TROOP_DEVICE void MultiplyTF32(float (&d)[4], const std::uint32_t (&a)[4],
                               const std::uint32_t (&b)[2]) {
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  __trap();
#endif
}
// Rounds to nearest, ties away from zero, like the instruction.
TROOP_DEVICE std::uint32_t ToTF32(float x) {
  std::uint32_t bits;
#if __CUDA_ARCH__ >= 800
  asm("cvt.rna.tf32.f32 %0, %1;\n" : "=r"(bits) : "f"(x));
#else
  bits = __float_as_uint(x);
#endif
  return bits;
}

// Rounds to nearest even.
TROOP_DEVICE BF16 ToBF16(float x) { return {__bfloat16_as_ushort(__float2bfloat16_rn(x))}; }
// Converts two values; `low` goes to the lower half.
TROOP_DEVICE std::uint32_t ToBF16x2(float low, float high) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&both);
}
TROOP_DEVICE float ToFloat(BF16 x) { return __uint_as_float(std::uint32_t(x.bits) << 16); }

}  // namespace troop::cuda

#else
#include "kernels/cuda/emulator/emulator.h"
#endif

namespace troop::cuda {

inline constexpr unsigned kWholeWarp = 0xffffffffu;

// Reduces x over the 32 lanes of a warp with both(a, b). All lanes get the result. The order (a
// butterfly) is fixed.
template <class T, class Both>
TROOP_DEVICE T OverWarp(T x, const Both& both) {
#ifdef __CUDACC__
  for (int step = 16; step > 0; step /= 2) x = both(x, __shfl_xor_sync(kWholeWarp, x, step));
  return x;
#else
  return emulator::Butterfly(x, both);
#endif
}
struct Sum {
  template <class T>
  TROOP_DEVICE T operator()(T a, T b) const {
    return a + b;
  }
};
struct Largest {
  template <class T>
  TROOP_DEVICE T operator()(T a, T b) const {
    return b > a ? b : a;
  }
};
template <class T>
TROOP_DEVICE T WarpSum(T x) {
  return OverWarp(x, Sum());
}
template <class T>
TROOP_DEVICE T WarpMax(T x) {
  return OverWarp(x, Largest());
}

}  // namespace troop::cuda
