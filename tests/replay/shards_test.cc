#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <vector>

#include "replay/service/apportion.h"
#include "tests/replay/chi_square.h"
#include "tests/replay/replay_world.h"

namespace troop {
namespace {

ReplayServer::Options Tiny() {
  ReplayServer::Options options = SmallOptions();
  options.tables[0].table.min_items = 1;
  return options;
}

// Item t of stream s, as `MakeChunk` marks its observation.
std::size_t NumberOf(const SampleBatch& batch, std::size_t row) {
  const auto observation = batch.observation.as<float>();
  return std::size_t(observation[2 * row]) * 100 + std::size_t(observation[2 * row + 1]);
}

float PriorityOf(std::uint64_t stream, std::uint64_t t) {
  return float(1 + (7 * stream + t) % 5) * (stream == 1 ? 20.0f : 1.0f);
}

// Streams 0 … 3, which go to shards 0 … 3 where there are as many, with 40, 10, 20 and 30 items.
// Returns the share of each item by its number.
std::vector<double> Fill(ReplayWorld* world) {
  const auto writer = world->Writer();
  std::vector<double> share(400, 0);
  double sum = 0;
  const std::vector<std::uint32_t> items = {40, 10, 20, 30};
  for (std::uint64_t stream = 0; stream < items.size(); ++stream) {
    std::vector<Item> made = MakeItems(stream, 0, items[stream]);
    for (std::uint64_t t = 0; t < made.size(); ++t) {
      made[t].priority = PriorityOf(stream, t);
      share[stream * 100 + t] = std::pow(double(made[t].priority) + 1e-6, 0.6);
      sum += share[stream * 100 + t];
    }
    EXPECT_TRUE(writer->Push({MakeChunk(stream, 0, items[stream] + 1)}, made).ok());
    world->Pump();
    writer->Poll(world->now());
  }
  EXPECT_EQ(writer->acked_items(), 100u);
  for (double& s : share) s /= sum;
  return share;
}

Result<std::optional<SampleBatch>> WaitFor(ReplayWorld* world, ReplaySampler* sampler) {
  for (int i = 0; i < 400; ++i) {
    auto batch = Take(world, sampler);
    if (!batch.ok() || batch->has_value()) return batch;
    world->Advance(Milliseconds(10));
  }
  return std::optional<SampleBatch>();
}

// Draws in all; false-alarm rate 1e-6 (chi_square.h) with numbers that are the same in each run.
void ExpectFairDraws(std::size_t shards, std::int64_t draws) {
  ReplayWorld world(Tiny(), shards);
  const std::vector<double> share = Fill(&world);
  const auto sampler =
      world.Sampler({.batch_size = 500, .prefetch = 4, .batches_per_request = 20, .seed = shards});
  std::vector<std::int64_t> count(share.size(), 0);
  for (std::int64_t drawn = 0; drawn < draws; drawn += 500) {
    const auto batch = WaitFor(&world, sampler.get());
    ASSERT_TRUE(Took(batch)) << batch.status().ToString();
    for (std::size_t i = 0; i < 500; ++i) {
      const std::size_t number = NumberOf(**batch, i);
      ++count[number];
      ASSERT_NEAR((*batch)->probability[i], share[number], 1e-5 * share[number]);
    }
  }
  const ChiSquare test = TestCounts(count, share);
  EXPECT_TRUE(test.ok()) << test.statistic << " > " << test.limit;
}

TEST(ReplayShardsTest, SamplesFairlyFromOneShard) { ExpectFairDraws(1, 1'000'000); }
TEST(ReplayShardsTest, SamplesFairlyFromTwoUnequalShards) { ExpectFairDraws(2, 1'000'000); }
TEST(ReplayShardsTest, SamplesFairlyFromFourUnequalShards) { ExpectFairDraws(4, 1'000'000); }
TEST(ReplayShardsTest, SlowSamplesFairlyFromOneShard) { ExpectFairDraws(1, 100'000'000); }
TEST(ReplayShardsTest, SlowSamplesFairlyFromTwoUnequalShards) { ExpectFairDraws(2, 100'000'000); }
TEST(ReplayShardsTest, SlowSamplesFairlyFromFourUnequalShards) { ExpectFairDraws(4, 100'000'000); }

TEST(ReplayShardsTest, ApportionsSharesWithExactMean) {
  const std::vector<double> share = {1, 0, 2.5, 0.01, 3};
  std::vector<std::int64_t> given(5);
  std::vector<double> sum(5, 0);
  constexpr int kSteps = 10000;
  for (int i = 0; i < kSteps; ++i) {
    Apportion(share, 7, (i + 0.5) / kSteps, given);
    std::int64_t all = 0;
    for (std::size_t k = 0; k < 5; ++k) {
      const double exact = 7 * share[k] / 6.51;
      EXPECT_GE(given[k], std::int64_t(std::floor(exact)));
      EXPECT_LE(given[k], std::int64_t(std::ceil(exact)));
      sum[k] += double(given[k]);
      all += given[k];
    }
    ASSERT_EQ(all, 7);
  }
  for (std::size_t k = 0; k < 5; ++k) EXPECT_NEAR(sum[k] / kSteps, 7 * share[k] / 6.51, 1e-3);
}

TEST(ReplayShardsTest, SendsWholeStreamToOneShard) {
  ReplayWorld world(Tiny(), 4);
  Fill(&world);
  const std::vector<double> items = {40, 10, 20, 30};
  for (std::size_t k = 0; k < 4; ++k) EXPECT_EQ(world.Metric("replay/items", k), items[k]);
}

TEST(ReplayShardsTest, PrioritiesReachTheirItems) {
  ReplayWorld world(Tiny(), 4);
  Fill(&world);
  const auto sampler = world.Sampler({.batch_size = 200, .prefetch = 1});
  std::vector<double> priority(400);
  for (std::uint64_t s = 0; s < 4; ++s) {
    for (std::uint64_t t = 0; t < 100; ++t) priority[s * 100 + t] = PriorityOf(s, t);
  }
  for (int round = 0; round < 50; ++round) {
    const auto batch = WaitFor(&world, sampler.get());
    ASSERT_TRUE(Took(batch));
    std::vector<float> given;
    for (std::size_t i = 0; i < 200; ++i) {
      const std::size_t number = NumberOf(**batch, i);
      priority[number] = double(1 + (number + std::size_t(round)) % 9);
      given.push_back(float(priority[number]));
    }
    sampler->UpdatePriorities((*batch)->key, given);
  }
  sampler->Poll(world.now());
  world.Pump();
  double updates = 0, stale = 0;
  for (std::size_t k = 0; k < 4; ++k) {
    updates += world.Metric("replay/updates", k);
    stale += world.Metric("replay/stale_updates", k);
  }
  EXPECT_EQ(updates, 50 * 200);
  EXPECT_EQ(stale, 0);
  // Sampling probabilities now follow the newest priorities; the shares of shards are those of
  // their last replies, so some batches are skipped first.
  const std::vector<std::size_t> items = {40, 10, 20, 30};
  double sum = 0;
  for (std::size_t s = 0; s < 4; ++s) {
    for (std::size_t t = 0; t < items[s]; ++t) sum += std::pow(priority[s * 100 + t] + 1e-6, 0.6);
  }
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(Took(WaitFor(&world, sampler.get())));
  const auto batch = WaitFor(&world, sampler.get());
  ASSERT_TRUE(Took(batch));
  for (std::size_t i = 0; i < 200; ++i) {
    const double expected = std::pow(priority[NumberOf(**batch, i)] + 1e-6, 0.6) / sum;
    EXPECT_NEAR((*batch)->probability[i], expected, 1e-4 * expected);
  }
}

// Which shards the rows of the next `batches` came from.
std::vector<int> Sources(ReplayWorld* world, ReplaySampler* sampler, int batches) {
  std::vector<int> rows(4, 0);
  for (int b = 0; b < batches; ++b) {
    const auto batch = WaitFor(world, sampler);
    EXPECT_TRUE(Took(batch)) << b << ": " << batch.status().ToString();
    if (!Took(batch)) break;
    for (const ItemKey& key : (*batch)->key) ++rows[key.shard];
  }
  return rows;
}

TEST(ReplayShardsTest, DeadShardHasNoShareUntilItReturns) {
  ReplayWorld world(Tiny(), 2);
  Fill(&world);
  const auto sampler = world.Sampler({.batch_size = 50, .prefetch = 3});
  EXPECT_GT(Sources(&world, sampler.get(), 10)[1], 0);
  world.StopServer(1);
  for (int i = 0; i < 30; ++i) {  // what is ready is taken; the network notices
    world.Advance(Milliseconds(200));
    ASSERT_TRUE(Take(&world, sampler.get()).ok());
  }
  EXPECT_EQ(sampler->shards_alive(), 1);
  EXPECT_EQ(Sources(&world, sampler.get(), 20)[1], 0);
  world.StartServer(1);
  const auto writer = world.Writer(7);
  for (int i = 0; i < 30; ++i) {
    world.Advance(Milliseconds(200));
    writer->Poll(world.now());
    if (i == 10) {
      ASSERT_TRUE(writer->Push({MakeChunk(1, 0, 41)}, MakeItems(1, 0, 40, 3)).ok());
    }
    ASSERT_TRUE(Take(&world, sampler.get()).ok());
  }
  EXPECT_EQ(sampler->shards_alive(), 2);
  EXPECT_GT(Sources(&world, sampler.get(), 20)[1], 0);
}

// Sampling continues long before any timeout.
TEST(ReplayShardsTest, DoesNotWaitForShardOfExitedProcess) {
  ReplayWorld world(Tiny(), 2);
  Fill(&world);
  const auto sampler = world.Sampler(
      {.batch_size = 50, .prefetch = 3, .waive_after = Seconds(1000), .patience = Seconds(1000)});
  EXPECT_GT(Sources(&world, sampler.get(), 10)[1], 0);
  world.StopServer(1);
  int taken = 0;
  for (int i = 0; i < 50; ++i) {
    world.Advance(Milliseconds(200));
    const auto batch = Take(&world, sampler.get());
    ASSERT_TRUE(batch.ok()) << batch.status().ToString();
    taken += batch->has_value();
  }
  EXPECT_EQ(sampler->shards_alive(), 1);
  EXPECT_GT(taken, 20);
}

TEST(ReplayShardsTest, HungShardDoesNotBlockOthers) {
  ReplayWorld world(Tiny(), 2);
  Fill(&world);
  const auto sampler = world.Sampler({.batch_size = 50, .prefetch = 3});
  EXPECT_GT(Sources(&world, sampler.get(), 10)[1], 0);
  world.Hang(1, true);
  const auto rows = Sources(&world, sampler.get(), 20);
  EXPECT_GT(rows[0], 20 * 50 - 4 * 50);  // but for what was ready
  world.Hang(1, false);
  for (int i = 0; i < 30; ++i) {
    world.Advance(Milliseconds(200));
    ASSERT_TRUE(Take(&world, sampler.get()).ok());
  }
  EXPECT_EQ(sampler->shards_alive(), 2);
  EXPECT_GT(Sources(&world, sampler.get(), 20)[1], 0);
}

// Shard 1 has most of the priorities and half of the inserts: charged by draws, its limiter would
// hold the samples while that of shard 0 holds the actors.
TEST(ReplayShardsTest, UnequalTotalsBlockNeitherSide) {
  ReplayServer::Options options = Limited();
  ReplayWorld world(options, 2);
  const auto writer = world.Writer();
  const auto sampler = world.Sampler({.batch_size = 8, .prefetch = 2});
  std::uint64_t frame = 0, taken = 0;
  for (int round = 0; round < 20000 && frame < 21 * 200; ++round) {
    if (writer->CanPush()) {
      std::vector<Item> items = MakeItems(0, frame, 20, 0.001f);
      for (const Item& item : MakeItems(1, frame, 20, 1000)) items.push_back(item);
      ASSERT_TRUE(
          writer->Push({MakeChunk(0, frame, 21), MakeChunk(1, frame, 21)}, std::move(items)).ok());
      frame += 21;
    }
    world.Advance(Milliseconds(1));
    writer->Poll(world.now());
    const auto batch = Take(&world, sampler.get());
    ASSERT_TRUE(batch.ok()) << batch.status().ToString();
    taken += batch->has_value() ? 1 : 0;
  }
  EXPECT_EQ(frame, 21u * 200);
  const double inserts = world.Metric("replay/inserts", 0) + world.Metric("replay/inserts", 1);
  EXPECT_NEAR(double(taken) * 8 / inserts, 2, 0.1);
}

// Inserts come to one shard alone: the other one's limiter must not hold the samples.
TEST(ReplayShardsTest, ShardWithoutInsertsDoesNotBlockOthers) {
  ReplayWorld world(Limited(), 2);
  const auto writer = world.Writer();
  ASSERT_NO_FATAL_FAILURE(Push(&world, writer.get(), 0, 0, 20));
  ASSERT_NO_FATAL_FAILURE(Push(&world, writer.get(), 1, 0, 20));
  const auto sampler = world.Sampler({.batch_size = 8, .prefetch = 2});
  std::uint64_t frame = 21;
  int taken = 0;
  for (int round = 0; round < 20000 && frame < 21 * 100; ++round) {
    if (writer->CanPush()) {
      ASSERT_TRUE(writer->Push({MakeChunk(0, frame, 21)}, MakeItems(0, frame, 20)).ok());
      frame += 21;
    }
    world.Advance(Milliseconds(1));
    writer->Poll(world.now());
    const auto batch = Take(&world, sampler.get());
    ASSERT_TRUE(batch.ok()) << batch.status().ToString();
    taken += batch->has_value() ? 1 : 0;
  }
  EXPECT_EQ(frame, 21u * 100);
  EXPECT_NEAR(taken * 8, 2 * 20 * 100, 200);
}

TEST(ReplayShardsTest, DrainedSamplerTakesAllowedBatchesThenEnds) {
  ReplayWorld world(Limited(), 2);
  const auto writer = world.Writer();
  ASSERT_NO_FATAL_FAILURE(Push(&world, writer.get(), 0, 0, 20));  // lead 40, lower end 18, each
  ASSERT_NO_FATAL_FAILURE(Push(&world, writer.get(), 1, 0, 20));
  const auto sampler = world.Sampler({.batch_size = 4, .prefetch = 2});
  sampler->Drain();
  int batches = 0;
  Result<std::optional<SampleBatch>> batch = Take(&world, sampler.get());
  for (int i = 0; i < 1000 && batch.ok(); ++i) {
    if (batch->has_value()) ++batches;
    world.Advance(Milliseconds(5));
    batch = Take(&world, sampler.get());
  }
  EXPECT_EQ(batch.status().code(), Code::kOutOfRange);
  EXPECT_GE(batches, 10);
  EXPECT_LE(batches, 14);
}

// Both shards are marked dead while a probe waits for their first items, and drain while they hang.
TEST(ReplayShardsTest, DrainedSamplerEndsAfterAllShardsHung) {
  ReplayWorld world(Limited(), 2);
  const auto sampler = world.Sampler({.batch_size = 4, .prefetch = 2});
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(Take(&world, sampler.get()).ok());
    world.Advance(Milliseconds(5));
  }
  for (const std::size_t k : {0u, 1u}) world.Hang(k, true);
  sampler->Drain();
  Result<std::optional<SampleBatch>> batch = Take(&world, sampler.get());
  for (int i = 0; i < 4000 && sampler->shards_alive() > 0; ++i) {
    world.Advance(Milliseconds(5));
    batch = Take(&world, sampler.get());
  }
  ASSERT_EQ(sampler->shards_alive(), 0);
  ASSERT_TRUE(batch.ok());
  for (const std::size_t k : {0u, 1u}) world.Hang(k, false);
  for (int i = 0; i < 4000 && batch.ok(); ++i) {
    world.Advance(Milliseconds(5));
    batch = Take(&world, sampler.get());
  }
  EXPECT_EQ(batch.status().code(), Code::kOutOfRange);
}

TEST(ReplayShardsTest, EqualRunsMatchBitwise) {
  std::vector<std::vector<float>> runs(2);
  for (std::vector<float>& seen : runs) {
    ReplayWorld world(Tiny(), 4);
    Fill(&world);
    const auto sampler = world.Sampler({.batch_size = 16, .prefetch = 2});
    for (int i = 0; i < 20; ++i) {
      const auto batch = WaitFor(&world, sampler.get());
      ASSERT_TRUE(Took(batch));
      const auto observation = (*batch)->observation.as<float>();
      seen.insert(seen.end(), observation.begin(), observation.end());
    }
  }
  EXPECT_EQ(runs[0], runs[1]);
}

// ---- Shards that come and go --------------------------------------------------------------------

TEST(ReplayShardsTest, WriterReroutesStreamsWhenShardsChange) {
  ReplayWorld world(Tiny(), 2);
  std::vector<std::unique_ptr<Channel>> one;
  one.push_back(world.Connect(Role::kActor, 0, 1, 32, 0));
  const auto writer = MakeReplayWriter(std::move(one), world.spec(), {});
  Push(&world, writer.get(), 1, 0, 10);
  EXPECT_EQ(world.Metric("replay/items", 0), 10);
  EXPECT_FALSE(writer->Knows(1));
  writer->AddShard(1, world.Connect(Role::kActor, 0, 1, 32, 1));
  Push(&world, writer.get(), 1, 20, 10);
  EXPECT_EQ(world.Metric("replay/items", 1), 0) << "the writer does not use it yet";
  writer->Use(2);
  Push(&world, writer.get(), 0, 0, 5);
  Push(&world, writer.get(), 1, 40, 10);
  EXPECT_EQ(world.Metric("replay/items", 0), 25);
  EXPECT_EQ(world.Metric("replay/items", 1), 10);
  // It is left with a push on its way, and the others go on without it.
  world.Hang(1, true);
  Push(&world, writer.get(), 1, 60, 10);
  writer->Use(1);
  EXPECT_FALSE(writer->Settled(1));
  EXPECT_TRUE(writer->Settled(2));
  Push(&world, writer.get(), 1, 80, 10);
  EXPECT_EQ(world.Metric("replay/items", 0), 35);
  EXPECT_FALSE(writer->Settled(1));
  world.Hang(1, false);
  world.Pump();
  writer->Poll(world.now());
  EXPECT_TRUE(writer->Settled(1));
  EXPECT_EQ(writer->acked_items(), writer->pushed_items());
}

TEST(ReplayShardsTest, WriterNeedsNoChannelToUnusedShards) {
  ReplayWorld world(Tiny(), 3);
  std::vector<std::unique_ptr<Channel>> channels(3);
  channels[2] = world.Connect(Role::kActor, 0, 1, 32, 2);
  const auto writer = MakeReplayWriter(std::move(channels), world.spec(), {});
  world.Hang(0, true);
  Push(&world, writer.get(), 2, 0, 10);
  EXPECT_TRUE(writer->CanPush());
  EXPECT_EQ(world.Metric("replay/items", 2), 10);
}

TEST(ReplayShardsTest, SamplesAddedShardByItsTotal) {
  ReplayWorld world(Tiny(), 2);
  const auto writer = world.Writer();
  Push(&world, writer.get(), 0, 0, 50);
  std::vector<std::unique_ptr<Channel>> one;
  one.push_back(world.Connect(Role::kLearner, 0, 1, 32, 0));
  const auto sampler = MakeReplaySampler(
      std::move(one), world.spec(),
      {.batch_size = 100, .prefetch = 2, .view = world.options().tables[0].table.view});
  ASSERT_TRUE(Took(WaitFor(&world, sampler.get())));
  world.Hang(1, true);
  sampler->AddShard(world.Connect(Role::kLearner, 0, 1, 32, 1));
  for (int i = 0; i < 5; ++i) {
    const auto batch = WaitFor(&world, sampler.get());
    ASSERT_TRUE(Took(batch)) << "a silent shard must not block sampling";
    for (const ItemKey& key : (*batch)->key) EXPECT_EQ(key.shard, 0u);
  }
  world.Hang(1, false);
  Push(&world, writer.get(), 1, 0, 150);
  std::int64_t second = 0, all = 0;
  for (int i = 0; i < 300; ++i) {
    const auto batch = WaitFor(&world, sampler.get());
    ASSERT_TRUE(Took(batch)) << batch.status().ToString();
    if (i < 20) continue;  // requested before its total was received
    for (std::size_t row = 0; row < 100; ++row) {
      second += (*batch)->key[row].shard;
      ASSERT_NEAR((*batch)->probability[row], 1.0 / 200, 1e-6);
    }
    all += 100;
  }
  // Its share of each batch is 75, exactly: all priorities are equal.
  EXPECT_NEAR(double(second) / double(all), 0.75, 0.01);
}

}  // namespace
}  // namespace troop
