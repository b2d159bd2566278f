#include "replay/persistence/segment_ranges.h"

#include <gtest/gtest.h>

#include <set>

#include "core/base/philox.h"

namespace troop {
namespace {

TEST(SegmentRangesTest, RoundTripsAddedRanges) {
  Rng rng({.purpose = Purpose::kTest, .index = 9});
  for (int i = 0; i < 300; ++i) {
    SegmentRanges ranges;
    std::set<std::uint64_t> added;
    for (std::uint32_t n = rng.Below(20); n > 0; --n) {
      const std::uint64_t first = 1 + rng.Below(40), last = first + rng.Below(4);
      ranges.Add({first, last});
      for (std::uint64_t id = first; id <= last; ++id) added.insert(id);
    }
    const auto copy = SegmentRanges::Parse(ranges.Encode());
    ASSERT_TRUE(copy.ok()) << ranges.Encode();
    EXPECT_EQ(copy->Encode(), ranges.Encode());
    std::set<std::uint64_t> missing;
    std::uint64_t before = 0;
    for (const auto& [first, last] : copy->Missing(50)) {
      EXPECT_GT(first, before + (before > 0));  // they neither overlap nor touch
      for (std::uint64_t id = first; id <= last; ++id) missing.insert(id);
      before = last;
    }
    for (std::uint64_t id = 1; id <= 50; ++id) EXPECT_NE(added.contains(id), missing.contains(id));
  }
}

TEST(SegmentRangesTest, RejectsDamagedText) {
  SegmentRanges ranges;
  ranges.Add({1, 17});
  ranges.Add(19);
  EXPECT_EQ(ToString(ranges.Missing(25)), "18, 20-25");
  const std::string good = ranges.Encode();
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = char(bad[i] ^ 1 << i % 7);
    EXPECT_FALSE(SegmentRanges::Parse(bad).ok()) << bad;
    EXPECT_FALSE(SegmentRanges::Parse(good.substr(0, i)).ok()) << i;
  }
  EXPECT_FALSE(SegmentRanges::Parse("").ok());
}

}  // namespace
}  // namespace troop
