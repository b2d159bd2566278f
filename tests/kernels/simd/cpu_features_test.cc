#include "kernels/simd/cpu_features.h"

#include <gtest/gtest.h>

namespace troop {
namespace {

CpuFeatures Everything() {
  return {.avx2 = true,
          .fma = true,
          .bmi2 = true,
          .avx512f = true,
          .avx512bw = true,
          .avx512dq = true,
          .avx512vl = true,
          .avx512bf16 = true,
          .saves_ymm = true,
          .saves_zmm = true};
}

TEST(CpuTest, LevelRequiresAllItsInstructionSets) {
  EXPECT_EQ(LevelOf(Everything()), CpuLevel::kAvx512Bf16);
  EXPECT_EQ(LevelOf({}), CpuLevel::kPlain);
  for (bool CpuFeatures::*missing : {&CpuFeatures::avx2, &CpuFeatures::fma, &CpuFeatures::bmi2}) {
    CpuFeatures f = Everything();
    f.*missing = false;
    EXPECT_EQ(LevelOf(f), CpuLevel::kPlain);
  }
  for (bool CpuFeatures::*missing : {&CpuFeatures::avx512f, &CpuFeatures::avx512bw,
                                     &CpuFeatures::avx512dq, &CpuFeatures::avx512vl}) {
    CpuFeatures f = Everything();
    f.*missing = false;
    EXPECT_EQ(LevelOf(f), CpuLevel::kAvx2);
  }
  CpuFeatures f = Everything();
  f.avx512bf16 = false;
  EXPECT_EQ(LevelOf(f), CpuLevel::kAvx512);
}

TEST(CpuTest, IgnoresRegistersNotSavedByOs) {
  CpuFeatures f = Everything();
  f.saves_zmm = false;
  EXPECT_EQ(LevelOf(f), CpuLevel::kAvx2);
  f.saves_ymm = false;
  EXPECT_EQ(LevelOf(f), CpuLevel::kPlain);
}

TEST(CpuTest, SupportedLevelsEndWithBest) {
  const auto levels = SupportedCpuLevels();
  ASSERT_FALSE(levels.empty());
  EXPECT_EQ(levels.front(), CpuLevel::kPlain);
  EXPECT_EQ(levels.back(), BestCpuLevel());
}

// The compiler's own detection is the other opinion.
#if defined(__x86_64__) && defined(__GNUC__)
TEST(CpuTest, FeaturesMatchCompilerDetection) {
  const CpuFeatures f = ReadCpuFeatures();
  EXPECT_EQ(f.avx2 && f.saves_ymm, bool(__builtin_cpu_supports("avx2")));
  EXPECT_EQ(f.fma && f.saves_ymm, bool(__builtin_cpu_supports("fma")));
  EXPECT_EQ(f.avx512f && f.saves_zmm, bool(__builtin_cpu_supports("avx512f")));
  EXPECT_EQ(f.avx512bf16 && f.saves_zmm, bool(__builtin_cpu_supports("avx512bf16")));
}
#endif

}  // namespace
}  // namespace troop
