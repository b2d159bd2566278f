#include "replay/service/server.h"

#include <gtest/gtest.h>

#include <cmath>

#include "net/wire/codec.h"
#include "replay/service/messages.h"
#include "tests/replay/replay_world.h"

namespace troop {
namespace {

// ---- samples ------------------------------------------------------------------------------------

TEST(ReplayServerTest, SampledItemsMatchPushedFrames) {
  ReplayWorld world(SmallOptions());
  const auto writer = world.Writer();
  ASSERT_TRUE(writer->Push({MakeChunk(3, 0, 20)}, MakeItems(3, 0, 17, 1, 3)).ok());
  const auto sampler = world.Sampler({.batch_size = 32, .prefetch = 1});
  const auto batch = Take(&world, sampler.get());
  ASSERT_TRUE(Took(batch));
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

TEST(ReplayServerTest, WeightsAreNormalizedImportanceWeights) {
  ReplayWorld world(SmallOptions());
  const auto writer = world.Writer();
  std::vector<Item> items = MakeItems(1, 0, 20);
  for (std::size_t i = 0; i < items.size(); ++i) items[i].priority = float(1 + i * i);
  ASSERT_TRUE(writer->Push({MakeChunk(1, 0, 21)}, items).ok());
  const auto sampler = world.Sampler({.batch_size = 16, .beta = 0.4});
  for (const double beta : {0.4, 0.0, 0.75, 1.0}) {
    if (beta != 0.4) sampler->SetBeta(beta);
    const auto batch = Take(&world, sampler.get());
    ASSERT_TRUE(Took(batch));
    EXPECT_EQ((*batch)->beta, beta);
    std::vector<double> weight;
    for (const double p : (*batch)->probability) weight.push_back(std::pow(20 * p, -beta));
    const double largest = std::ranges::max(weight);
    for (std::size_t i = 0; i < weight.size(); ++i) {
      EXPECT_NEAR((*batch)->weight[i], weight[i] / largest, 1e-6);
    }
  }
}

TEST(ReplayServerTest, RequestReturnsSeveralBatches) {
  ReplayWorld world(SmallOptions());
  const auto writer = world.Writer();
  Push(&world, writer.get(), 1, 0, 20);
  const auto sampler = world.Sampler({.batch_size = 5, .prefetch = 2, .batches_per_request = 3});
  ASSERT_TRUE(Took(Take(&world, sampler.get())));
  EXPECT_EQ(sampler->ready_batches(), 5);
  EXPECT_EQ(world.Samples(), 30);
  EXPECT_EQ(world.Metric("replay/samples"), 0);
}

// Reverb 27: the statistics counted prefetched samples without a bound.
TEST(ReplayServerTest, PrefetchedSamplesStayWithinWindow) {
  ReplayWorld world(SmallOptions());
  const auto writer = world.Writer();
  Push(&world, writer.get(), 1, 0, 20);
  const auto sampler = world.Sampler({.batch_size = 4, .prefetch = 3, .batches_per_request = 2});
  int taken = 0;
  for (int i = 0; i < 50; ++i) {
    if (Took(Take(&world, sampler.get()))) ++taken;
    ASSERT_LE(world.Samples() / 4 - taken, 3 * 2);
    ASSERT_LE(world.Metric("replay/samples") / 4, taken);
  }
  EXPECT_EQ(taken, 50);
}

TEST(ReplayServerTest, EqualRunsMatchBitwise) {
  std::vector<std::vector<float>> runs;
  for (int run = 0; run < 2; ++run) {
    ReplayWorld world(SmallOptions());
    const auto writer = world.Writer();
    const auto sampler = world.Sampler({.batch_size = 8});
    std::vector<float>& seen = runs.emplace_back();
    for (std::uint64_t first = 0; first < 200; first += 20) {
      Push(&world, writer.get(), 1, first, 19);
      const auto batch = Take(&world, sampler.get());
      ASSERT_TRUE(Took(batch));
      const auto observation = (*batch)->observation.as<float>();
      seen.insert(seen.end(), observation.begin(), observation.end());
      std::vector<float> priority(8);
      for (std::size_t i = 0; i < 8; ++i) priority[i] = observation[2 * i + 1];
      sampler->UpdatePriorities((*batch)->key, priority);
    }
  }
  EXPECT_EQ(runs[0], runs[1]);
}

// The stream began again at its first number, with the seed alone as its key.
TEST(ReplayServerTest, RestartedServerDoesNotRepeatSamples) {
  ReplayWorld world(SmallOptions());
  std::vector<std::vector<float>> runs;
  for (const std::uint64_t incarnation : {1, 2, 1}) {
    world.options().incarnation = incarnation;
    world.RestartServer();
    const auto writer = world.Writer(std::int32_t(runs.size()));
    const auto sampler = world.Sampler({.batch_size = 8}, std::int32_t(runs.size()));
    Push(&world, writer.get(), 1, 0, 100);
    const auto batch = Take(&world, sampler.get());
    ASSERT_TRUE(Took(batch));
    const auto observation = (*batch)->observation.as<float>();
    runs.emplace_back(observation.begin(), observation.end());
  }
  EXPECT_NE(runs[0], runs[1]);
  EXPECT_EQ(runs[0], runs[2]);
}

// ---- priorities ---------------------------------------------------------------------------------

TEST(ReplayServerTest, SendsPrioritiesWithNextRequest) {
  ReplayWorld world(SmallOptions());
  const auto writer = world.Writer();
  Push(&world, writer.get(), 1, 0, 20);
  const auto sampler = world.Sampler({.batch_size = 64, .prefetch = 1});
  auto batch = Take(&world, sampler.get());
  ASSERT_TRUE(Took(batch));
  std::vector<float> priority(64, 0.0f);
  for (std::size_t i = 0; i < 64; ++i) {
    if ((*batch)->observation.as<float>()[2 * i + 1] == 7) priority[i] = 1e9f;
  }
  sampler->UpdatePriorities((*batch)->key, priority);
  batch = Take(&world, sampler.get());
  ASSERT_TRUE(Took(batch));
  EXPECT_EQ(world.Metric("replay/updates"), 64);
  std::size_t sevens = 0;
  for (std::size_t i = 0; i < 64; ++i) {
    sevens += (*batch)->observation.as<float>()[2 * i + 1] == 7 ? 1 : 0;
  }
  EXPECT_GE(sevens, 63u);
}

TEST(ReplayServerTest, SendsPrioritiesAloneWhenNoRequestIsDue) {
  ReplayWorld world(SmallOptions());
  const auto writer = world.Writer();
  Push(&world, writer.get(), 1, 0, 20);
  const auto sampler = world.Sampler({.batch_size = 4, .prefetch = 1});
  const auto batch = Take(&world, sampler.get());
  ASSERT_TRUE(Took(batch));
  sampler->Poll(world.now());  // asks for the next one
  world.Pump();
  sampler->Poll(world.now());  // which is ready: the window is full
  sampler->UpdatePriorities((*batch)->key, std::vector<float>(4, 2.0f));
  sampler->Poll(world.now());
  world.Pump();
  EXPECT_EQ(world.Metric("replay/updates"), 4);
  EXPECT_EQ(world.Metric("replay/samples"), 4);  // the first was taken
  EXPECT_EQ(world.Samples(), 8);
}

TEST(ReplayServerTest, CountsLateAndInvalidPriorities) {
  ReplayServer::Options options = SmallOptions();
  options.tables[0].table.capacity_items = 20;
  ReplayWorld world(options);
  const auto writer = world.Writer();
  Push(&world, writer.get(), 1, 0, 20);
  const auto sampler = world.Sampler({.batch_size = 4, .prefetch = 1});
  const auto batch = Take(&world, sampler.get());
  ASSERT_TRUE(Took(batch));
  sampler->UpdatePriorities(std::vector<ItemKey>{(*batch)->key[0]},
                            std::vector<float>{std::nanf("")});
  Push(&world, writer.get(), 1, 21, 20);
  sampler->UpdatePriorities(std::vector<ItemKey>{(*batch)->key[1]}, std::vector<float>{1});
  sampler->Poll(world.now());
  world.Pump();
  EXPECT_EQ(world.Metric("replay/rejected_priorities"), 1);
  EXPECT_EQ(world.Metric("replay/stale_updates"), 1);
  EXPECT_EQ(world.Metric("replay/updates"), 0);
}

// ---- options ------------------------------------------------------------------------------------

TEST(ReplayServerTest, RejectsInvalidOptions) {
  const auto message = [](auto change) {
    ReplayServer::Options options = SmallOptions();
    change(&options);
    return MakeReplayServer(options).status().message();
  };
  EXPECT_EQ(message([](auto* o) { o->tables[0].table.min_items = 2000; }),
            "replay: min_items is 2000, must be in [1, capacity_items (1000)]");
  EXPECT_NE(message([](auto* o) { o->tables[0].samples_per_insert = -3; }).find("-3"),
            std::string::npos);
  EXPECT_NE(message([](auto* o) { o->batch_size_max = 0; }).find("batch_size_max is 0"),
            std::string::npos);
}

TEST(ReplayServerTest, PredictedBytesBoundActualBytes) {
  ReplayWorld world(SmallOptions());
  const auto writer = world.Writer();
  for (std::uint64_t first = 0; first < 4000; first += 101) {
    ASSERT_NO_FATAL_FAILURE(Push(&world, writer.get(), 1, first, 100));
  }
  const double predicted = double(PredictReplayBytes(SmallOptions()));
  EXPECT_LE(world.Metric("replay/bytes"), predicted);
  EXPECT_GE(world.Metric("replay/bytes"), predicted / 8);
}

TEST(ReplayServerTest, RepliesToStatsWithMetrics) {
  ReplayWorld world(SmallOptions());
  const auto channel = world.Connect(Role::kTool);
  const auto answer = world.Call(channel.get(), {.type = MessageType::kReplayStats});
  ASSERT_TRUE(answer.ok());
  const auto body = DecodeBody<ReplayStatsBody>(answer->body);
  ASSERT_TRUE(body.ok());
  EXPECT_TRUE(body->metrics.contains("replay/fill"));
  EXPECT_FALSE(body->metrics.contains("replay/samples_per_insert"));  // of no inserts
}

}  // namespace
}  // namespace troop
