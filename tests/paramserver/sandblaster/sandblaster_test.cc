// Sandblaster L-BFGS in simulated time: its iterates are those of one device, whatever dies.
#include "paramserver/sandblaster/sandblaster_coordinator.h"

#include <gmock/gmock.h>

#include "tests/paramserver/sandblaster/sandblaster_world.h"

namespace troop {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
template <class T>
using World = test::SandblasterWorld<T>;

// Four workers with portions of 10 ms.
template <class T>
typename World<T>::Setup SetupOf(int shards, int replicas, int portions) {
  return {.options = {.lbfgs = {.gradient_norm = 0, .decrease = 0},
                      .shards = shards,
                      .replicas = replicas,
                      .workers = 4,
                      .portions = portions},
          .portion_s = std::vector<double>(4, 0.01)};
}

// The iterates of one device.
template <class T>
std::vector<std::vector<double>> Alone(int iterations) {
  LbfgsVectors<T> vectors(10, 8);
  Lbfgs lbfgs({.gradient_norm = 0, .decrease = 0});
  std::vector<std::vector<double>> iterates;
  for (int i = 0; i < iterations; ++i) {
    EXPECT_TRUE(RunLbfgsIteration(&lbfgs, &vectors, test::Logistic<T>).ok());
    const auto x = vectors.at(VectorName::kWeights);
    iterates.emplace_back(x.begin(), x.end());
  }
  return iterates;
}

TEST(SandblasterTest, IteratesEqualThoseOfOneDevice) {
  for (const int shards : {1, 3}) {
    World<double> world(SetupOf<double>(shards, 1, 20));
    world.Run();
    const auto alone = Alone<double>(20);
    ASSERT_EQ(world.iterates().size(), 20);
    for (std::size_t i = 0; i < 20; ++i)
      test::ExpectPoint(world.iterates()[i], alone[i], 1e-6, "f64 " + std::to_string(i));
    EXPECT_LT(world.command_bytes_max(), 1024);
    // Every portion was counted once in each evaluation, except for the unfinished last one.
    const int evaluations = int(world.coordinator().lbfgs().evaluations());
    EXPECT_THAT(world.counted(), Each(evaluations));
  }
  // In f32 the values agree.
  World<float> world(SetupOf<float>(3, 1, 20));
  world.Run();
  const auto value = [](const std::vector<double>& x) {
    std::vector<double> unused(x.size());
    return test::Logistic<double>(x, unused);
  };
  const double alone = value(Alone<float>(20).back());
  EXPECT_NEAR(value(world.iterates().back()), alone, 1e-5 * alone);
}

// Dead workers, shards with a replica, and coordinators change no bit.
TEST(SandblasterTest, DeathsChangeNoIterate) {
  World<double> plain(SetupOf<double>(3, 2, 20));
  plain.Run();
  World<double> world(SetupOf<double>(3, 2, 20));
  world.At(0.113, [&] { world.KillWorker(1); });
  world.At(0.21, [&] { world.KillShard(2, 0); });
  world.At(0.33, [&] { world.RestartShard(2, 0, 1); });
  world.At(0.41, [&] { world.KillShard(2, 1); });
  world.At(0.5, [&] { world.KillWorker(3); });
  for (int i = 0; i < 25; ++i) world.At(0.15 + 0.0607 * i, [&] { world.KillCoordinator(); });
  world.Run();
  EXPECT_EQ(world.takeovers(), 25);
  EXPECT_EQ(world.iterates(), plain.iterates());
}

// Coordinators that die after a few messages.
TEST(SandblasterTest, CoordinatorsCanDieAtAnyCommand) {
  World<double> plain(SetupOf<double>(2, 1, 4));
  plain.Run();
  World<double> world(SetupOf<double>(2, 1, 4));
  for (int i = 0; i < 400; ++i) world.At(0.0001 + 0.0073 * i, [&] { world.KillCoordinator(); });
  world.Run();
  EXPECT_GT(world.takeovers(), 30);
  EXPECT_EQ(world.iterates(), plain.iterates());
}

TEST(SandblasterTest, ShardWithoutReplicaIsAnError) {
  World<double> world(SetupOf<double>(3, 1, 20));
  world.At(0.1, [&] { world.KillShard(1, 0); });
  world.Run();
  EXPECT_THAT(world.status().message(), HasSubstr("shard 1 has no live replica left"));
}

// One of four workers is slowed 20 times; times are those of the whole run. Without it, four
// workers take 4/3 of the undisturbed time.
TEST(SandblasterTest, DynamicPortionsHideASlowWorker) {
  const auto seconds = [](int portions, bool backups, double slow) {
    auto setup = SetupOf<double>(2, 1, portions);
    setup.iterations = 4;
    setup.options.backups = backups;
    for (double& s : setup.portion_s) s = 1.0 / portions;
    setup.portion_s[2] *= slow;
    World<double> world(setup);
    world.Run();
    return world.now();
  };
  const double undisturbed = seconds(100, true, 1);
  const double split = seconds(4, false, 20) / undisturbed;
  const double dynamic = seconds(100, false, 20) / undisturbed;
  const double backups = seconds(100, true, 20) / undisturbed;
  RecordProperty("static_split", std::to_string(split));
  RecordProperty("dynamic_without_backups", std::to_string(dynamic));
  RecordProperty("dynamic_with_backups", std::to_string(backups));
  EXPECT_GT(split, 5);
  EXPECT_LE(backups, 1.5) << "without backups " << dynamic;
  EXPECT_LT(backups, dynamic);
}

TEST(SandblasterTest, CommandsFitInto1KbWithTheLongestHistory) {
  SandblasterCoordinator::Options options;
  options.lbfgs.history = kLbfgsHistoryMax;
  SandblasterCoordinator coordinator(options);
  EXPECT_LT(EncodeBody(coordinator.command()).size() + 6 * 11, 1024);
}

// Replicas that differ, and heads of different searches, end the search with a message.
TEST(SandblasterTest, DifferencesAreErrors) {
  SandblasterCoordinator coordinator({.replicas = 2});
  const SandblasterReply open{.number = 1, .missing = {0}};
  EXPECT_TRUE(coordinator.TakeReply({0, 0}, open).ok());
  EXPECT_FALSE(coordinator.gathering());
  EXPECT_TRUE(coordinator.TakeReply({0, 1}, open).ok());
  EXPECT_TRUE(coordinator.gathering());
  EXPECT_EQ(coordinator.TakePortion(0), 0);
  coordinator.PortionDone(0, 1, 0);
  EXPECT_TRUE(coordinator.TakeReply({0, 0}, {.number = 1, .results = {2}}).ok());
  const Status differ = coordinator.TakeReply({0, 1}, {.number = 1, .results = {3}});
  EXPECT_THAT(differ.message(), HasSubstr("replicas of shard 0 differ"));
  SandblasterHead first, third;
  first.last.number = 1;
  third.last.number = 3;
  const std::vector<SandblasterHead> heads = {first, third};
  EXPECT_THAT(SandblasterCoordinator::TakeOver({}, heads).status().message(),
              HasSubstr("at commands 1 and 3"));
  EXPECT_FALSE(SandblasterCoordinator::TakeOver({}, {}).ok());
  const std::vector<SandblasterHead> damaged = {first};
  EXPECT_THAT(SandblasterCoordinator::TakeOver({}, damaged).status().message(),
              HasSubstr("the state of L-BFGS has 0 numbers"));
}

TEST(VectorShardTest, CommandsAreExecutedOnceAndInOrder) {
  const std::vector<double> weights = {1, 2};
  VectorShard<double> shard(1, 2, weights);
  const SandblasterCommand twice{
      .number = 1, .vectors = {{VectorOp::kScale, 0, 0, 2}, {VectorOp::kDot, 0, 0, 0}}};
  for (int i = 0; i < 2; ++i) {
    const auto reply = shard.Execute(twice);
    ASSERT_TRUE(reply.ok());
    EXPECT_THAT(reply->results, testing::ElementsAre(20));
  }
  EXPECT_EQ(shard.Execute({.number = 3}).status().code(), Code::kFailedPrecondition);
  EXPECT_EQ(shard.Execute({.number = 0}).status().code(), Code::kFailedPrecondition);
  EXPECT_FALSE(shard.Pull(1).ok());
  // A new coordinator fences the former one.
  VectorShard<double> fenced = shard;
  EXPECT_EQ(fenced.Follow(2)->last.number, 1);
  EXPECT_THAT(fenced.Execute({.number = 2}).status().message(), HasSubstr("is that of term 2"));
  EXPECT_TRUE(fenced.Execute({.term = 2, .number = 2}).ok());
  EXPECT_EQ(fenced.Follow(1).status().code(), Code::kFailedPrecondition);
  ASSERT_TRUE(shard.Execute({.number = 2, .evaluate = true}).ok());
  EXPECT_TRUE(shard.Pull(2).ok());
  EXPECT_THAT(shard.Execute({.number = 3}).status().message(), HasSubstr("0 of 2 portions"));
  const std::vector<double> part = {1, 1}, wrong = {1};
  EXPECT_FALSE(shard.Add({2, 2, 0, part}).ok());
  EXPECT_FALSE(shard.Add({2, -1, 0, part}).ok());
  EXPECT_FALSE(shard.Add({2, 0, 0, wrong}).ok());
  // The later portion waits; copies and other evaluations are not counted.
  EXPECT_TRUE(*shard.Add({2, 1, 5, part}));
  EXPECT_FALSE(*shard.Add({2, 1, 5, part}));
  EXPECT_FALSE(*shard.Add({1, 0, 5, part}));
  EXPECT_THAT(shard.Execute({.number = 2, .evaluate = true})->missing, testing::ElementsAre(0));
  EXPECT_TRUE(*shard.Add({2, 0, 7, part}));
  EXPECT_FALSE(*shard.Add({2, 0, 7, part}));
  EXPECT_THAT(shard.Execute({.number = 2})->results, testing::ElementsAre(12));
  // The gradient is the sum of both.
  const SandblasterCommand norm{.number = 3, .vectors = {{VectorOp::kDot, 1, 1, 0}}};
  EXPECT_THAT(shard.Execute(norm)->results, testing::ElementsAre(8));
}

}  // namespace
}  // namespace troop
