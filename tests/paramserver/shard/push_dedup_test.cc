#include "paramserver/shard/push_dedup.h"

#include <gtest/gtest.h>

#include <set>

#include "core/base/philox.h"

#include <set>

#include "core/base/philox.h"

namespace troop {
namespace {

using Seen = PushDedup::Seen;

TEST(PushLedgerTest, ReportsEachPushAsNewOnceInAnyOrder) {
  Rng rng({1, Purpose::kTest});
  for (int round = 0; round < 50; ++round) {
    PushDedup ledger;
    std::set<std::uint64_t> settled;
    std::uint64_t newest = 0;
    for (int i = 0; i < 1000; ++i) {
      const std::uint64_t low = newest > 40 ? newest - 40 : 1;
      const PushId id{3, 7, low + rng.Below(50)};
      const bool seen = settled.contains(id.sequence);
      ASSERT_EQ(ledger.Lookup(id) == Seen::kSettled, seen) << id.sequence << " of " << newest;
      if (seen) continue;
      ledger.Settle(id);
      settled.insert(id.sequence);
      newest = std::max(newest, id.sequence);
    }
  }
}

TEST(PushLedgerTest, TreatsPushesBeforeWindowAsSettled) {
  PushDedup ledger;
  ledger.Settle({0, 1, 1000});
  EXPECT_EQ(ledger.Lookup({0, 1, 1000 - 64}), Seen::kSettled);
  EXPECT_EQ(ledger.Lookup({0, 1, 1000 - 63}), Seen::kNew);
  EXPECT_EQ(ledger.Lookup({0, 1, 1000}), Seen::kSettled);
  EXPECT_EQ(ledger.Lookup({0, 1, 1001}), Seen::kNew);
  ledger.Settle({0, 1, 1063});
  EXPECT_EQ(ledger.Lookup({0, 1, 1000}), Seen::kSettled);
  ledger.Settle({0, 1, 5000});
  EXPECT_EQ(ledger.Lookup({0, 1, 4999}), Seen::kNew);
}

TEST(PushLedgerTest, NewerIncarnationFencesOlder) {
  PushDedup ledger;
  ledger.Settle({0, 1, 9});
  ledger.Settle({1, 4, 2});
  EXPECT_EQ(ledger.Lookup({0, 2, 9}), Seen::kNew);
  ledger.Settle({0, 2, 1});
  EXPECT_EQ(ledger.Lookup({0, 1, 10}), Seen::kFenced);
  EXPECT_EQ(ledger.Lookup({0, 2, 9}), Seen::kNew);
  EXPECT_EQ(ledger.Lookup({1, 4, 2}), Seen::kSettled);
}

TEST(PushLedgerTest, MergeKeepsPushesSettledByEither) {
  Rng rng({1, Purpose::kTest});
  for (int round = 0; round < 50; ++round) {
    PushDedup one, two;
    std::set<PushId> settled;
    for (int i = 0; i < 200; ++i) {
      const PushId id{std::int32_t(rng.Below(3)), 1, 1 + std::uint64_t(i) / 4 + rng.Below(12)};
      PushDedup& ledger = rng.Below(2) == 0 ? one : two;
      if (ledger.Lookup(id) == Seen::kNew) ledger.Settle(id);
      settled.insert(id);
    }
    one.Settle({7, 1, 3});
    two.Settle({7, 2, 1});
    ASSERT_TRUE(one.Merge(two).ok());
    for (std::int32_t learner = 0; learner < 3; ++learner) {
      for (std::uint64_t s = 1; s < 70; ++s) {
        EXPECT_EQ(one.Lookup({learner, 1, s}) == Seen::kSettled, settled.contains({learner, 1, s}));
      }
    }
    EXPECT_EQ(one.Lookup({7, 1, 3}), Seen::kFenced);
    EXPECT_EQ(one.Lookup({7, 2, 1}), Seen::kSettled);
  }
}

TEST(PushLedgerTest, RoundTripsAndValidatesEntries) {
  PushDedup ledger;
  for (std::int32_t learner : {5, 2, 9}) ledger.Settle({learner, 1, 3});
  const auto entries = ledger.entries();
  const auto again = PushDedup::FromEntries({entries.begin(), entries.end()});
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(*again, ledger);
  EXPECT_EQ(PushDedup::FromEntries({entries[1], entries[0]}).status().code(), Code::kDataLoss);
  std::vector<PushDedup::Entry> many(PushDedup::kLearnersMax + 1);
  for (std::size_t i = 0; i < many.size(); ++i) many[i].learner = std::int32_t(i);
  EXPECT_EQ(PushDedup::FromEntries(many).status().code(), Code::kDataLoss);
  many.pop_back();
  const auto full = PushDedup::FromEntries(many);
  EXPECT_TRUE(full->HasRoomFor(7));
  EXPECT_FALSE(full->HasRoomFor(5000));
}

}  // namespace
}  // namespace troop
