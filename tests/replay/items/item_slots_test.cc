#include "replay/items/item_slots.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "core/base/check.h"

namespace troop {
namespace {

using Slot = ItemSlots::Slot;

ItemSlots MakeSlots(const ItemSlots::Options& options) {
  auto slots = ItemSlots::Make(options);
  TROOP_CHECK(slots.ok(), "{}", slots.status().ToString());
  return std::move(*slots);
}
StoredItem AnItem(float priority = 1) { return {.first = 1, .length = 2, .priority = priority}; }

TEST(ItemSlotsTest, AssignsUnusedSlotsThenTheOneFreedLongestAgo) {
  ItemSlots slots = MakeSlots({.slots = 3});
  for (Slot s = 0; s < 3; ++s) EXPECT_EQ(slots.Add(AnItem()), s);
  slots.Free(2);
  slots.Free(0);
  EXPECT_EQ(slots.size(), 1);
  EXPECT_EQ(slots.Add(AnItem()), 2u);
  EXPECT_EQ(slots.Add(AnItem()), 0u);
}

TEST(ItemSlotsTest, ReusedSlotHasNewKeyAndNumber) {
  ItemSlots slots = MakeSlots({.slots = 1, .first_generation = 7});
  const std::uint64_t before = slots.key(slots.Add(AnItem()));
  EXPECT_EQ(before, std::uint64_t{7} << 32);
  EXPECT_TRUE(slots.Alive(before));
  slots.Free(0);
  EXPECT_FALSE(slots.Alive(before));
  const std::uint64_t after = slots.key(slots.Add(AnItem()));
  EXPECT_EQ(after, std::uint64_t{8} << 32);
  EXPECT_FALSE(slots.Alive(before));
  EXPECT_EQ(slots.item(0).number, 1u);
  EXPECT_EQ(slots.inserted(), 2u);
  EXPECT_EQ(slots.evicted(), 1);
}

// Generation 0 marks a slot that was never used.
TEST(ItemSlotsTest, GenerationWrapsAroundToOne) {
  ItemSlots slots = MakeSlots({.slots = 1, .first_generation = ~std::uint32_t{0}});
  slots.Free(slots.Add(AnItem()));
  EXPECT_EQ(slots.key(slots.Add(AnItem())) >> 32, 1u);
}

TEST(ItemSlotsTest, KeysOutsideTheTableAreNotAlive) {
  ItemSlots slots = MakeSlots({.slots = 2});
  slots.Add(AnItem());
  EXPECT_FALSE(slots.Alive(0));
  EXPECT_FALSE(slots.Alive((std::uint64_t{1} << 32) | 1));
  EXPECT_FALSE(slots.Alive((std::uint64_t{1} << 32) | 2));
  EXPECT_FALSE(slots.Alive(~std::uint64_t{0}));
}

TEST(ItemSlotsTest, NewItemInSlotStartsWithoutSamplesOrRecord) {
  ItemSlots slots = MakeSlots({.slots = 1});
  slots.Add(AnItem());
  EXPECT_EQ(slots.CountSample(0), 1u);
  EXPECT_EQ(slots.CountSample(0), 2u);
  slots.SetRecord(0, 4, 100);
  EXPECT_EQ(slots.cold(0).segment, 4u);
  slots.Free(0);
  slots.Add(AnItem());
  EXPECT_EQ(slots.cold(0).times_sampled, 0u);
  EXPECT_EQ(slots.cold(0).segment, SegmentStore::kNone);
}

TEST(ItemSlotsTest, EachChangeOfSnapshotContentMarksItsLine) {
  ItemSlots slots = MakeSlots({.slots = 40, .tracks_lines = true});
  const auto taken = [&slots] { return slots.dirty_lines().Take(); };
  for (int i = 0; i < 17; ++i) slots.Add(AnItem());
  EXPECT_EQ(slots.lines(), 3);
  EXPECT_EQ(taken(), 0);
  EXPECT_EQ(taken(), 1);
  EXPECT_EQ(taken(), -1);
  slots.SetPriority(16, 3);
  EXPECT_EQ(taken(), 1);
  slots.CountSample(2);
  EXPECT_EQ(taken(), 0);
  slots.Free(16);
  EXPECT_EQ(taken(), 1);
  EXPECT_EQ(taken(), -1);
}

TEST(ItemSlotsTest, LineHasLiveItemsOnly) {
  ItemSlots slots = MakeSlots({.slots = 20});
  for (int i = 0; i < 20; ++i) slots.Add(AnItem(float(i)));
  slots.CountSample(17);
  slots.Free(18);
  SlotLine line;
  slots.ReadLine(1, &line);
  EXPECT_EQ(line[0], (SlotState{.generation = 1, .priority = 16}));
  EXPECT_EQ(line[1], (SlotState{.generation = 1, .priority = 17, .times_sampled = 1}));
  EXPECT_EQ(line[2], SlotState{});
  EXPECT_EQ(line[4], SlotState{});  // beyond the slots
}

TEST(ItemSlotsTest, RestoredTableFillsEmptySlotsFromTheNextOne) {
  ItemSlots slots = MakeSlots({.slots = 5, .first_generation = 50});
  StoredItem item = AnItem();
  item.generation = 3;
  item.number = 8;
  slots.Restore(2, item, {.times_sampled = 4, .recovered = 1});
  slots.FinishRestore(3, 9);
  EXPECT_TRUE(slots.Alive((std::uint64_t{3} << 32) | 2));
  EXPECT_EQ(slots.cold(2).times_sampled, 4u);
  EXPECT_EQ(slots.evicted(), 8);
  std::vector<Slot> order;
  for (int i = 0; i < 4; ++i) order.push_back(slots.Add(AnItem()));
  EXPECT_EQ(order, (std::vector<Slot>{3, 4, 0, 1}));
  EXPECT_EQ(slots.item(3).number, 9u);
}

// Keys that the earlier process handed out and lost must not come again.
TEST(ItemSlotsTest, RestoredSlotContinuesWithOwnGenerations) {
  ItemSlots slots = MakeSlots({.slots = 1});
  StoredItem item = AnItem();
  item.generation = 3;
  slots.Restore(0, item, {.recovered = 1});
  slots.FinishRestore(0, 1);
  slots.SetFirstGeneration(1000);
  slots.Free(0);
  EXPECT_EQ(slots.key(slots.Add(AnItem())) >> 32, 1000u);
  slots.Free(0);
  EXPECT_EQ(slots.key(slots.Add(AnItem())) >> 32, 1001u);
}

}  // namespace
}  // namespace troop
