#include "envs/vector/episode_seeds.h"

#include <gtest/gtest.h>

#include <set>

namespace troop {
namespace {

TEST(EpisodeSeedsTest, FirstEpisodeHasGivenSeed) {
  EpisodeSeeds seeds(2);
  seeds.Seed(1, 77);
  EXPECT_EQ(seeds.Next(1), 77u);
  EXPECT_NE(seeds.Next(1), 77u);
  seeds.Seed(1, 5);
  EXPECT_EQ(seeds.Next(1), 5u);
}

TEST(EpisodeSeedsTest, LaterEpisodesFollowFromSeedAlone) {
  EpisodeSeeds one(1), many(3);
  one.Seed(0, 9);
  for (int i = 0; i < 3; ++i) many.Seed(i, std::uint64_t(i) + 8);
  std::set<std::uint64_t> all;
  for (int episode = 0; episode < 100; ++episode) {
    const std::uint64_t neighbor = many.Next(0);
    const std::uint64_t same = many.Next(1);
    EXPECT_EQ(one.Next(0), same);
    all.insert({neighbor, same});
  }
  EXPECT_EQ(all.size(), 200u);  // of 64 bits: none is equal by chance
}

}  // namespace
}  // namespace troop
