#include "replay/items/dirty_lines.h"

#include <gtest/gtest.h>

#include <set>

namespace troop {
namespace {

TEST(DirtyLinesTest, TracksNothingWithoutSlots) {
  DirtyLines lines(0);
  lines.Mark(5);
  EXPECT_EQ(lines.count(), 0);
  EXPECT_EQ(lines.Take(), -1);
}

TEST(DirtyLinesTest, SlotsOfOneLineMarkItOnce) {
  DirtyLines lines(100);
  lines.Mark(16);
  lines.Mark(31);
  EXPECT_EQ(lines.count(), 1);
  EXPECT_EQ(lines.Take(), 1);
  EXPECT_EQ(lines.count(), 0);
  EXPECT_EQ(lines.Take(), -1);
}

TEST(DirtyLinesTest, TakesEachDirtyLineOnceAcrossWords) {
  DirtyLines lines(16 * 200);
  const std::set<std::int64_t> marked{0, 63, 64, 127, 128, 199};
  for (const std::int64_t line : marked) lines.Mark(std::uint32_t(line * 16 + 3));
  EXPECT_EQ(lines.count(), 6);
  std::set<std::int64_t> taken;
  for (std::int64_t line = lines.Take(); line >= 0; line = lines.Take()) taken.insert(line);
  EXPECT_EQ(taken, marked);
}

// A line that changes all the time must not keep others from their turn.
TEST(DirtyLinesTest, TakesLinesRoundRobin) {
  DirtyLines lines(16 * 70);
  for (const std::uint32_t line : {2u, 5u, 69u}) lines.Mark(line * 16);
  EXPECT_EQ(lines.Take(), 2);
  lines.Mark(2 * 16);
  EXPECT_EQ(lines.Take(), 5);
  lines.Mark(5 * 16);
  EXPECT_EQ(lines.Take(), 69);
  EXPECT_EQ(lines.Take(), 2);
  EXPECT_EQ(lines.Take(), 5);
  EXPECT_EQ(lines.Take(), -1);
}

TEST(DirtyLinesTest, TakesLineBelowCursorInSameWord) {
  DirtyLines lines(16 * 10);
  lines.Mark(9 * 16);
  EXPECT_EQ(lines.Take(), 9);
  lines.Mark(4 * 16);
  EXPECT_EQ(lines.Take(), 4);
}

}  // namespace
}  // namespace troop
