#include "replay/items/item_evictor.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/replay/parts_world.h"

namespace troop {
namespace {

using Slot = ItemSlots::Slot;

// Items of one frame step each; item i is in slot i and refers to frames i and i + 1.
std::unique_ptr<TableParts> TenItems(TableOptions options = TinyOptions(20)) {
  options.view = {.length_max = 1};
  auto parts = MakeParts(options);
  PutInto(parts.get(), TinyChunk(1, 0, 11), TinyItems(1, 0, 10));
  return parts;
}

TEST(ItemEvictorTest, EvictedItemsReleaseTheirFrames) {
  auto parts = TenItems();
  EXPECT_EQ(parts->log.frames(), 11);
  parts->evictor.Evict(3);
  EXPECT_EQ(parts->slots.size(), 7);
  EXPECT_EQ(parts->log.frames(), 8);
  EXPECT_EQ(parts->selectors.total(), 7);
  parts->evictor.Evict(100);
  EXPECT_EQ(parts->slots.size(), 0);
  EXPECT_EQ(parts->log.frames(), 2);  // those that later items of the stream may refer to
}

TEST(ItemEvictorTest, EvictsTheseAndNoOthers) {
  auto parts = TenItems();
  const std::vector<Slot> leavers{7, 2};
  parts->evictor.EvictThese(leavers);
  parts->evictor.EvictThese({});
  for (Slot s = 0; s < 10; ++s) EXPECT_EQ(parts->slots.item(s).live(), s != 7 && s != 2);
  EXPECT_EQ(parts->selectors.total(), 8);
}

TEST(ItemEvictorTest, EvictionDropsLiveBytesOfItemRecord) {
  TableOptions options = TinyOptions(20);
  options.checksums = true;
  auto parts = TenItems(options);
  const std::size_t before = parts->log.store().live();
  const Slot middle = 5;  // its frames stay, as those of its neighbors
  parts->evictor.EvictThese({&middle, 1});
  EXPECT_EQ(before - parts->log.store().live(), parts->log.layout().item_bytes());
}

TEST(ItemEvictorTest, SpentItemIsEvictedAfterSamplerLostIt) {
  auto parts = TenItems();
  const Slot spent = 4;
  parts->selectors.RemoveFromSampler({&spent, 1});
  parts->evictor.EvictSpent({&spent, 1});
  EXPECT_FALSE(parts->slots.item(spent).live());
  EXPECT_EQ(parts->selectors.total(), 9);
}

TEST(ItemEvictorTest, PinnedFramesStayUntilUnpin) {
  auto parts = TenItems();
  const std::vector<Slot> drawn{0, 0, 1};
  parts->evictor.Pin(drawn);
  parts->evictor.Evict(2);
  EXPECT_EQ(parts->log.frames(), 11);
  parts->evictor.Unpin();
  EXPECT_EQ(parts->log.frames(), 9);
  parts->evictor.Unpin();
  EXPECT_EQ(parts->log.frames(), 9);
}

TEST(ItemEvictorTest, TrimIsDueOnceTheNumberOfSamplesIsReached) {
  TableOptions options = TinyOptions(9);
  options.trim_every_samples = 5;
  auto parts = TenItems(options);
  EXPECT_FALSE(parts->evictor.CountSamples(4));
  EXPECT_EQ(parts->evictor.samples_since_trim(), 4u);
  EXPECT_TRUE(parts->evictor.CountSamples(3));
  EXPECT_EQ(parts->evictor.samples_since_trim(), 0u);
  parts->evictor.TrimToCapacity();
  EXPECT_EQ(parts->slots.size(), 9);
  EXPECT_FALSE(parts->evictor.CountSamples(100));  // due, but nothing to trim
}

TEST(ItemEvictorTest, HardCapacityIsNeverTrimmed) {
  auto parts = TenItems();
  EXPECT_FALSE(parts->evictor.CountSamples(1000000));
  parts->evictor.TrimToCapacity();
  EXPECT_EQ(parts->slots.size(), 10);
}

}  // namespace
}  // namespace troop
