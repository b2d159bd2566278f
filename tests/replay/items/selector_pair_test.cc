#include "replay/items/selector_pair.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/base/check.h"

namespace troop {
namespace {

using Slot = SelectorPair::Slot;
using Kind = Selector::Kind;

SelectorPair MakePair(Kind sampler, Kind remover) {
  auto pair = SelectorPair::Make({.sampler = {.kind = sampler, .alpha = 1},
                                  .remover = {.kind = remover, .alpha = 1},
                                  .slots = 10});
  TROOP_CHECK(pair.ok(), "{}", pair.status().ToString());
  return std::move(*pair);
}

// Adds slots 0 to n - 1 with priority 1, 2, 3 …
void AddSlots(SelectorPair* pair, Slot n) {
  std::vector<Slot> slots;
  std::vector<float> priorities;
  for (Slot s = 0; s < n; ++s) {
    slots.push_back(s);
    priorities.push_back(float(s + 1));
  }
  pair->Add(slots, priorities);
}

// The slot that the remover picks; at least one must be left.
Slot NextLeaver(SelectorPair* pair) {
  std::vector<Slot> leavers;
  pair->PickLeavers(1, &leavers);
  TROOP_CHECK(leavers.size() == 1, "{} slots picked", leavers.size());
  return leavers[0];
}

TEST(SelectorPairTest, LeaversAreRemovedFromBoth) {
  SelectorPair pair = MakePair(Kind::kPrioritized, Kind::kFifo);
  EXPECT_FALSE(pair.can_draw());
  AddSlots(&pair, 4);
  EXPECT_EQ(pair.total(), 10);
  std::vector<Slot> leavers{99};
  pair.PickLeavers(2, &leavers);
  EXPECT_EQ(leavers, (std::vector<Slot>{0, 1}));
  EXPECT_EQ(pair.total(), 7);
  pair.PickLeavers(5, &leavers);  // more than there are
  EXPECT_EQ(leavers, (std::vector<Slot>{2, 3}));
  EXPECT_FALSE(pair.can_draw());
}

TEST(SelectorPairTest, RemovedItemIsNeitherSampledNorPicked) {
  SelectorPair pair = MakePair(Kind::kPrioritized, Kind::kFifo);
  AddSlots(&pair, 3);
  const Slot gone = 0;
  pair.Remove({&gone, 1});
  EXPECT_EQ(pair.total(), 5);
  EXPECT_EQ(NextLeaver(&pair), 1);
}

// An item that was sampled often enough counts for the remover until its slot is freed.
TEST(SelectorPairTest, SpentItemLeavesSamplerFirst) {
  SelectorPair pair = MakePair(Kind::kPrioritized, Kind::kFifo);
  AddSlots(&pair, 2);
  const Slot spent = 0;
  pair.RemoveFromSampler({&spent, 1});
  EXPECT_EQ(pair.total(), 2);
  pair.RemoveFromRemover({&spent, 1});
  EXPECT_EQ(NextLeaver(&pair), 1);
}

TEST(SelectorPairTest, UpdateReachesRemoverThatReadsPriorities) {
  SelectorPair pair = MakePair(Kind::kPrioritized, Kind::kLowest);
  AddSlots(&pair, 3);
  const Slot changed = 2;
  const float priority = 0.5f;
  pair.Update({&changed, 1}, {&priority, 1});
  EXPECT_EQ(pair.total(), 3.5);
  EXPECT_EQ(NextLeaver(&pair), 2);
}

TEST(SelectorPairTest, UpdateKeepsOrderOfFifoRemover) {
  SelectorPair pair = MakePair(Kind::kPrioritized, Kind::kFifo);
  AddSlots(&pair, 3);
  const Slot changed = 0;
  const float priority = 9;
  pair.Update({&changed, 1}, {&priority, 1});
  EXPECT_EQ(NextLeaver(&pair), 0);
}

TEST(SelectorPairTest, InvalidSelectorIsRefused) {
  const auto pair = SelectorPair::Make({.sampler = {.alpha = -1}, .slots = 0});
  EXPECT_FALSE(pair.ok());
}

}  // namespace
}  // namespace troop
