#include "replay/table/item_gatherer.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/replay/parts_world.h"

namespace troop {
namespace {

using Slot = ItemSlots::Slot;

TEST(ItemGathererTest, RowsFollowTheChosenSlots) {
  TableOptions options = TinyOptions();
  auto parts = MakeParts(options);
  PutInto(parts.get(), TinyChunk(1, 0, 11), TinyItems(1, 0, 8, 1, 3));
  ItemGatherer gatherer(options.view, &parts->log, &parts->slots);
  EncodedBatch batch;
  const std::vector<Slot> chosen{4, 1, 4};
  gatherer.Gather(chosen, &batch);
  EXPECT_EQ(batch.key[0], parts->slots.key(4));
  EXPECT_EQ(batch.key[1], parts->slots.key(1));
  EXPECT_EQ(batch.key[2], batch.key[0]);
  EXPECT_EQ(batch.policy_version, (std::vector<std::uint64_t>{4, 1, 4}));
  EXPECT_EQ(batch.reward,
            (std::vector<float>{4.5f, 5.5f, 6.5f, 1.5f, 2.5f, 3.5f, 4.5f, 5.5f, 6.5f}));
  EXPECT_EQ(batch.frame.size(), 6u);  // the first and the last observation of each
  EXPECT_EQ(gatherer.age()[0], 3u);
  EXPECT_EQ(gatherer.age()[1], 6u);
}

TEST(ItemGathererTest, StepsThatAnItemLacksHaveRewardZeroAndDiscountOne) {
  TableOptions options = TinyOptions();
  auto parts = MakeParts(options);
  PutInto(parts.get(), EncodeFrames(TinySpec(), Codec::kNone, 1, EpisodeEnd(0, 3, 0.25f)),
          TinyItems(1, 0, 1, 1, 2));
  ItemGatherer gatherer(options.view, &parts->log, &parts->slots);
  EncodedBatch batch;
  const Slot chosen = 0;
  gatherer.Gather({&chosen, 1}, &batch);
  EXPECT_EQ(batch.reward, (std::vector<float>{0.5f, 1.5f, 0}));
  EXPECT_EQ(batch.discount, (std::vector<float>{1, 0.25f, 1}));
}

// Vectors of an earlier, larger batch are reused.
TEST(ItemGathererTest, SmallerBatchShrinksTheColumns) {
  TableOptions options = TinyOptions();
  auto parts = MakeParts(options);
  PutInto(parts.get(), TinyChunk(1, 0, 11), TinyItems(1, 0, 8));
  ItemGatherer gatherer(options.view, &parts->log, &parts->slots);
  EncodedBatch batch;
  gatherer.Gather(std::vector<Slot>(1500, 2), &batch);
  EXPECT_EQ(batch.size(), 1500);
  gatherer.Gather({}, &batch);
  EXPECT_EQ(batch.size(), 0);
  EXPECT_TRUE(batch.reward.empty() && batch.frame.empty() && gatherer.age().empty());
}

}  // namespace
}  // namespace troop
