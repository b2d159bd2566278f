#include "actors/insert_bounds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "actors/experience/trajectory_builder.h"

namespace troop {
namespace {

// The ends of an environment's steps, by chance.
struct Ends {
  double terminated = 0, lost = 0;  // probabilities per step
};

struct Largest {
  std::int64_t items = 0, frames = 0;
};

// The largest of many inserts of an actor that sends its buffers when they are due.
Largest LargestInsert(const ActorConfig& config, const Ends& ends, std::uint64_t seed,
                      int steps = 3000) {
  const std::vector<std::byte> observation(4), action(4);
  std::vector<TrajectoryBuilder> builders;
  for (std::int64_t i = 0; i < config.envs; ++i) {
    builders.emplace_back(TrajectoryBuilder::Options{.spec = {.observation = {DType::kF32, {1}},
                                                              .action = {DType::kI32, {}}},
                                                     .n_step = int(config.n_step),
                                                     .unroll = int(config.unroll_length),
                                                     .gamma = 0.9,
                                                     .copies = int(config.insert_copies)},
                          StreamId(i));
  }
  const InsertBounds bounds = InsertBoundsOf(config);
  std::mt19937_64 random(seed);
  // All environments end together in some steps: the worst case.
  std::uniform_real_distribution<double> uniform;
  Largest largest;
  for (int step = 0; step < steps; ++step) {
    const double chance = uniform(random);
    const bool lost = chance < ends.lost,
               terminated = !lost && chance < ends.lost + ends.terminated;
    Largest now;
    for (TrajectoryBuilder& builder : builders) {
      if (lost) {
        builder.Cut(observation, std::nullopt);
      } else {
        builder.Append({.observation = observation,
                        .action = action,
                        .terminated = terminated,
                        .final_observation = observation});
      }
      now.items += std::int64_t(builder.items());
      now.frames += builder.frames();
    }
    if (now.items < bounds.items_due && now.frames < bounds.frames_due) continue;
    largest = {std::max(largest.items, now.items), std::max(largest.frames, now.frames)};
    std::vector<Item> items;
    for (TrajectoryBuilder& builder : builders) builder.Take(&items);
  }
  return largest;
}

TEST(InsertBoundsTest, NoInsertExceedsThem) {
  std::uint64_t seed = 0;
  for (const std::int64_t envs : {1, 3, 16}) {
    for (const std::int64_t n_step : {1, 3, 10}) {
      for (const std::int64_t copies : {1, 4}) {
        for (const std::int64_t batch : {1, 20}) {
          for (const Ends& ends : {Ends{.terminated = 0.05}, Ends{.terminated = 1},
                                   Ends{.terminated = 0.1, .lost = 0.5}, Ends{.lost = 0.9}}) {
            const ActorConfig config{.envs = envs,
                                     .n_step = n_step,
                                     .insert_batch_size = batch,
                                     .insert_copies = copies};
            const InsertBounds bounds = InsertBoundsOf(config);
            const Largest largest = LargestInsert(config, ends, ++seed, 400);
            EXPECT_LE(largest.items, bounds.items_max) << seed;
            EXPECT_LE(largest.frames, bounds.frames_max) << seed;
          }
        }
      }
    }
  }
}

TEST(InsertBoundsTest, NoInsertOfUnrollsExceedsThem) {
  std::uint64_t seed = 0;
  for (const std::int64_t envs : {1, 3, 16}) {
    for (const std::int64_t unroll : {1, 5, 32}) {
      for (const std::int64_t batch : {1, 20}) {
        for (const Ends& ends : {Ends{.terminated = 0.05}, Ends{.terminated = 1},
                                 Ends{.terminated = 0.1, .lost = 0.5}, Ends{.lost = 0.9}}) {
          const ActorConfig config{.envs = envs,
                                   .unroll_length = unroll,
                                   .insert_batch_size = batch,
                                   .insert_copies = 2};
          const InsertBounds bounds = InsertBoundsOf(config);
          const Largest largest = LargestInsert(config, ends, ++seed, 400);
          EXPECT_LE(largest.items, bounds.items_max) << seed;
          EXPECT_LE(largest.frames, bounds.frames_max) << seed;
        }
      }
    }
  }
}

// The bound of items is exact: all environments end with a full window, one item before the push.
TEST(InsertBoundsTest, LargestInsertHasAllItemsOfEndingEpisodes) {
  const ActorConfig config{.envs = 1, .n_step = 3, .insert_batch_size = 20, .insert_copies = 1};
  EXPECT_EQ(LargestInsert(config, {.terminated = 0.05}, 1).items, 23);
  EXPECT_EQ(InsertBoundsOf(config).items_max, 23);
}

// Without the bound on frames, this actor would never send its buffer.
TEST(InsertBoundsTest, FramesWithoutItemsAreSentToo) {
  const ActorConfig config{.envs = 2, .n_step = 10, .insert_batch_size = 20};
  const Largest largest = LargestInsert(config, {.lost = 0.9}, 1);
  EXPECT_GE(largest.frames, InsertBoundsOf(config).frames_due);
}

}  // namespace
}  // namespace troop
