#include "replay/storage/frame_ids.h"

#include <gtest/gtest.h>

#include <iterator>
#include <set>
#include <utility>

#include "core/base/check.h"
#include "core/base/philox.h"

namespace troop {
namespace {

FrameIds MakeIds(std::int64_t count) {
  auto ids = FrameIds::Make(count);
  TROOP_CHECK(ids.ok(), "{}", ids.status().ToString());
  return std::move(*ids);
}

TEST(FrameIdsTest, BeginsWithIdOneInAscendingOrder) {
  FrameIds ids = MakeIds(10);
  EXPECT_TRUE(ids.untouched());
  EXPECT_EQ(ids.last(), 10u);
  for (FrameIds::Id id = 1; id <= 10; ++id) EXPECT_EQ(ids.Take(), id);
  EXPECT_EQ(ids.live(), 10);
  EXPECT_FALSE(ids.untouched());
}

TEST(FrameIdsTest, LastFreeIdIsFoundWhereverItIs) {
  for (const FrameIds::Id free : {1u, 63u, 64u, 65u, 128u, 200u}) {
    FrameIds ids = MakeIds(200);
    for (int i = 0; i < 200; ++i) ids.Take();
    for (int round = 0; round < 3; ++round) {
      ids.Free(free);
      EXPECT_EQ(ids.live(), 199);
      EXPECT_EQ(ids.Take(), free);
      EXPECT_EQ(ids.live(), 200);
    }
  }
}

TEST(FrameIdsTest, TakesNewIdsUntilEnoughOldOnesAreFree) {
  FrameIds ids = MakeIds(1000);
  for (int i = 0; i < 160; ++i) ids.Take();
  for (FrameIds::Id id = 1; id <= 10; ++id) ids.Free(id);
  EXPECT_EQ(ids.Take(), 161u);  // 10 of 160 are free
  ids.Free(11);
  EXPECT_EQ(ids.Take(), 1u);  // 11 of 161 are free
  EXPECT_EQ(ids.Take(), 162u);
}

TEST(FrameIdsTest, ReusesFreedIdsInAscendingOrderFromTheLastOneTaken) {
  FrameIds ids = MakeIds(100);
  for (int i = 0; i < 100; ++i) ids.Take();
  for (const FrameIds::Id id : {70u, 20u, 90u}) ids.Free(id);
  EXPECT_EQ(ids.Take(), 20u);
  ids.Free(10);  // before the cursor: after the others
  EXPECT_EQ(ids.Take(), 70u);
  EXPECT_EQ(ids.Take(), 90u);
  EXPECT_EQ(ids.Take(), 10u);
}

TEST(FrameIdsTest, NeverTakesLiveIdUnderChurn) {
  FrameIds ids = MakeIds(300);
  Rng rng({.run_seed = 1});
  std::set<FrameIds::Id> live;
  for (int i = 0; i < 20000; ++i) {
    if (live.empty() || (live.size() < 300 && rng.Below(100) < 52)) {
      const FrameIds::Id id = ids.Take();
      ASSERT_TRUE(id >= 1 && id <= 300) << id;
      ASSERT_TRUE(live.insert(id).second) << id;
    } else {
      const auto it = std::next(live.begin(), rng.Below(std::uint32_t(live.size())));
      ids.Free(*it);
      live.erase(it);
    }
    ASSERT_EQ(ids.live(), std::int64_t(live.size()));
  }
}

TEST(FrameIdsTest, TakesOneBitPerId) {
  const FrameIds ids = MakeIds(std::int64_t{1} << 20);
  EXPECT_EQ(ids.bytes(), FrameIds::Bytes(std::int64_t{1} << 20));
  EXPECT_LE(ids.bytes(), (std::size_t{1} << 17) + 4096);
}

}  // namespace
}  // namespace troop
