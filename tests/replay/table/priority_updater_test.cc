#include "replay/table/priority_updater.h"

#include <gtest/gtest.h>

#include <cfloat>
#include <limits>
#include <vector>

#include "core/base/check.h"

namespace troop {
namespace {

using Slot = ItemSlots::Slot;

// Four items of priority 1 in a table of eight slots.
struct UpdatedSlots {
  explicit UpdatedSlots(double epsilon) : updater(epsilon, &slots, &selectors) {
    for (int i = 0; i < 4; ++i) {
      const Slot slot = slots.Add({.length = 1, .priority = 1});
      const float one = 1;
      selectors.Add({&slot, 1}, {&one, 1});
      keys.push_back(slots.key(slot));
    }
  }
  template <class T>
  static T Made(Result<T> made) {
    TROOP_CHECK(made.ok(), "{}", made.status().ToString());
    return std::move(*made);
  }
  UpdateCounts Update(std::uint64_t key, float p) { return updater.Update({&key, 1}, {&p, 1}); }
  ItemSlots slots = Made(ItemSlots::Make({.slots = 8, .tracks_lines = true}));
  SelectorPair selectors = Made(SelectorPair::Make(
      {.sampler = {.alpha = 1}, .remover = {.kind = Selector::Kind::kFifo}, .slots = 8}));
  PriorityUpdater updater;
  std::vector<std::uint64_t> keys;
};

TEST(PriorityUpdaterTest, NewPriorityReachesSlotAndSampler) {
  UpdatedSlots world(0.5);
  world.slots.dirty_lines().Take();
  EXPECT_EQ(world.Update(world.keys[2], 3).applied, 1);
  EXPECT_EQ(world.slots.item(2).priority, 3.5f);
  EXPECT_EQ(world.selectors.total(), 6.5);
  EXPECT_EQ(world.slots.dirty_lines().count(), 1);
}

TEST(PriorityUpdaterTest, LastOfSeveralPairsCounts) {
  UpdatedSlots world(0);
  const std::vector<std::uint64_t> keys{world.keys[0], world.keys[1], world.keys[0]};
  const std::vector<float> priorities{5, 6, 7};
  EXPECT_EQ(world.updater.Update(keys, priorities).applied, 3);
  EXPECT_EQ(world.selectors.total(), 7 + 6 + 1 + 1);
}

TEST(PriorityUpdaterTest, KeyOfEvictedItemHasNoEffect) {
  UpdatedSlots world(0);
  const Slot leaver = 1;
  world.selectors.Remove({&leaver, 1});
  world.slots.Free(leaver);
  EXPECT_EQ(world.Update(world.keys[1], 9).stale, 1);
  EXPECT_EQ(world.Update(~std::uint64_t{0}, 9).stale, 1);
  EXPECT_EQ(world.selectors.total(), 3);
}

TEST(PriorityUpdaterTest, InvalidPrioritiesAreRefused) {
  UpdatedSlots world(0.5);
  for (const float p :
       {-1.0f, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(world.Update(world.keys[0], p).refused, 1);
  }
  EXPECT_EQ(world.slots.item(0).priority, 1);
}

TEST(PriorityUpdaterTest, MinusZeroExcludesItemFromSampling) {
  UpdatedSlots world(0.5);
  EXPECT_EQ(world.Update(world.keys[0], -0.0f).applied, 1);
  EXPECT_EQ(world.slots.item(0).priority, 0);
  EXPECT_EQ(world.Update(world.keys[0], 0.0f).applied, 1);
  EXPECT_EQ(world.slots.item(0).priority, 0.5f);
}

TEST(PriorityUpdaterTest, EffectivePriorityStaysFinite) {
  EXPECT_EQ(EffectivePriority(FLT_MAX, 1e38), FLT_MAX);
  EXPECT_EQ(EffectivePriority(2, 1), 3);
}

}  // namespace
}  // namespace troop
