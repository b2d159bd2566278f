#include "replay/server.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "net/codec.h"
#include "replay/wire.h"
#include "tests/replay/replay_world.h"

namespace troop {
namespace {

ReplayServer::Options SmallOptions() {
  return {.trajectory = SmallSpec(),
          .n_step_max = 3,
          .capacity_items = 1000,
          .min_items = 10,
          .samples_per_insert = 0,
          .seed = 7};
}

// Pushes `items` one-step items of one stream, starting at frame `first`.
void PushAll(ReplayWorld* world, ReplayWriter* writer, StreamId stream, std::uint64_t first,
             std::uint32_t items) {
  ASSERT_TRUE(writer->CanPush());
  ASSERT_TRUE(writer->Push({MakeChunk(stream, first, items + 1)},
                           MakeItems(stream, first, items)).ok());
  world->Pump();
  writer->Poll(world->now());
}

// The next batch, which must be there after one exchange.
Result<std::optional<SampleBatch>> Take(ReplayWorld* world, ReplaySampler* sampler) {
  sampler->Poll(world->now());
  world->Pump();
  sampler->Poll(world->now());
  return sampler->Next();
}

TEST(ReplayServerTest, DrawnItemsAreTheFramesThatWerePushed) {
  ReplayWorld world(SmallOptions());
  const auto writer = world.Writer();
  ASSERT_TRUE(writer->Push({MakeChunk(3, 0, 20)}, MakeItems(3, 0, 17, 1, 3)).ok());
  const auto sampler = world.Sampler({.batch_size = 32, .prefetch = 1});
  const auto batch = Take(&world, sampler.get());
  ASSERT_TRUE(batch.ok() && batch->has_value());
  const SampleBatch& b = **batch;
  ASSERT_EQ(b.size(), 32);
  EXPECT_EQ(b.observation.shape(), (Shape{32, 2}));
  EXPECT_EQ(b.action.shape(), (Shape{32}));
  EXPECT_EQ(b.reward.shape(), (Shape{32, 3}));
  for (std::size_t i = 0; i < 32; ++i) {
    const float t = b.observation.as<float>()[2 * i + 1];
    EXPECT_EQ(b.policy_version[i], std::uint64_t(t));
    EXPECT_EQ(b.observation.as<float>()[2 * i], 3);
    EXPECT_EQ(b.next_observation.as<float>()[2 * i + 1], t + 3);
    EXPECT_EQ(b.action.as<std::int32_t>()[i], std::int32_t(30 + t));
    for (std::size_t j = 0; j < 3; ++j) {
      EXPECT_EQ(b.reward.as<float>()[3 * i + j], t + float(j) + 0.5f);
      EXPECT_EQ(b.discount.as<float>()[3 * i + j], 1);
    }
    EXPECT_EQ(b.length[i], 3);
    EXPECT_NEAR(b.probability[i], 1.0 / 17, 1e-6);
    EXPECT_NEAR(b.weight[i], 1, 1e-6);
  }
}

}  // namespace
}  // namespace troop
