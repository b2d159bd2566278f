#include "replay/items/compactor.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tests/replay/parts_world.h"

namespace troop {
namespace {

using Slot = ItemSlots::Slot;

// A table whose small segments lost four of five items, spread over all of them.
std::unique_ptr<TableParts> MostlyDead() {
  TableOptions options = TinyOptions(2000);
  options.view = {.length_max = 1};
  options.segment_bytes = 4096;
  options.checksums = true;
  auto parts = MakeParts(options);
  for (std::uint64_t t = 0; t < 2000; t += 10) {
    PutInto(parts.get(), TinyChunk(1, t, 10), TinyItems(1, t, 9));
  }
  std::vector<Slot> leavers;
  for (Slot s = 0; s < Slot(parts->slots.size()); ++s) {
    if (s % 5 != 0) leavers.push_back(s);
  }
  parts->evictor.EvictThese(leavers);
  return parts;
}

// Content of a live item's first frame and reward.
std::vector<float> ContentOf(const TableParts& parts, Slot slot) {
  const FrameLog::Entry& entry = parts.log.entry(parts.slots.item(slot).first);
  std::vector<float> content(4);
  std::memcpy(content.data(), parts.log.observation(entry), 8);
  content[2] = entry.reward;
  std::memcpy(&content[3], parts.log.action(entry), 4);
  return content;
}

TEST(CompactorTest, FreesMemoryAndKeepsLiveContent) {
  auto parts = MostlyDead();
  std::vector<std::vector<float>> before;
  for (Slot s = 0; s < 1800; s += 5) before.push_back(ContentOf(*parts, s));
  const std::size_t memory = parts->log.store().memory(), live = parts->log.store().live();
  parts->compactor.Compact(std::size_t{1} << 30);
  EXPECT_GT(parts->compactor.moved_bytes(), 0u);
  EXPECT_LT(parts->log.store().memory(), memory * 2 / 3);
  EXPECT_EQ(parts->log.store().live(), live);
  for (Slot s = 0; s < 1800; s += 5) EXPECT_EQ(ContentOf(*parts, s), before[s / 5]) << s;
}

TEST(CompactorTest, ContinuesWithinABudget) {
  auto parts = MostlyDead();
  std::uint64_t moved = 0;
  int calls = 0;
  for (;; ++calls) {
    parts->compactor.Compact(1024);
    const std::uint64_t now = parts->compactor.moved_bytes();
    if (now == moved) break;
    EXPECT_LE(now - moved, 4096u);
    moved = now;
  }
  EXPECT_GT(calls, 5);
}

TEST(CompactorTest, DoesNothingWhileLittleIsDead) {
  TableOptions options = TinyOptions(2000);
  options.segment_bytes = 4096;
  auto parts = MakeParts(options);
  PutInto(parts.get(), TinyChunk(1, 0, 1000), TinyItems(1, 0, 900));
  parts->evictor.Evict(100);
  parts->compactor.Compact(std::size_t{1} << 30);
  EXPECT_EQ(parts->compactor.moved_bytes(), 0u);
}

TEST(CompactorTest, VictimThatWasFreedIsForgotten) {
  auto parts = MostlyDead();
  parts->compactor.Compact(512);
  parts->evictor.Evict(parts->slots.size());
  parts->compactor.Compact(std::size_t{1} << 30);
  EXPECT_EQ(parts->slots.size(), 0);
}

}  // namespace
}  // namespace troop
