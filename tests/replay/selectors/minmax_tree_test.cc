#include "replay/selectors/minmax_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "core/base/check.h"
#include "core/base/philox.h"
#include "kernels/simd/cpu_features.h"

namespace troop {
namespace {

using Kind = MinMaxTree::Kind;
using Slot = MinMaxTree::Slot;

MinMaxTree MakeTree(Kind kind, std::int64_t slots, CpuLevel level = BestCpuLevel()) {
  auto tree = MinMaxTree::Make(kind, slots);
  TROOP_CHECK(tree.ok(), "{}", tree.status().ToString());
  tree->UseKernels(MinMaxTreeKernelsFor(level));
  return std::move(*tree);
}

Rng TestRng(std::uint64_t index) { return Rng({.run_seed = 13, .index = index}); }

// By looking at every slot.
std::optional<float> Extreme(const std::vector<std::optional<float>>& value, Kind kind) {
  std::optional<float> best;
  for (const auto& v : value) {
    if (!v.has_value()) continue;
    if (!best.has_value() || (kind == Kind::kLeast ? *v < *best : *v > *best)) best = v;
  }
  return best;
}

class ExtremeTreePathTest : public testing::TestWithParam<CpuLevel> {};
INSTANTIATE_TEST_SUITE_P(EachPath, ExtremeTreePathTest,
                         testing::ValuesIn(SupportedCpuLevels().begin(),
                                           SupportedCpuLevels().end()),
                         [](const auto& info) { return std::string(CpuLevelName(info.param)); });

TEST_P(ExtremeTreePathTest, MatchesLinearSearch) {
  Rng rng = TestRng(1);
  for (const Kind kind : {Kind::kLeast, Kind::kGreatest}) {
    for (const std::uint32_t size : {1u, 16u, 17u, 300u, 5000u}) {
      MinMaxTree tree = MakeTree(kind, size, GetParam());
      std::vector<std::optional<float>> value(size);
      for (int round = 0; round < 300; ++round) {
        std::vector<Slot> slot(1 + rng.Below(100));
        std::vector<float> given(slot.size());
        const bool clears = rng.Below(2) == 0;
        for (std::size_t i = 0; i < slot.size(); ++i) {
          slot[i] = rng.Below(size);
          given[i] = std::pow(10.0f, float(rng.Uniform(-40, 38)));
          value[slot[i]] = clears ? std::nullopt : std::optional(given[i]);
        }
        clears ? tree.Clear(slot) : tree.Set(slot, given);
        const auto best = Extreme(value, kind);
        ASSERT_EQ(tree.value(), best);
        if (!best.has_value()) continue;
        ASSERT_EQ(tree.FirstSlot(), Slot(std::ranges::find(value, best) - value.begin()));
      }
    }
  }
}

TEST_P(ExtremeTreePathTest, LargeBatchesUpdateRoot) {
  constexpr std::size_t kSize = 70000;
  std::vector<Slot> slot(kSize);
  std::vector<float> value(kSize);
  for (std::size_t i = 0; i < kSize; ++i) {
    slot[i] = Slot(i);
    value[i] = float((i * 7919) % kSize) + 1;
  }
  MinMaxTree least = MakeTree(Kind::kLeast, kSize, GetParam());
  MinMaxTree greatest = MakeTree(Kind::kGreatest, kSize, GetParam());
  least.Set(slot, value);
  greatest.Set(slot, value);
  EXPECT_EQ(least.value(), 1.0f);
  EXPECT_EQ(greatest.value(), float(kSize));
}

TEST(ExtremeTreeTest, IgnoresEmptySlots) {
  for (const Kind kind : {Kind::kLeast, Kind::kGreatest}) {
    MinMaxTree tree = MakeTree(kind, 1000);
    EXPECT_EQ(tree.value(), std::nullopt);
    tree.Set(std::vector<Slot>{7}, std::vector<float>{3});
    EXPECT_EQ(tree.value(), 3.0f);
    EXPECT_EQ(tree.value(7), 3.0f);
    EXPECT_EQ(tree.value(8), std::nullopt);
    tree.Clear(std::vector<Slot>{7});
    EXPECT_EQ(tree.value(), std::nullopt);
  }
}

TEST(ExtremeTreeTest, AcceptsZeroAndLargestFloat) {
  for (const Kind kind : {Kind::kLeast, Kind::kGreatest}) {
    MinMaxTree tree = MakeTree(kind, 20);
    tree.Set(std::vector<Slot>{3}, std::vector<float>{FLT_MAX});
    EXPECT_EQ(tree.value(), FLT_MAX);
    tree.Set(std::vector<Slot>{3}, std::vector<float>{-0.0f});
    ASSERT_EQ(tree.value(), 0.0f);
    EXPECT_FALSE(std::signbit(*tree.value()));
  }
}

// Some Rainbow implementations use the greatest priority ever seen as the default of new items, so
// that one outlier dominates permanently.
TEST(ExtremeTreeTest, GreatestExcludesRemovedValues) {
  MinMaxTree tree = MakeTree(Kind::kGreatest, 100);
  tree.Set(std::vector<Slot>{1, 2, 3}, std::vector<float>{5, 900, 6});
  tree.Clear(std::vector<Slot>{2});
  EXPECT_EQ(tree.value(), 6.0f);
  tree.Set(std::vector<Slot>{3}, std::vector<float>{1});
  EXPECT_EQ(tree.value(), 5.0f);
}

TEST(ExtremeTreeTest, KeepsLastValueOfRepeatedSlot) {
  MinMaxTree tree = MakeTree(Kind::kLeast, 100);
  tree.Set(std::vector<Slot>{7, 8, 7}, std::vector<float>{1, 2, 5});
  EXPECT_EQ(tree.value(), 2.0f);
}

TEST(ExtremeTreeDeathTest, RejectsInvalidValuesAndSlots) {
  MinMaxTree tree = MakeTree(Kind::kLeast, 10);
  const auto set = [&tree](float v) { tree.Set(std::vector<Slot>{1}, std::vector<float>{v}); };
  EXPECT_DEATH(set(std::nanf("")), "value");
  EXPECT_DEATH(set(-1), "value");
  EXPECT_DEATH(set(std::numeric_limits<float>::infinity()), "value");
  EXPECT_DEATH(tree.Clear(std::vector<Slot>{10}), "slot 10 of 10");
  EXPECT_DEATH(static_cast<void>(tree.FirstSlot()), "no slot");
}

}  // namespace
}  // namespace troop
