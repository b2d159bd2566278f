#pragma once

#include <span>
#include <string_view>

namespace troop {

// The instruction sets that kernels are compiled for, each including the ones before it.
//   kPlain: the compiler's baseline (x86-64: SSE2), no fused multiply-add.
//   kAvx2: AVX2 + FMA + BMI2.  kAvx512: F, BW, DQ, VL.  kAvx512Bf16: and vdpbf16ps.
enum class CpuLevel { kPlain = 0, kAvx2 = 1, kAvx512 = 2, kAvx512Bf16 = 3 };

// The highest level that this processor and its operating system can run. Asked once. Every family
// of kernels has a function `const XKernels& XKernelsFor(CpuLevel)` that returns its table of
// function pointers for a level (families without a version for a level return the next lower
// one). Callers pass BestCpuLevel(); tests pass each of SupportedCpuLevels(). There is no global to
// override.
CpuLevel BestCpuLevel();
std::span<const CpuLevel> SupportedCpuLevels();  // kPlain … BestCpuLevel()
std::string_view CpuLevelName(CpuLevel level);   // "plain", "avx2", "avx512", "avx512_bf16"

// What a processor and its operating system report, and what follows: apart from the asking, so
// that it can be tested on any machine.
struct CpuFeatures {
  bool avx2 = false, fma = false, bmi2 = false;
  bool avx512f = false, avx512bw = false, avx512dq = false, avx512vl = false, avx512bf16 = false;
  bool saves_ymm = false, saves_zmm = false;  // the system keeps these registers across switches
};
CpuFeatures ReadCpuFeatures();
CpuLevel LevelOf(const CpuFeatures& features);

}  // namespace troop
