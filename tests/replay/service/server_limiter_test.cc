#include <gtest/gtest.h>

#include "tests/replay/replay_world.h"

namespace troop {
namespace {

TEST(ReplayLimiterTest, SamplesWaitForMinItemsAndAreAnsweredInOrder) {
  ReplayWorld world(SmallOptions());
  const auto writer = world.Writer();
  const auto first = world.Sampler({.batch_size = 4, .prefetch = 1}, 0);
  const auto second = world.Sampler({.batch_size = 4, .prefetch = 1}, 1);
  EXPECT_FALSE(Took(Take(&world, first.get())));
  EXPECT_FALSE(Took(Take(&world, second.get())));
  EXPECT_EQ(world.Metric("replay/waiting_samples"), 2);
  Push(&world, writer.get(), 1, 0, 9);
  EXPECT_FALSE(Took(Take(&world, first.get())));
  Push(&world, writer.get(), 1, 10, 1);
  const auto a = Take(&world, first.get()), b = Take(&world, second.get());
  ASSERT_TRUE(Took(a) && Took(b));
  EXPECT_EQ(world.Metric("replay/waiting_samples"), 0);
}

TEST(ReplayLimiterTest, ParksInsertsUntilLearnerSamples) {
  ReplayWorld world(Limited());
  const auto writer = world.Writer();
  Push(&world, writer.get(), 1, 0, 10);
  Push(&world, writer.get(), 1, 11, 2);  // lead 24 after it
  Push(&world, writer.get(), 1, 14, 1);
  EXPECT_EQ(writer->acked_items(), 12u);
  EXPECT_EQ(writer->unacked_pushes(), 1);
  EXPECT_EQ(world.Metric("replay/waiting_inserts"), 1);
  const auto sampler = world.Sampler({.batch_size = 3, .prefetch = 1});
  ASSERT_TRUE(Took(Take(&world, sampler.get())));
  writer->Poll(world.now());
  EXPECT_EQ(writer->acked_items(), 13u);
  EXPECT_EQ(world.Metric("replay/waiting_inserts"), 0);
}

TEST(ReplayLimiterTest, WindowAppliesBackpressureToWriter) {
  ReplayWorld world(Limited());
  const auto writer = world.Writer(0, 2);
  Push(&world, writer.get(), 1, 0, 30);
  Push(&world, writer.get(), 1, 31, 1);
  EXPECT_TRUE(writer->CanPush());
  Push(&world, writer.get(), 1, 33, 1);
  EXPECT_FALSE(writer->CanPush());
}

TEST(ReplayLimiterTest, ReportsBlockedTimeOfEachSide) {
  ReplayWorld world(Limited());
  const auto writer = world.Writer();
  const auto sampler = world.Sampler({.batch_size = 1, .prefetch = 1});
  sampler->Poll(world.now());
  world.Pump();
  world.Advance(Seconds(3));
  EXPECT_DOUBLE_EQ(world.Metric("replay/sample_blocked_s"), 3);
  EXPECT_DOUBLE_EQ(world.Metric("replay/insert_blocked_s"), 0);
  Push(&world, writer.get(), 1, 0, 30);
  Push(&world, writer.get(), 1, 31, 1);
  world.Advance(Seconds(2));
  EXPECT_DOUBLE_EQ(world.Metric("replay/sample_blocked_s"), 3);
  EXPECT_DOUBLE_EQ(world.Metric("replay/insert_blocked_s"), 2);
}

TEST(ReplayLimiterTest, KeepsTargetRatio) {
  ReplayServer::Options options = SmallOptions();
  options.tables[0].samples_per_insert = 8;
  options.tables[0].table.trim_every_samples = 100;
  ReplayWorld world(options);
  const auto writer = world.Writer();
  const auto sampler = world.Sampler({.batch_size = 16, .prefetch = 4});
  std::uint64_t frame = 0, taken = 0;
  while (frame < 21 * 500) {
    if (writer->CanPush()) {
      ASSERT_TRUE(writer->Push({MakeChunk(1, frame, 21)}, MakeItems(1, frame, 20)).ok());
      frame += 21;
    }
    writer->Poll(world.now());
    while (Took(Take(&world, sampler.get()))) ++taken;
  }
  EXPECT_NEAR(world.Metric("replay/samples_per_insert"), 8, 0.02 * 8);
  EXPECT_LE(world.Metric("replay/items"), 1125);
}

// Priorities of 0 everywhere (epsilon 0): only an insert can help, so inserts must not wait.
TEST(ReplayLimiterTest, InsertsContinueWhenNothingCanBeSampled) {
  ReplayServer::Options options = Limited();
  options.tables[0].table.priority_epsilon = 0;
  ReplayWorld world(options);
  const auto writer = world.Writer();
  ASSERT_TRUE(writer->Push({MakeChunk(1, 0, 41)}, MakeItems(1, 0, 40, 0)).ok());
  const auto sampler = world.Sampler({.batch_size = 2});
  EXPECT_FALSE(Took(Take(&world, sampler.get())));
  writer->Poll(world.now());
  Push(&world, writer.get(), 1, 41, 5);
  EXPECT_EQ(writer->acked_items(), 45u);
  EXPECT_TRUE(Took(Take(&world, sampler.get())));
}

}  // namespace
}  // namespace troop
