#include "replay/selectors/sum_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "core/base/philox.h"
#include "kernels/simd/cpu_features.h"
#include "replay/selectors/priority_kernels.h"
#include "tests/replay/chi_square.h"

namespace troop {
namespace {

using Slot = SumTree::Slot;

SumTree MakeTree(const std::vector<float>& priority, CpuLevel level = BestCpuLevel()) {
  auto tree = SumTree::Make(std::int64_t(priority.size()));
  TROOP_CHECK(tree.ok(), "{}", tree.status().ToString());
  tree->UseKernels(SumTreeKernelsFor(level));
  std::vector<Slot> slots(priority.size());
  std::iota(slots.begin(), slots.end(), 0u);
  tree->Set(slots, priority);
  return std::move(*tree);
}

struct Found {
  std::vector<Slot> slot;
  std::vector<float> priority;
};

Found Find(const SumTree& tree, const std::vector<double>& mass) {
  Found found{std::vector<Slot>(mass.size()), std::vector<float>(mass.size())};
  tree.Find(mass, found.slot, found.priority);
  return found;
}

Rng TestRng(std::uint64_t index) { return Rng({.run_seed = 11, .index = index}); }

// Priorities over many powers of ten; every fourth is 0.
std::vector<float> WildPriorities(std::size_t count, Rng* rng) {
  std::vector<float> priority(count);
  for (float& p : priority) {
    p = rng->Below(4) == 0 ? 0.0f : std::pow(10.0f, float(rng->Uniform(-12, 12)));
  }
  return priority;
}

class SumTreePathTest : public testing::TestWithParam<CpuLevel> {};
INSTANTIATE_TEST_SUITE_P(EachPath, SumTreePathTest,
                         testing::ValuesIn(SupportedCpuLevels().begin(),
                                           SupportedCpuLevels().end()),
                         [](const auto& info) { return std::string(CpuLevelName(info.param)); });

// False-alarm rate 1e-6 (and the seed is fixed).
TEST_P(SumTreePathTest, SamplesInProportionToPriority) {
  Rng rng = TestRng(1);
  std::vector<float> priority(1000);
  for (float& p : priority) p = rng.Below(5) == 0 ? 0.0f : rng.UniformF32() + 0.01f;
  priority.front() = priority.back() = 0.5f;
  const SumTree tree = MakeTree(priority, GetParam());
  std::vector<double> mass(1 << 20);
  for (double& m : mass) m = rng.Uniform() * tree.total();
  std::vector<std::int64_t> counts(priority.size());
  for (const Slot slot : Find(tree, mass).slot) ++counts[slot];
  const double total = std::accumulate(priority.begin(), priority.end(), 0.0);
  std::vector<double> share(priority.begin(), priority.end());
  for (double& s : share) s /= total;
  const ChiSquare test = TestCounts(counts, share);
  EXPECT_TRUE(test.ok()) << test.statistic << " > " << test.limit;
}

TEST_P(SumTreePathTest, MatchesExactCumulativeSum) {
  // Small integers: all sums are exact, so the answers must agree exactly.
  Rng rng = TestRng(2);
  for (const std::size_t size : {1u, 2u, 15u, 16u, 17u, 255u, 256u, 257u, 5000u}) {
    std::vector<float> priority(size);
    for (float& p : priority) p = float(rng.Below(4));
    priority[rng.Below(std::uint32_t(size))] = 1;
    std::vector<double> cumulative(size);
    std::partial_sum(priority.begin(), priority.end(), cumulative.begin(), std::plus<double>());
    const SumTree tree = MakeTree(priority, GetParam());
    ASSERT_EQ(tree.total(), cumulative.back());
    std::vector<double> mass(2000);
    for (double& m : mass) m = double(rng.Below(std::uint32_t(tree.total()))) + 0.5 * rng.Below(2);
    const Found found = Find(tree, mass);
    for (std::size_t i = 0; i < mass.size(); ++i) {
      const auto above = std::ranges::upper_bound(cumulative, mass[i]);
      ASSERT_EQ(found.slot[i], Slot(above - cumulative.begin())) << "size " << size;
      ASSERT_EQ(found.priority[i], priority[found.slot[i]]);
    }
  }
}

// The sums of a float tree don't add up exactly: implementations returned an index past the end, or
// an item of priority 0, for masses near a border (tensorforce 45, RLCore 83, torchrl's segment
// tree).
TEST_P(SumTreePathTest, NeverReturnsEmptySlotDespiteRounding) {
  Rng rng = TestRng(3);
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (int round = 0; round < 60; ++round) {
    const std::size_t size = 1 + rng.Below(3000);
    std::vector<float> priority = WildPriorities(size, &rng);
    priority[rng.Below(std::uint32_t(size))] = 1e-12f;
    const SumTree tree = MakeTree(priority, GetParam());
    std::vector<double> mass = {0,
                                -1,
                                -kInf,
                                kInf,
                                std::nan(""),
                                tree.total(),
                                2 * tree.total(),
                                std::nextafter(tree.total(), 0.0),
                                1e-300};
    double sum = 0;
    float sum_f32 = 0;
    for (const float p : priority) {
      sum += p;
      sum_f32 += p;
      for (const double border : {sum, double(sum_f32)}) {
        mass.insert(mass.end(),
                    {std::nextafter(border, -kInf), border, std::nextafter(border, kInf)});
      }
    }
    const Found found = Find(tree, mass);
    for (std::size_t i = 0; i < mass.size(); ++i) {
      ASSERT_LT(found.slot[i], size) << "mass " << mass[i];
      ASSERT_GT(priority[found.slot[i]], 0) << "mass " << mass[i];
    }
  }
}

TEST_P(SumTreePathTest, MatchesPlainPathBitwise) {
  Rng rng = TestRng(4);
  for (const std::size_t size : {1u, 16u, 17u, 300u, 4097u, 70000u}) {
    const std::vector<float> priority = WildPriorities(size, &rng);
    if (std::ranges::max(priority) == 0) continue;
    const SumTree plain = MakeTree(priority, CpuLevel::kPlain);
    const SumTree tree = MakeTree(priority, GetParam());
    ASSERT_EQ(std::bit_cast<std::uint64_t>(tree.total()),
              std::bit_cast<std::uint64_t>(plain.total()));
    std::vector<double> mass(1000);
    for (double& m : mass) m = rng.Uniform() * plain.total();
    EXPECT_EQ(Find(tree, mass).slot, Find(plain, mass).slot) << "size " << size;
    EXPECT_EQ(Find(tree, mass).priority, Find(plain, mass).priority) << "size " << size;
  }
}

// stable-baselines 941: the last item was never drawn; an empty prefix was.
TEST_P(SumTreePathTest, SamplesFirstAndLastItems) {
  for (const std::size_t size : {2u, 16u, 17u, 1000u}) {
    std::vector<float> priority(size, 0.0f);
    priority[size / 2 - (size > 2)] = 0;
    priority[size - 1] = 2;
    priority[size > 2 ? 1 : 0] = 1;  // where there are more than two, the prefix is empty
    const SumTree tree = MakeTree(priority, GetParam());
    const Found found = Find(tree, {0, 0.999, 1, 2.999});
    const Slot first = size > 2 ? 1 : 0, last = Slot(size - 1);
    EXPECT_EQ(found.slot, (std::vector<Slot>{first, first, last, last}));
  }
}

// Dopamine-style trees change sums by differences: off by 1e-4 after 10M updates.
TEST_P(SumTreePathTest, SumsDoNotDriftUnderUpdates) {
  Rng rng = TestRng(5);
  std::vector<float> priority = WildPriorities(3000, &rng);
  SumTree tree = MakeTree(priority, GetParam());
  std::vector<Slot> slot(64);
  std::vector<float> value(64);
  for (int update = 0; update < 5000; ++update) {
    for (std::size_t i = 0; i < slot.size(); ++i) {
      slot[i] = rng.Below(3000);
      value[i] = std::pow(10.0f, float(rng.Uniform(-6, 6)));
      priority[slot[i]] = value[i];
    }
    tree.Set(slot, value);
  }
  EXPECT_EQ(tree.total(), MakeTree(priority, GetParam()).total());
}

// A node that is written in several steps of a batch must be summed after the last of them; one
// that is skipped as a repetition keeps an old sum.
TEST_P(SumTreePathTest, UpdatesMatchTreeBuiltFromFinalPriorities) {
  Rng rng = TestRng(6);
  for (const std::size_t size : {5u, 16u, 200u, 3000u, 70000u}) {
    std::vector<float> priority(size, 0.0f);
    SumTree tree = MakeTree(priority, GetParam());
    for (const std::size_t batch : {1u, 3u, 31u, 32u, 33u, 64u, 65u, 511u, 512u, 513u, 2000u}) {
      for (const std::uint32_t spread : {1u, 16u, 40u, 600u, 100000u}) {
        std::vector<Slot> slot(batch);
        std::vector<float> value = WildPriorities(batch, &rng);
        const std::uint32_t first = rng.Below(std::uint32_t(size)), stride = rng.Below(2);
        for (std::size_t i = 0; i < batch; ++i) {
          const std::uint32_t offset = stride == 1 ? std::uint32_t(i) : rng.Below(spread);
          slot[i] = (first + offset) % std::uint32_t(size);
          priority[slot[i]] = value[i];
        }
        tree.Set(slot, value);
      }
      const SumTree fresh = MakeTree(priority, CpuLevel::kPlain);
      ASSERT_EQ(tree.total(), fresh.total()) << "size " << size << ", batches of " << batch;
      if (fresh.total() == 0) continue;
      std::vector<double> mass(200);
      for (double& m : mass) m = rng.Uniform() * fresh.total();
      ASSERT_EQ(Find(tree, mass).slot, Find(fresh, mass).slot) << "size " << size;
      ASSERT_EQ(Find(tree, mass).priority, Find(fresh, mass).priority) << "size " << size;
    }
  }
}

// RLCore.jl 83: an item of priority 0 was drawn, and importance weights collapsed.
TEST_P(SumTreePathTest, NeverReturnsItemSetToZero) {
  Rng rng = TestRng(7);
  std::vector<float> priority(5000, 1.0f);
  SumTree tree = MakeTree(priority, GetParam());
  std::vector<double> mass(512);
  for (int round = 0; round < 200 && tree.total() > 0; ++round) {
    std::vector<Slot> slot(24);
    for (Slot& s : slot) priority[s = rng.Below(5000)] = 0;
    tree.Set(slot, std::vector<float>(slot.size(), 0.0f));
    for (double& m : mass) m = rng.Uniform() * tree.total();
    for (const Slot found : Find(tree, mass).slot) ASSERT_EQ(priority[found], 1) << found;
  }
}

// openai/baselines 527: draws were not stratified.
TEST_P(SumTreePathTest, StratifiedBatchSamplesItemsInProportion) {
  Rng rng = TestRng(8);
  std::vector<float> priority(300);
  for (float& p : priority) p = float(rng.Below(50));
  const SumTree tree = MakeTree(priority, GetParam());
  std::vector<double> mass(1000);
  for (int round = 0; round < 50; ++round) {
    StratifiedMasses(tree.total(), &rng, mass);
    std::vector<int> count(priority.size());
    for (const Slot slot : Find(tree, mass).slot) ++count[slot];
    for (std::size_t i = 0; i < count.size(); ++i) {
      const double share = double(priority[i]) / tree.total() * double(mass.size());
      ASSERT_LT(std::abs(count[i] - share), 2) << "item " << i;
    }
  }
}

// At 1e8 draws a bias of 1e-4 of an item's share would show. False-alarm rate 1e-3, fixed seed.
TEST(SumTreeTest, SlowHundredMillionSamplesMatchPriorities) {
  Rng rng = TestRng(9);
  std::vector<float> priority(20000);
  for (float& p : priority) p = rng.Below(5) == 0 ? 0.0f : std::pow(rng.UniformF32(), 4.0f);
  for (float& p : priority) p = p == 0 ? p : std::max(p, 1e-3f);
  const SumTree tree = MakeTree(priority);
  std::vector<double> mass(4000);
  Found found{std::vector<Slot>(mass.size()), std::vector<float>(mass.size())};
  std::vector<std::int64_t> counts(priority.size());
  for (int batch = 0; batch < 25000; ++batch) {
    for (double& m : mass) m = rng.Uniform() * tree.total();
    tree.Find(mass, found.slot, found.priority);
    for (const Slot slot : found.slot) ++counts[slot];
  }
  const double total = std::accumulate(priority.begin(), priority.end(), 0.0);
  std::vector<double> share(priority.begin(), priority.end());
  for (double& s : share) s /= total;
  const double cells = double(std::ranges::count_if(share, [](double s) { return s > 0; }));
  const double a = 2 / (9 * (cells - 1));  // Wilson & Hilferty 1931, z = 3.09
  const double limit = (cells - 1) * std::pow(1 - a + 3.09 * std::sqrt(a), 3);
  EXPECT_LE(TestCounts(counts, share).statistic, limit);
}

TEST(SumTreeTest, KeepsLastValueOfRepeatedSlot) {
  SumTree tree = MakeTree(std::vector<float>(100, 0.0f));
  tree.Set(std::vector<Slot>{7, 8, 7}, std::vector<float>{1, 2, 5});
  EXPECT_EQ(tree.priority(7), 5);
  EXPECT_EQ(tree.total(), 7);
}

TEST(SumTreeTest, FillSetsOnlyItsRange) {
  SumTree tree = MakeTree(std::vector<float>(1000, 1.0f));
  tree.Fill(17, 500, 0);
  EXPECT_EQ(tree.total(), 500);
  EXPECT_EQ(tree.priority(16), 1);
  EXPECT_EQ(tree.priority(17), 0);
  EXPECT_EQ(tree.priority(516), 0);
  EXPECT_EQ(tree.priority(517), 1);
  tree.Fill(3, 0, 0);
  EXPECT_EQ(tree.total(), 500);
}

TEST(SumTreeTest, TotalOfLargestPrioritiesStaysFinite) {
  SumTree tree = MakeTree(std::vector<float>(5000, SumTree::kPriorityMax));
  EXPECT_TRUE(std::isfinite(float(tree.total())));
}

TEST(SumTreeTest, SamplesDenormalPriorities) {
  const float tiny = std::numeric_limits<float>::denorm_min();
  std::vector<float> priority(100, 0.0f);
  priority[40] = tiny;
  const SumTree tree = MakeTree(priority);
  EXPECT_EQ(Find(tree, {0, tree.total() / 2}).slot, (std::vector<Slot>{40, 40}));
}

TEST(SumTreeDeathTest, RejectsInvalidPriorities) {
  SumTree tree = MakeTree(std::vector<float>(10, 1.0f));
  const auto set = [&tree](float p) { tree.Set(std::vector<Slot>{1}, std::vector<float>{p}); };
  EXPECT_DEATH(set(std::nanf("")), "priority");
  EXPECT_DEATH(set(-1), "priority");
  EXPECT_DEATH(set(std::numeric_limits<float>::infinity()), "priority");
  EXPECT_DEATH(tree.Set(std::vector<Slot>{10}, std::vector<float>{1}), "slot 10 of 10");
}

}  // namespace
}  // namespace troop
