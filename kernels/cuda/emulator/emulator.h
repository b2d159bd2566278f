#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

#include "core/tensor/dtype.h"

// CPU implementation of what device_code.h declares. A grid runs block by block on the calling
// thread; the threads of a block are fibers that switch at barriers and warp functions. It is
// designed to expose errors of kernels:
//   - SetSchedule randomizes the order of blocks, and of the threads of a block between two
//   barriers: a missing barrier gives different results for different seeds.
//   - CopyAsync16 copies as late as CopyWait allows. With even seeds from 2 on it also copies
//   immediately, over data that other threads may still read.
//   - Shared memory is filled with NaN at the start of a block, and device memory at its
//   allocation.
//   - A barrier or warp function that some of its threads never reach aborts the program, with the
//   names of kernel and thread.
//   - The address sanitizer detects overruns of each array.
namespace troop::cuda {

// A shared array is identified by the address of a static tag: each use of the macro is one array
// per block.
#define TROOP_KERNEL static
#define TROOP_DEVICE inline
#define TROOP_HOST_DEVICE inline
#define TROOP_UNROLL
#define TROOP_SHARED(T, name, n)        \
  static const char name##_tag = 0;     \
  T* const name = reinterpret_cast<T*>( \
      ::troop::cuda::emulator::SharedArray(&name##_tag, sizeof(T) * std::size_t(n)))
#define __launch_bounds__(...)
#define __restrict__ __restrict

struct dim3 {
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
  unsigned x, y, z;
};
// constinit avoids a check for initialization at each access.
inline constinit thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;

// Vector types of CUDA, with its alignment.
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) int2 {
  int x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline int2 make_int2(int x, int y) { return {x, y}; }

class Stream;

namespace emulator {

// Sets the order of threads and blocks from now on. 0: ascending; 1: descending; otherwise random.
// Each warp runs as far as it can up to the next barrier before another one starts; with odd seeds
// from 3 on all threads take turns.
void SetSchedule(std::uint64_t seed);
std::uint64_t Schedule();

// Runs body once per thread of each block. Called by Launch.
void RunGrid(const char* name, dim3 grid, dim3 block, std::size_t shared_bytes,
             const std::function<void()>& body);
// Adds work to a stream's queue (device_emulated.cc).
void Enqueue(Stream& stream, std::function<void()> work);

// The array of TROOP_SHARED with this tag in the running block; tag nullptr: its dynamic shared
// memory.
std::byte* SharedArray(const void* tag, std::size_t bytes);
// Lane of the running thread.
int Lane();
// Warp-wide operation: suspends the calling lane until all lanes of `mask` have called Meet. The
// last lane computes every `out` from all `in` with `combine`, which must be the same function for
// all.
using Combine = void (*)(const void* const (&in)[32], void* const (&out)[32], unsigned mask);
void Meet(unsigned mask, Combine combine, const void* in, void* out);
// Prints kernel, block, thread and `what`, and aborts.
[[noreturn]] void Die(const char* what);

// Implementation of CopyAsync16, CopyCommit and CopyWait.
void CopyAsync(void* to, const void* from, bool valid);
void CopyGroup();
void CopyWaitFor(int under_way);

// Argument of a shuffle: the lane's value and the lane that it reads.
template <class T>
struct Shuffled {
  T value;
  int source;
};
// Every lane of `mask` gets the value of lane `source`, which must be in `mask`.
template <class T>
T Shuffle(unsigned mask, T value, int source) {
  const Shuffled<T> in{value, source};
  T out{};
  Meet(
      mask,
      [](const void* const(&all)[32], void* const(&results)[32], unsigned lanes) {
        for (int lane = 0; lane < 32; ++lane) {
          if ((lanes >> lane & 1) == 0) continue;
          const int from = static_cast<const Shuffled<T>*>(all[lane])->source;
          if (from < 0 || from > 31 || (lanes >> from & 1) == 0)
            Die("shuffle from a lane outside its mask");
          *static_cast<T*>(results[lane]) = static_cast<const Shuffled<T>*>(all[from])->value;
        }
      },
      &in, &out);
  return out;
}

// Result of five butterfly shuffles across the warp, in one call of Meet.
template <class T, class Both>
T Butterfly(T value, const Both&) {
  T out{};
  Meet(
      0xffffffffu,
      [](const void* const(&all)[32], void* const(&results)[32], unsigned) {
        T now[32], next[32];
        for (int lane = 0; lane < 32; ++lane) now[lane] = *static_cast<const T*>(all[lane]);
        for (int step = 16; step > 0; step /= 2) {
          for (int lane = 0; lane < 32; ++lane) next[lane] = Both()(now[lane], now[lane ^ step]);
          for (int lane = 0; lane < 32; ++lane) now[lane] = next[lane];
        }
        for (int lane = 0; lane < 32; ++lane) *static_cast<T*>(results[lane]) = now[lane];
      },
      &value, &out);
  return out;
}

}  // namespace emulator

// Shared memory of the running block.
inline std::byte* DynamicShared() { return emulator::SharedArray(nullptr, 0); }
// Barriers, votes and shuffles of CUDA.
void __syncthreads();
void __syncwarp(unsigned mask = 0xffffffffu);
unsigned __ballot_sync(unsigned mask, bool predicate);
inline bool __any_sync(unsigned mask, bool p) { return __ballot_sync(mask, p) != 0; }
inline bool __all_sync(unsigned mask, bool p) { return __ballot_sync(mask, p) == mask; }
inline void __threadfence() {}

template <class T>
T __shfl_sync(unsigned mask, T value, int source) {
  return emulator::Shuffle(mask, value, source & 31);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes) {
  return emulator::Shuffle(mask, value, emulator::Lane() ^ lanes);
}
// Lanes past the end keep their own value, as in CUDA.
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned lanes) {
  const int from = emulator::Lane() + int(lanes);
  return emulator::Shuffle(mask, value, from < 32 ? from : emulator::Lane());
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned lanes) {
  const int from = emulator::Lane() - int(lanes);
  return emulator::Shuffle(mask, value, from >= 0 ? from : emulator::Lane());
}

// Atomics: all threads run on one CPU thread, so plain accesses are atomic.
template <class T>
T atomicAdd(T* at, T x) {
  const T before = *at;
  *at = T(before + x);
  return before;
}
template <class T>
T atomicMax(T* at, T x) {
  const T before = *at;
  if (x > before) *at = x;
  return before;
}
template <class T>
T atomicExch(T* at, T x) {
  const T before = *at;
  *at = x;
  return before;
}
template <class T>
T atomicCAS(T* at, T expected, T x) {
  const T before = *at;
  if (before == expected) *at = x;
  return before;
}

// Loads and stores with cache hints, which have no effect here.
template <class T>
T __ldg(const T* p) {
  return *p;
}
template <class T>
T __ldcs(const T* p) {
  return *p;
}
template <class T>
void __stcs(T* p, T x) {
  *p = x;
}
// Intrinsics. The fast ones (__expf, …) are exact here.
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __clz(unsigned x) { return std::countl_zero(x); }
inline int __ffs(unsigned x) { return x == 0 ? 0 : std::countr_zero(x) + 1; }
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned(std::uint64_t(a) * b >> 32); }
// Math functions that CUDA declares in the global namespace.
using std::isfinite;
using std::isnan;
inline float rsqrtf(float x) { return 1 / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __frcp_rn(float x) { return 1 / x; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline float __saturatef(float x) { return x > 1 ? 1 : x > 0 ? x : 0; }
template <class T>
T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
T max(T a, T b) {
  return a < b ? b : a;
}

inline void CopyAsync16(void* to, const void* from, bool valid = true) {
  emulator::CopyAsync(to, from, valid);
}
inline void CopyCommit() { emulator::CopyGroup(); }
template <int kUnderWay>
void CopyWait() {
  emulator::CopyWaitFor(kUnderWay);
}

// Tensor core instructions; device_code.h documents the layouts.
void LoadMatrix4(std::uint32_t (&r)[4], const void* row);
void LoadMatrix4Transposed(std::uint32_t (&r)[4], const void* row);
void MultiplyBF16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]);
void MultiplyTF32(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]);

// Rounds to nearest, ties away from zero; NaN and infinity are truncated.
inline std::uint32_t ToTF32(float x) {
  const std::uint32_t bits = __float_as_uint(x);
  if ((bits & 0x7f800000u) == 0x7f800000u) return bits & 0xffffe000u;
  return (bits + 0x1000u) & 0xffffe000u;
}
// Rounds to nearest even; NaN becomes the canonical NaN of the GPU.
inline BF16 ToBF16(float x) {
  const std::uint32_t bits = __float_as_uint(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {0x7fff};
  return {std::uint16_t((bits + 0x7fffu + (bits >> 16 & 1)) >> 16)};
}
inline std::uint32_t ToBF16x2(float low, float high) {
  return ToBF16(low).bits | std::uint32_t(ToBF16(high).bits) << 16;
}
inline float ToFloat(BF16 x) { return __uint_as_float(std::uint32_t(x.bits) << 16); }

}  // namespace troop::cuda
