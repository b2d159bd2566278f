#pragma once

#include <cstdint>

#if defined(__AVX2__)
// GCC 12 warns about deliberately uninitialized registers in its own header (GCC bug 105593).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#endif

// One SIMD register of f32 (Vec) and one of f64 (VecD), for the instruction set that the including
// file is compiled for. A kernel is written once, in x_impl.h, and compiled in x_plain.cc,
// x_avx2.cc and x_avx512.cc, which the build generates (cmake/TroopIsa.cmake). They define
// TROOP_ISA as plain, avx2 or avx512: the namespace of the function table, which the dispatch
// selects. Everything else is in an unnamed namespace, so that each of these files has its own
// copy: a function shared between them could execute AVX-512 instructions on machines without them.
// For the same reason *_impl.h files use no inline functions of the standard library.
//
// +, -, *, /, Sqrt, Max, Min and SelectGreater round as IEEE 754 specifies and give equal bits at
// all levels. MulAdd rounds once if the processor has a fused multiply-add (AVX2, AVX-512), else
// twice.
namespace troop {
namespace {

typedef float Quad __attribute__((vector_size(16)));  // four f32, at every level

#if defined(__AVX512F__)

// ---- AVX-512: 16 lanes, with mask registers. The comments here apply to all levels.
struct Vec {
  static constexpr int kLanes = 16;
  __m512 r;
};
// f64 with half as many lanes.
struct VecD {
  static constexpr int kLanes = 8;
  __m512d r;
};
// Mask of the first n lanes.
inline __mmask16 Tail(std::int64_t n) { return static_cast<__mmask16>((1u << n) - 1); }
inline Vec Set(float x) { return {_mm512_set1_ps(x)}; }
inline Vec Load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline void Store(float* p, Vec v) { _mm512_storeu_ps(p, v.r); }
// Access to the first n lanes, 0 <= n < kLanes. The other lanes are loaded as 0; their memory is
// not accessed.
inline Vec LoadN(const float* p, std::int64_t n) { return {_mm512_maskz_loadu_ps(Tail(n), p)}; }
inline void StoreN(float* p, Vec v, std::int64_t n) { _mm512_mask_storeu_ps(p, Tail(n), v.r); }
// kLanes bytes as f32. AVX2 reads 8 bytes, AVX-512 reads 16.
inline Vec LoadU8(const std::uint8_t* p) {
  return {_mm512_cvtepi32_ps(
      _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
}
inline Vec operator+(Vec a, Vec b) { return {_mm512_add_ps(a.r, b.r)}; }
inline Vec operator-(Vec a, Vec b) { return {_mm512_sub_ps(a.r, b.r)}; }
inline Vec operator*(Vec a, Vec b) { return {_mm512_mul_ps(a.r, b.r)}; }
inline Vec operator/(Vec a, Vec b) { return {_mm512_div_ps(a.r, b.r)}; }
inline Vec MulAdd(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.r, b.r, c.r)}; }
inline Vec Sqrt(Vec a) { return {_mm512_sqrt_ps(a.r)}; }
// a > b ? a : b in each lane, so b if either is NaN.
inline Vec Max(Vec a, Vec b) { return {_mm512_max_ps(a.r, b.r)}; }
inline Vec Min(Vec a, Vec b) { return {_mm512_min_ps(a.r, b.r)}; }
// a > b ? x : y in each lane, so y if a or b is NaN.
inline Vec SelectGreater(Vec a, Vec b, Vec x, Vec y) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.r, b.r, _CMP_GT_OQ), y.r, x.r)};
}
// |magnitude| with the sign of `sign`.
inline Vec CopySign(Vec magnitude, Vec sign) {
  const __m512 bit = _mm512_set1_ps(-0.0f);
  return {_mm512_or_ps(_mm512_andnot_ps(bit, magnitude.r), _mm512_and_ps(bit, sign.r))};
}
// 2^n for |n| < 127. biased = 1.5 * 2^23 + n as f32: its low bits are n, and adding the bias 127
// and shifting makes n the exponent.
inline Vec ExponentOf(Vec biased) {
  const __m512i n = _mm512_add_epi32(_mm512_castps_si512(biased.r), _mm512_set1_epi32(127));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(n, 23))};
}
// The sum of all lanes of each of four registers.
inline Quad Sum4(Vec a, Vec b, Vec c, Vec d) {
  // Interleaving adds halve the number of registers and of partial sums per step.
  const __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(a.r, b.r), _mm512_unpackhi_ps(a.r, b.r));
  const __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(c.r, d.r), _mm512_unpackhi_ps(c.r, d.r));
  const __m512 abcd = _mm512_add_ps(
      _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd))),
      _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd))));
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(abcd), _mm512_extractf32x8_ps(abcd, 1));
  return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}
