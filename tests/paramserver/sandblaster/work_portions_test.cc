// Portions of a batch are handed out to workers, and each is counted once.
#include "paramserver/sandblaster/work_portions.h"

#include <gmock/gmock.h>

#include <set>

#include "core/base/philox.h"

namespace troop {
namespace {

TEST(WorkPortionsTest, WorkersContinueAfterTheirLastPortion) {
  WorkPortions portions({.portions = 6, .workers = 2});
  EXPECT_EQ(portions.Take(0), 0);
  EXPECT_EQ(portions.Take(1), 3);
  EXPECT_EQ(portions.Take(0), 1);
  EXPECT_EQ(portions.Take(0), 2);
  EXPECT_EQ(portions.Take(0), 4);
  EXPECT_EQ(portions.Take(1), 5);
  EXPECT_EQ(portions.backups(), 0);
}

TEST(WorkPortionsTest, FirstCopyOfAPortionCounts) {
  WorkPortions portions({.portions = 2, .workers = 3});
  EXPECT_EQ(portions.Take(0), 0);
  EXPECT_EQ(portions.Take(1), 1);
  EXPECT_EQ(portions.Take(2), 1);  // from its own start on
  EXPECT_EQ(portions.Take(2), 0);
  EXPECT_EQ(portions.Take(1), std::nullopt);  // two copies of each
  EXPECT_EQ(portions.backups(), 2);
  EXPECT_TRUE(portions.Finish(2, 0));
  EXPECT_FALSE(portions.Finish(0, 0));
  EXPECT_FALSE(portions.Finish(2, 0));
  EXPECT_FALSE(portions.done());
  EXPECT_TRUE(portions.Finish(1, 1));
  EXPECT_TRUE(portions.done());
}

TEST(WorkPortionsTest, WithoutBackupsWorkersWait) {
  WorkPortions portions({.portions = 1, .workers = 2, .backups = false});
  EXPECT_EQ(portions.Take(0), 0);
  EXPECT_EQ(portions.Take(1), std::nullopt);
  portions.Drop(0);
  EXPECT_FALSE(portions.Finish(0, 0));
  EXPECT_EQ(portions.Take(1), 0);
}

// Random workers that take, finish and die: every portion is counted once.
TEST(WorkPortionsTest, EveryPortionIsCountedOnce) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Rng rng({seed, Purpose::kTest, 0, 0});
    WorkPortions portions({.portions = 23, .workers = 5});
    std::vector<std::vector<int>> held(5);
    std::set<int> counted;
    while (!portions.done()) {
      const int worker = int(rng.Below(5));
      auto& mine = held[std::size_t(worker)];
      const auto action = rng.Below(10);
      if (action == 0) {
        portions.Drop(worker);
        mine.clear();
      } else if (action < 5 && !mine.empty()) {
        const bool counts = portions.Finish(worker, mine.back());
        EXPECT_TRUE(!counts || counted.insert(mine.back()).second);
        mine.pop_back();
      } else if (const auto portion = portions.Take(worker)) {
        mine.push_back(*portion);
      }
    }
    EXPECT_EQ(counted.size(), 23) << seed;
    EXPECT_EQ(portions.finished(), 23);
  }
}

}  // namespace
}  // namespace troop
