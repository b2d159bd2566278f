#pragma once

#include <span>
#include <string_view>

namespace troop {

// Instruction sets that kernels are compiled for. Each level includes the ones before it.
//   kPlain: the compiler's baseline (x86-64: SSE2), without fused multiply-add.
//   kAvx2: AVX2, FMA and BMI2.
//   kAvx512: F, BW, DQ and VL.
//   kAvx512Bf16: adds vdpbf16ps.
enum class CpuLevel { kPlain = 0, kAvx2 = 1, kAvx512 = 2, kAvx512Bf16 = 3 };

// Highest level that this processor and its operating system support; detected once. Every kernel
// family has a function `const XKernels& XKernelsFor(CpuLevel)` that returns the function table of
// a level. A family without a version for a level returns the next lower one. Callers pass
// BestCpuLevel(); tests pass each of SupportedCpuLevels(). No global state overrides it.
CpuLevel BestCpuLevel();
std::span<const CpuLevel> SupportedCpuLevels();  // kPlain … BestCpuLevel()
std::string_view CpuLevelName(CpuLevel level);   // "plain", "avx2", "avx512", "avx512_bf16"

// Features reported by a processor and its operating system. Detection (ReadCpuFeatures) and
// interpretation (LevelOf) are separate, so that the latter is testable on any machine.
struct CpuFeatures {
  bool avx2 = false, fma = false, bmi2 = false;
  bool avx512f = false, avx512bw = false, avx512dq = false, avx512vl = false, avx512bf16 = false;
  bool saves_ymm = false, saves_zmm = false;  // the OS saves these registers
};
CpuFeatures ReadCpuFeatures();
CpuLevel LevelOf(const CpuFeatures& features);

}  // namespace troop
