#pragma once

#include <cstddef>
#include <cstdint>

#include "replay/selectors/priority_kernels_table.h"

#if defined(__AVX2__)
// GCC 12 warns about intentionally undefined registers in the header (GCC bug 105593).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#endif

// Loops of priority_kernels_table.h, compiled once per instruction set under the name
// TROOP_ISA. No inline functions of the standard library here: the linker might use this file's
// copy, compiled for a newer processor, everywhere. Only + - * / of f64 lanes and integer
// operations are used, which IEEE 754 defines, so that all sets give identical bits.
namespace troop {
namespace {

#if defined(__AVX512F__)
constexpr int kLanes = 8;
constexpr const char* kIsa = "avx512";
#elif defined(__AVX2__)
constexpr int kLanes = 4;
constexpr const char* kIsa = "avx2";
#else
constexpr int kLanes = 2;
constexpr const char* kIsa = "plain";
#endif
typedef double Doubles __attribute__((vector_size(8 * kLanes)));
typedef float Floats __attribute__((vector_size(4 * kLanes)));
typedef std::uint64_t Words __attribute__((vector_size(8 * kLanes)));
typedef std::int64_t Masks __attribute__((vector_size(8 * kLanes)));

inline Doubles All(double x) { return Doubles{} + x; }
inline Words AllBits(std::uint64_t x) { return Words{} + x; }
inline Doubles AsDoubles(Words w) { return Doubles(w); }
inline Words AsWords(Doubles d) { return Words(d); }

// Loads the first `count` lanes, or all; the others get `fill`.
template <class V, class T>
inline V LoadLanes(const T* from, std::size_t count, T fill) {
  V v;
  if (count >= std::size_t{kLanes}) {
    __builtin_memcpy(&v, from, sizeof v);
    return v;
  }
  T lanes[kLanes];
  for (std::size_t i = 0; i < std::size_t{kLanes}; ++i) lanes[i] = i < count ? from[i] : fill;
  __builtin_memcpy(&v, lanes, sizeof v);
  return v;
}

template <class V, class T>
inline void StoreLanes(const V& v, std::size_t count, T* to) {
  if (count >= std::size_t{kLanes}) {
    __builtin_memcpy(to, &v, sizeof v);
  } else {
    __builtin_memcpy(to, &v, count * sizeof(T));
  }
}

constexpr std::uint64_t kCounting[8] = {0, 1, 2, 3, 4, 5, 6, 7};

inline bool AllTrue(Masks mask) {
  bool all = true;
  for (int i = 0; i < kLanes; ++i) all &= mask[i] != 0;
  return all;
}

constexpr double kTwo52 = 0x1p52;  // its lowest bit is worth 1, so smaller integers can be or'ed in

// log2 of positive normal values, |error| < 1e-10. x = 2^e m with m in [√½, √2); then ln m = 2
// artanh s, s = (m - 1) / (m + 1), |s| < 0.172, from 6 terms of its series.
inline Doubles Log2(Doubles x) {
  constexpr std::uint64_t kRootHalf = 0x3FE6A09E667F3BCD, kOne = 0x3FF0000000000000;
  constexpr double kScale = 2.8853900817779268147;  // 2 / ln 2
  const Words shifted = AsWords(x) + (kOne - kRootHalf);
  const Doubles e = AsDoubles(shifted >> 52 | AsWords(All(kTwo52))) - (kTwo52 + 1023);
  const Doubles m = AsDoubles((shifted & ((std::uint64_t{1} << 52) - 1)) + kRootHalf);
  const Doubles s = (m - 1) / (m + 1), z = s * s;
  Doubles sum = All(kScale / 11);
  sum = sum * z + kScale / 9;
  sum = sum * z + kScale / 7;
  sum = sum * z + kScale / 5;
  sum = sum * z + kScale / 3;
  sum = sum * z + kScale;
  return e + s * sum;
}

// 2^y with a relative error < 1e-11; |y| is clamped to 300, beyond the range of f32. y = k + f,
// |f| <= ½; e^(f ln 2) from the terms of its series up to the ninth power.
inline Doubles Exp2(Doubles y) {
  constexpr double kLn2 = 0.69314718055994530942, kRounder = 1.5 * kTwo52, kMax = 300;
  y = y > All(kMax) ? All(kMax) : y;
  y = y < All(-kMax) ? All(-kMax) : y;
  const Doubles rounded = y + kRounder;  // k in the lowest bits
  const Doubles x = (y - (rounded - kRounder)) * kLn2;
  constexpr double kInverse[] = {1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120,
                                 1.0 / 24,     1.0 / 6,     0.5,        1,         1};
  Doubles sum = All(kInverse[0]);
  for (int i = 1; i < 10; ++i) sum = sum * x + kInverse[i];
  return AsDoubles(AsWords(sum) + (AsWords(rounded) << 52));
}

// Clamps the input to [floor, ∞) and the result to [low, high]; lanes past the end load 0.
bool Powers(const float* priority, std::size_t n, double exponent, float floor, float low,
            float high, float* value) {
  const Doubles zero = {}, least = All(double(floor)), lowest = All(double(low)),
                highest = All(double(high)), largest = All(double(__FLT_MAX__));
  Masks good = ~Masks{};
  for (std::size_t i = 0; i < n; i += kLanes) {
    const Doubles given =
        __builtin_convertvector(LoadLanes<Floats>(priority + i, n - i, 0.0f), Doubles);
    good &= (given >= zero) & (given <= largest);
    const Doubles p = given < least ? least : given;
    Doubles power = Exp2(exponent * Log2(p > zero ? p : All(1)));
    power = power < lowest ? lowest : power;
    power = power > highest ? highest : power;
    power = p > zero ? power : zero;
    StoreLanes(__builtin_convertvector(power, Floats), n - i, value + i);
  }
  return AllTrue(good);
}

bool Weights(const double* probability, std::size_t n, double least, double exponent,
             float* weight) {
  const Doubles smallest = All(__DBL_MIN__), largest = All(__DBL_MAX__);
  const Doubles log_least = Log2(All(least));
  Masks good = ~Masks{};
  for (std::size_t i = 0; i < n; i += kLanes) {
    const Doubles p = LoadLanes<Doubles>(probability + i, n - i, 1.0);
    good &= (p >= smallest) & (p <= largest);
    const Doubles power = Exp2(exponent * (log_least - Log2(p)));
    StoreLanes(__builtin_convertvector(power, Floats), n - i, weight + i);
  }
  return AllTrue(good);
}

// Products of the lower 32 bits of the lanes with `b`.
inline Words MulWide(Words a, std::uint32_t b) {
#if defined(__AVX512F__)
  return Words(_mm512_mul_epu32(__m512i(a), _mm512_set1_epi64(b)));
#elif defined(__AVX2__)
  return Words(_mm256_mul_epu32(__m256i(a), _mm256_set1_epi64x(b)));
#else
  return (a & 0xFFFFFFFF) * std::uint64_t{b};
#endif
}

// Joins the lower 32 bits of `low` and `high`, and scales 53 of the bits to [0, 1).
inline Doubles UniformOf(Words low, Words high) {
  const Words bits = ((low & 0xFFFFFFFF) | high << 32) >> 11;
  const Doubles upper = AsDoubles(bits >> 32 | AsWords(All(0x1p84))) - 0x1p84;
  const Doubles lower = AsDoubles((bits & 0xFFFFFFFF) | AsWords(All(kTwo52))) - kTwo52;
  return (upper + lower) * 0x1p-53;  // exact: the sum has 53 bits
}

// Philox4x32-10 (Salmon et al. 2011) for kLanes blocks at once (core/base/philox.h). The upper
// halves of the words are not cleared.
inline void Philox(const std::uint32_t* key, const std::uint32_t* stream, std::uint64_t block,
                   Words* c) {
  c[0] = block + LoadLanes<Words>(kCounting, kLanes, kCounting[0]);
  c[1] = c[0] >> 32;
  c[2] = AllBits(stream[0]);
  c[3] = AllBits(stream[1]);
  std::uint32_t k0 = key[0], k1 = key[1];
  for (int round = 0; round < 10; ++round) {
    const Words p0 = MulWide(c[0], 0xD2511F53u), p1 = MulWide(c[2], 0xCD9E8D57u);
    c[0] = (p1 >> 32) ^ c[1] ^ AllBits(k0);
    c[1] = p1;
    c[2] = (p0 >> 32) ^ c[3] ^ AllBits(k1);
    c[3] = p0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
}

// First and second half of the interleaved lanes [a0 b0 a1 b1 …].
inline Doubles LowPairs(Doubles a, Doubles b) {
#if defined(__AVX512F__)
  return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
#elif defined(__AVX2__)
  return __builtin_shufflevector(a, b, 0, 4, 1, 5);
#else
  return __builtin_shufflevector(a, b, 0, 2);
#endif
}
inline Doubles HighPairs(Doubles a, Doubles b) {
#if defined(__AVX512F__)
  return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
#elif defined(__AVX2__)
  return __builtin_shufflevector(a, b, 2, 6, 3, 7);
#else
  return __builtin_shufflevector(a, b, 1, 3);
#endif
}

// Each Philox block gives two uniforms, so one round fills 2 kLanes masses.
void Masses(const std::uint32_t* key, const std::uint32_t* stream, std::uint64_t block,
            double first, double step, std::size_t n, double* mass) {
  Doubles index =
      first + __builtin_convertvector(LoadLanes<Words>(kCounting, kLanes, kCounting[0]), Doubles);
  for (std::size_t i = 0; i < n; i += 2 * kLanes, block += kLanes) {
    Words c[4];
    Philox(key, stream, block, c);
    const Doubles even = UniformOf(c[0], c[1]), odd = UniformOf(c[2], c[3]);
    StoreLanes((index + LowPairs(even, odd)) * step, n - i, mass + i);
    index += double(kLanes);
    if (n - i > std::size_t{kLanes}) {
      StoreLanes((index + HighPairs(even, odd)) * step, n - i - kLanes, mass + i + kLanes);
    }
    index += double(kLanes);
  }
}

}  // namespace

namespace TROOP_ISA {
const PriorityKernels kPriorityKernels = {kIsa, Powers, Weights, Masses};
}  // namespace TROOP_ISA

}  // namespace troop