// Lane i of the result is the sum of all lanes of v[i]. v: kLanes registers.
inline Vec SumEach(const Vec* v) {
  // A transposing sum: four groups of four registers, then across 128-bit lanes.
  __m512 four[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512 a = v[4 * i].r, b = v[4 * i + 1].r, c = v[4 * i + 2].r, d = v[4 * i + 3].r;
    const __m512d ab =
        _mm512_castps_pd(_mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b)));
    const __m512d cd =
        _mm512_castps_pd(_mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d)));
    four[i] = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd)),
                            _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd)));
  }
  const __m512 low = _mm512_add_ps(_mm512_shuffle_f32x4(four[0], four[1], 0x88),
                                   _mm512_shuffle_f32x4(four[0], four[1], 0xdd));
  const __m512 high = _mm512_add_ps(_mm512_shuffle_f32x4(four[2], four[3], 0x88),
                                    _mm512_shuffle_f32x4(four[2], four[3], 0xdd));
  return {
      _mm512_add_ps(_mm512_shuffle_f32x4(low, high, 0x88), _mm512_shuffle_f32x4(low, high, 0xdd))};
}
// f64: kLanes f32 are converted on load, exactly.
inline VecD SetD(double x) { return {_mm512_set1_pd(x)}; }
inline VecD LoadAsD(const float* p) { return {_mm512_cvtps_pd(_mm256_loadu_ps(p))}; }
inline void StoreD(double* p, VecD v) { _mm512_storeu_pd(p, v.r); }
inline VecD operator+(VecD a, VecD b) { return {_mm512_add_pd(a.r, b.r)}; }
inline VecD operator*(VecD a, VecD b) { return {_mm512_mul_pd(a.r, b.r)}; }

#elif defined(__AVX2__)

// ---- AVX2: 8 lanes; partial accesses use a vector mask.
struct Vec {
  static constexpr int kLanes = 8;
  __m256 r;
};
struct VecD {
  static constexpr int kLanes = 4;
  __m256d r;
};
// All bits set in the first n lanes.
inline __m256i Tail(std::int64_t n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)),
                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
inline Vec Set(float x) { return {_mm256_set1_ps(x)}; }
inline Vec Load(const float* p) { return {_mm256_loadu_ps(p)}; }
inline void Store(float* p, Vec v) { _mm256_storeu_ps(p, v.r); }
inline Vec LoadN(const float* p, std::int64_t n) { return {_mm256_maskload_ps(p, Tail(n))}; }
inline void StoreN(float* p, Vec v, std::int64_t n) { _mm256_maskstore_ps(p, Tail(n), v.r); }
inline Vec LoadU8(const std::uint8_t* p) {
  return {_mm256_cvtepi32_ps(
      _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))))};
}
inline Vec operator+(Vec a, Vec b) { return {_mm256_add_ps(a.r, b.r)}; }
inline Vec operator-(Vec a, Vec b) { return {_mm256_sub_ps(a.r, b.r)}; }
inline Vec operator*(Vec a, Vec b) { return {_mm256_mul_ps(a.r, b.r)}; }
inline Vec operator/(Vec a, Vec b) { return {_mm256_div_ps(a.r, b.r)}; }
inline Vec MulAdd(Vec a, Vec b, Vec c) { return {_mm256_fmadd_ps(a.r, b.r, c.r)}; }
inline Vec Sqrt(Vec a) { return {_mm256_sqrt_ps(a.r)}; }
inline Vec Max(Vec a, Vec b) { return {_mm256_max_ps(a.r, b.r)}; }
inline Vec Min(Vec a, Vec b) { return {_mm256_min_ps(a.r, b.r)}; }
inline Vec SelectGreater(Vec a, Vec b, Vec x, Vec y) {
  return {_mm256_blendv_ps(y.r, x.r, _mm256_cmp_ps(a.r, b.r, _CMP_GT_OQ))};
}
// Bitwise: the sign bit of one, the rest of the other.
inline Vec CopySign(Vec magnitude, Vec sign) {
  const __m256 bit = _mm256_set1_ps(-0.0f);
  return {_mm256_or_ps(_mm256_andnot_ps(bit, magnitude.r), _mm256_and_ps(bit, sign.r))};
}
inline Vec ExponentOf(Vec biased) {
  const __m256i n = _mm256_add_epi32(_mm256_castps_si256(biased.r), _mm256_set1_epi32(127));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(n, 23))};
}
inline Quad Sum4(Vec a, Vec b, Vec c, Vec d) {
  const __m256 abcd = _mm256_hadd_ps(_mm256_hadd_ps(a.r, b.r), _mm256_hadd_ps(c.r, d.r));
  return _mm_add_ps(_mm256_castps256_ps128(abcd), _mm256_extractf128_ps(abcd, 1));
}
// Sum4 of four registers at a time.
inline Vec SumEach(const Vec* v) {
  return {_mm256_set_m128(Sum4(v[4], v[5], v[6], v[7]), Sum4(v[0], v[1], v[2], v[3]))};
}
inline VecD SetD(double x) { return {_mm256_set1_pd(x)}; }
inline VecD LoadAsD(const float* p) { return {_mm256_cvtps_pd(_mm_loadu_ps(p))}; }
inline void StoreD(double* p, VecD v) { _mm256_storeu_pd(p, v.r); }
inline VecD operator+(VecD a, VecD b) { return {_mm256_add_pd(a.r, b.r)}; }
inline VecD operator*(VecD a, VecD b) { return {_mm256_mul_pd(a.r, b.r)}; }

