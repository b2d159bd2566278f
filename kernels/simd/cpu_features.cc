// CPU feature detection by CPUID and XGETBV. A feature counts only if the operating system saves
// its registers.
#include "kernels/simd/cpu_features.h"

#include <array>
#include <cstddef>
#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace troop {

#if defined(__x86_64__)
namespace {

// Extended control register 0: the register sets that the operating system saves (Intel SDM vol. 1,
// 13.3).
std::uint64_t ReadXcr0() {
  std::uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return std::uint64_t(high) << 32 | low;
}

// Bit `bit` of a CPUID register.
constexpr bool Bit(std::uint32_t word, int bit) { return (word >> bit & 1) != 0; }

}  // namespace

CpuFeatures ReadCpuFeatures() {
  CpuFeatures features;
  std::uint32_t a = 0, b = 0, c = 0, d = 0;
  // Leaf 1: FMA, and OSXSAVE, without which XGETBV is an invalid instruction.
  if (__get_cpuid(1, &a, &b, &c, &d) == 0) return features;
  features.fma = Bit(c, 12);
  const bool has_xgetbv = Bit(c, 27);
  if (has_xgetbv) {
    const std::uint64_t xcr0 = ReadXcr0();
    features.saves_ymm = (xcr0 & 0x06) == 0x06;  // SSE and AVX state
    features.saves_zmm = (xcr0 & 0xe6) == 0xe6;  // plus opmask, upper ZMM, ZMM16-31
  }
  // Leaf 7: AVX2, BMI2 and AVX-512; its subleaf 1: AVX512_BF16.
  std::uint32_t leaves = 0;
  if (__get_cpuid_count(7, 0, &leaves, &b, &c, &d) == 0) return features;
  features.avx2 = Bit(b, 5);
  features.bmi2 = Bit(b, 8);
  features.avx512f = Bit(b, 16);
  features.avx512dq = Bit(b, 17);
  features.avx512bw = Bit(b, 30);
  features.avx512vl = Bit(b, 31);
  if (leaves >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0) features.avx512bf16 = Bit(a, 5);
  return features;
}
#else
CpuFeatures ReadCpuFeatures() { return {}; }
#endif

// A level needs all of its features.
CpuLevel LevelOf(const CpuFeatures& f) {
  if (!(f.avx2 && f.fma && f.bmi2 && f.saves_ymm)) return CpuLevel::kPlain;
  if (!(f.avx512f && f.avx512bw && f.avx512dq && f.avx512vl && f.saves_zmm)) return CpuLevel::kAvx2;
  return f.avx512bf16 ? CpuLevel::kAvx512Bf16 : CpuLevel::kAvx512;
}

CpuLevel BestCpuLevel() {
  static const CpuLevel level = LevelOf(ReadCpuFeatures());
  return level;
}

std::span<const CpuLevel> SupportedCpuLevels() {
  // In ascending order, so the supported ones are a prefix.
  static constexpr std::array kLevels = {CpuLevel::kPlain, CpuLevel::kAvx2, CpuLevel::kAvx512,
                                         CpuLevel::kAvx512Bf16};
  return std::span(kLevels).first(std::size_t(BestCpuLevel()) + 1);
}

std::string_view CpuLevelName(CpuLevel level) {
  switch (level) {
    case CpuLevel::kPlain:
      return "plain";
    case CpuLevel::kAvx2:
      return "avx2";
    case CpuLevel::kAvx512:
      return "avx512";
    case CpuLevel::kAvx512Bf16:
      return "avx512_bf16";
  }
  return "unknown";
}

}  // namespace troop
