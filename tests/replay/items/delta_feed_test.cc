#include "replay/items/delta_feed.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "tests/replay/parts_world.h"

namespace troop {
namespace {

constexpr std::int64_t kAllItems = std::numeric_limits<std::int64_t>::max();
constexpr std::size_t kAllBytes = std::numeric_limits<std::size_t>::max();

std::unique_ptr<TableParts> FedParts(bool feed) {
  TableOptions options = TinyOptions(20);
  options.view = {.length_max = 1};
  options.feed = feed;
  auto parts = MakeParts(options);
  PutInto(parts.get(), TinyChunk(1, 0, 11), TinyItems(1, 0, 10));
  return parts;
}

TEST(DeltaFeedTest, NotesNothingUnlessEnabled) {
  EXPECT_EQ(FedParts(false)->feed.bytes(), 0u);
  EXPECT_GT(FedParts(true)->feed.bytes(), 0u);
}

TEST(DeltaFeedTest, ContinuesWhereTheLastDeltaEnded) {
  auto parts = FedParts(true);
  TableDelta delta;
  DeltaCursor at = parts->feed.Read({}, 4, kAllBytes, &delta);
  EXPECT_EQ(at.next, 4u);
  EXPECT_EQ(delta.number, (std::vector<std::uint64_t>{0, 1, 2, 3}));
  EXPECT_EQ(delta.frames(), 5);
  at = parts->feed.Read(at, kAllItems, kAllBytes, &delta);
  EXPECT_EQ(at.next, 10u);
  EXPECT_EQ(delta.items(), 6);
  EXPECT_EQ(delta.frames(), 6);  // the first frame of item 4 was in the delta before
  EXPECT_EQ(delta.window.size(), 12u);
  at = parts->feed.Read(at, kAllItems, kAllBytes, &delta);
  EXPECT_EQ(at.next, 10u);
  EXPECT_EQ(delta.items(), 0);
}

TEST(DeltaFeedTest, EndsOnceBytesAreReached) {
  auto parts = FedParts(true);
  TableDelta delta;
  EXPECT_EQ(parts->feed.Read({}, kAllItems, 1, &delta).next, 1u);
}

TEST(DeltaFeedTest, LateReplicaRestartsAtTheOldestItem) {
  auto parts = FedParts(true);
  TableDelta delta;
  const DeltaCursor at = parts->feed.Read({}, 2, kAllBytes, &delta);
  parts->evictor.Evict(5);
  EXPECT_EQ(parts->feed.OldestNumber(), 5u);
  const DeltaCursor next = parts->feed.Read(at, kAllItems, kAllBytes, &delta);
  EXPECT_EQ(next.start, 5u);
  EXPECT_EQ(next.next, 10u);
  EXPECT_EQ(delta.number.front(), 5u);
  EXPECT_EQ(delta.frames(), 6);
}

TEST(DeltaFeedTest, OldestNumberOfEmptyTableIsTheNextOne) {
  auto parts = FedParts(true);
  parts->evictor.Evict(10);
  EXPECT_EQ(parts->feed.OldestNumber(), 10u);
  EXPECT_EQ(FedParts(false)->feed.OldestNumber(), 10u);
}

}  // namespace
}  // namespace troop