#else

// ---- Other targets: 4 lanes in GCC vector extensions (SSE2 on x86-64).
typedef std::int32_t QuadInt __attribute__((vector_size(16)));
typedef double Pair __attribute__((vector_size(16)));
struct Vec {
  static constexpr int kLanes = 4;
  Quad r;
};
struct VecD {
  static constexpr int kLanes = 2;
  Pair r;
};
inline Vec Set(float x) { return {Quad{x, x, x, x}}; }
inline Vec Load(const float* p) {
  Quad r;
  __builtin_memcpy(&r, p, sizeof(r));
  return {r};
}
inline void Store(float* p, Vec v) { __builtin_memcpy(p, &v.r, sizeof(v.r)); }
inline Vec LoadN(const float* p, std::int64_t n) {
  Quad r{};
  for (std::int64_t i = 0; i < n; ++i) r[i] = p[i];
  return {r};
}
inline void StoreN(float* p, Vec v, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) p[i] = v.r[i];
}
inline Vec LoadU8(const std::uint8_t* p) {
  return {Quad{float(p[0]), float(p[1]), float(p[2]), float(p[3])}};
}
inline Vec operator+(Vec a, Vec b) { return {a.r + b.r}; }
inline Vec operator-(Vec a, Vec b) { return {a.r - b.r}; }
inline Vec operator*(Vec a, Vec b) { return {a.r * b.r}; }
inline Vec operator/(Vec a, Vec b) { return {a.r / b.r}; }
// Two roundings.
inline Vec MulAdd(Vec a, Vec b, Vec c) { return {a.r * b.r + c.r}; }
inline Vec Sqrt(Vec a) {
  for (int i = 0; i < 4; ++i) a.r[i] = __builtin_sqrtf(a.r[i]);
  return a;
}
inline Vec Max(Vec a, Vec b) { return {a.r > b.r ? a.r : b.r}; }
inline Vec Min(Vec a, Vec b) { return {a.r < b.r ? a.r : b.r}; }
inline Vec SelectGreater(Vec a, Vec b, Vec x, Vec y) { return {a.r > b.r ? x.r : y.r}; }
inline Vec CopySign(Vec magnitude, Vec sign) {
  const QuadInt bit = QuadInt{} + INT32_MIN;
  return {(Quad)(((QuadInt)magnitude.r & ~bit) | ((QuadInt)sign.r & bit))};
}
inline Vec ExponentOf(Vec biased) { return {(Quad)(((QuadInt)biased.r + 127) << 23)}; }
inline Quad Sum4(Vec a, Vec b, Vec c, Vec d) {
  const auto sum = [](Vec v) { return (v.r[0] + v.r[2]) + (v.r[1] + v.r[3]); };
  return Quad{sum(a), sum(b), sum(c), sum(d)};
}
inline Vec SumEach(const Vec* v) { return {Sum4(v[0], v[1], v[2], v[3])}; }
inline VecD SetD(double x) { return {Pair{x, x}}; }
inline VecD LoadAsD(const float* p) { return {Pair{double(p[0]), double(p[1])}}; }
inline void StoreD(double* p, VecD v) { __builtin_memcpy(p, &v.r, sizeof(v.r)); }
inline VecD operator+(VecD a, VecD b) { return {a.r + b.r}; }
inline VecD operator*(VecD a, VecD b) { return {a.r * b.r}; }

#endif

}  // namespace
}  // namespace troop
