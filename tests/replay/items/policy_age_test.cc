#include "replay/items/policy_age.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/base/check.h"

namespace troop {
namespace {

using Slot = ItemSlots::Slot;

// Slots with items of given policy versions.
struct AgedSlots {
  explicit AgedSlots(std::uint64_t max_age, std::int64_t capacity = 10)
      : slots(Made(capacity)), ages(max_age, &slots) {}
  static ItemSlots Made(std::int64_t capacity) {
    auto made = ItemSlots::Make({.slots = capacity});
    TROOP_CHECK(made.ok(), "{}", made.status().ToString());
    return std::move(*made);
  }
  Slot Add(std::uint64_t version) {
    const Slot slot = slots.Add({.policy_version = version, .length = 1});
    ages.NoteItem(slot);
    return slot;
  }
  std::vector<Slot> TakeStale() {
    std::vector<Slot> stale{77};
    ages.TakeStale(&stale);
    return stale;
  }
  ItemSlots slots;
  PolicyAge ages;
};

TEST(PolicyAgeTest, ItemsRaiseTheNewestVersion) {
  AgedSlots world(0);
  world.Add(5);
  world.Add(3);
  EXPECT_EQ(world.ages.newest(), 5u);
  world.ages.Raise(9);
  EXPECT_EQ(world.ages.newest(), 9u);
}

// An actor could have made its versions up.
TEST(PolicyAgeTest, FirstObservationDiscardsVersionsOfItems) {
  AgedSlots world(0);
  world.Add(1000);
  world.ages.Observe(4);
  EXPECT_EQ(world.ages.newest(), 4u);
  world.Add(2000);
  world.ages.Raise(3000);
  EXPECT_EQ(world.ages.newest(), 4u);
  world.ages.Observe(3);  // late
  EXPECT_EQ(world.ages.newest(), 4u);
  world.ages.Observe(6);
  EXPECT_EQ(world.ages.newest(), 6u);
}

TEST(PolicyAgeTest, ItemIsStaleAboveTheLimitOnly) {
  AgedSlots world(3);
  const Slot item = world.Add(10), future = world.Add(90);
  world.ages.Observe(13);
  EXPECT_FALSE(world.ages.IsStale(item));
  EXPECT_FALSE(world.ages.IsStale(future));
  world.ages.Observe(14);
  EXPECT_TRUE(world.ages.IsStale(item));
}

TEST(PolicyAgeTest, TakesStaleItemsAtTheFrontAndSkipsEvictedOnes) {
  AgedSlots world(3);
  for (const std::uint64_t version : {1, 2, 3, 9, 1}) world.Add(version);
  world.slots.Free(1);
  world.ages.Observe(10);
  // The last item is old, too, but not at the front.
  EXPECT_EQ(world.TakeStale(), (std::vector<Slot>{0, 2}));
  EXPECT_EQ(world.TakeStale(), std::vector<Slot>{});
}

TEST(PolicyAgeTest, KeepsNoOrderWithoutLimit) {
  AgedSlots world(0);
  world.Add(1);
  EXPECT_FALSE(world.ages.limited());
  EXPECT_EQ(world.ages.bytes(), 0u);
}

// An item that stays at the front kept the keys of all that were evicted after it.
TEST(PolicyAgeTest, OrderIsBoundedWhileTheFrontStays) {
  AgedSlots world(1000, 4);
  world.Add(1);
  for (int i = 0; i < 5000; ++i) {
    world.slots.Free(world.Add(1));
    world.ages.TrimOrder();
  }
  EXPECT_LE(world.ages.bytes(), (2 * 4 + 1024 + 1) * 8u);
  EXPECT_GE(world.ages.bytes(), 8u);
}

}  // namespace
}  // namespace troop
