#include "paramserver/service/local_replica.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/paramserver/shard_testing.h"

namespace troop {
namespace {

// Runs one learner against a shard for `steps`; the number of pushes.
struct Schedule {
  std::uint64_t pushes = 0, pulls = 0;
  void PushTo(ParameterShard* shard, LocalReplica* replica, std::int32_t learner = 0) {
    Push(shard, PushOf({learner, 1, ++pushes}, replica->clock(), replica->Payload()));
    Drain(shard);
    replica->Pushed();
  }
  void Go(ParameterShard* shard, LocalReplica* replica, std::uint64_t steps) {
    for (std::uint64_t t = 0; t < steps; ++t) {
      if (replica->WantsPull()) {
        const auto pulled = shard->Pull();
        replica->Pulled(pulled->version, pulled->value.as<float>());
        ++pulls;
      }
      replica->Step(GradientAt(replica->value(), 0, t), 0.01f);
      if (replica->WantsPush()) PushTo(shard, replica);
    }
    if (replica->WantsFlush()) PushTo(shard, replica);
  }
};

TEST(LocalReplicaTest, OneReplicaMatchesSequentialSgdBitwise) {
  auto shard = MakeWhole(OptionsOf({.mode = SyncMode::kAsync}));
  LocalReplica replica({}, kParameters);
  Schedule run;
  run.Go(shard.get(), &replica, 500);
  Floats want = FirstValue();
  auto optimizer = *MakeOptimizer(ConfigOf("sgd"), kParameters);
  for (std::uint64_t t = 0; t < 500; ++t) {
    optimizer->Step(GradientAt(want, 0, t), 1, 0.01f, want);
  }
  EXPECT_TRUE(SameBytes(shard->value(), want));
  EXPECT_EQ(run.pushes, 500u);
  EXPECT_EQ(run.pulls, 500u);
}

TEST(LocalReplicaTest, PushesAndPullsFollowSchedule) {
  for (const std::int64_t fetch : {1, 3, 10}) {
    for (const std::int64_t push : {1, 2, 7}) {
      auto shard = MakeWhole(OptionsOf({.mode = SyncMode::kAsync}));
      LocalReplica replica({.pull_every = fetch, .push_every = push}, kParameters);
      Schedule run;
      run.Go(shard.get(), &replica, 100);
      EXPECT_EQ(run.pushes, std::uint64_t((100 + push - 1) / push));
      EXPECT_EQ(run.pulls, std::uint64_t((100 + fetch - 1) / fetch));
      EXPECT_EQ(shard->version(), 1 + run.pushes);
    }
  }
}

TEST(LocalReplicaTest, PullKeepsUnpushedUpdates) {
  LocalReplica replica({.pull_every = 1, .push_every = 3}, 2);
  replica.Pulled(1, Floats{1, 2});
  replica.Step(Floats{10, 20}, 0.1f);
  EXPECT_FLOAT_EQ(replica.value()[0], 0);
  EXPECT_TRUE(replica.WantsPull());
  replica.Pulled(2, Floats{5, 5});  // others moved it
  EXPECT_FLOAT_EQ(replica.value()[0], 4);
  EXPECT_FLOAT_EQ(replica.value()[1], 3);
  replica.Step(Floats{10, 0}, 0.1f);
  replica.Step(Floats{10, 0}, 0.1f);
  EXPECT_TRUE(replica.WantsPush());
  EXPECT_EQ(replica.Payload()[0], 30);
  EXPECT_EQ(replica.Payload()[1], 20);
  EXPECT_EQ(replica.clock(), 2u);
  replica.Pushed();
  replica.Pulled(3, Floats{7, 7});  // with the push in it
  EXPECT_EQ(replica.value()[0], 7);
  EXPECT_FALSE(replica.WantsFlush());
}

// Local SGD: two replicas, H = 4; against loops in f64.
TEST(LocalReplicaTest, AveragesValuesEveryHSteps) {
  auto shard = MakeWhole(OptionsOf({.mode = SyncMode::kLocalSgd, .learners = 2}));
  const ReplicaOptions options{.pull_every = 4, .push_every = 4, .push_value = true};
  std::vector<LocalReplica> replicas(2, LocalReplica(options, kParameters));
  const Floats first = FirstValue();
  std::vector<std::vector<double>> want(2, std::vector<double>(first.begin(), first.end()));
  for (std::uint64_t t = 0; t < 40; ++t) {
    for (std::size_t i = 0; i < 2; ++i) {
      if (replicas[i].WantsPull()) {
        const auto pulled = shard->Pull();
        replicas[i].Pulled(pulled->version, pulled->value.as<float>());
      }
    }
    for (std::size_t i = 0; i < 2; ++i) {
      replicas[i].Step(GradientAt(replicas[i].value(), int(i), t), 0.01f);
      const Floats at(want[i].begin(), want[i].end());
      const Floats g = GradientAt(at, int(i), t);
      for (std::size_t p = 0; p < kParameters; ++p) want[i][p] -= 0.01 * double(g[p]);
      if (!replicas[i].WantsPush()) continue;
      Push(shard.get(), PushOf({int(i), 1, t / 4 + 1}, replicas[i].clock(), replicas[i].Payload()));
      replicas[i].Pushed();
    }
    Drain(shard.get());
    if (t % 4 != 3) continue;
    for (std::size_t p = 0; p < kParameters; ++p) {
      want[0][p] = want[1][p] = (want[0][p] + want[1][p]) / 2;
    }
  }
  EXPECT_EQ(shard->version(), 11u);
  for (std::size_t p = 0; p < kParameters; ++p) {
    EXPECT_NEAR(shard->value()[p], want[0][p], 1e-5);
  }
}

// A learner that pauses pushes what it has, and H counts from the pull behind that.
TEST(LocalReplicaTest, PullsBeforeNextStepAfterEarlyValuePush) {
  LocalReplica replica({.pull_every = 4, .push_every = 4, .push_value = true}, kParameters);
  const Floats value = FirstValue();
  replica.Pulled(1, value);
  for (int i = 0; i < 2; ++i) replica.Step(GradientAt(replica.value(), 0, 0), 0.01f);
  EXPECT_FALSE(replica.WantsPull());
  ASSERT_TRUE(replica.WantsFlush());
  replica.Pushed();
  ASSERT_TRUE(replica.WantsPull());
  replica.Pulled(2, value);
  for (int i = 0; i < 4; ++i) {
    EXPECT_FALSE(replica.WantsPull()) << i;
    EXPECT_FALSE(replica.WantsPush()) << i;
    replica.Step(GradientAt(replica.value(), 0, 0), 0.01f);
  }
  EXPECT_TRUE(replica.WantsPush());
}

TEST(LocalReplicaTest, RejectsOptionsOutOfRange) {
  EXPECT_FALSE(CheckReplicaOptions({.pull_every = 0}).ok());
  EXPECT_FALSE(CheckReplicaOptions({.push_every = 0}).ok());
  EXPECT_FALSE(CheckReplicaOptions({.pull_every = 2, .push_every = 3, .push_value = true}).ok());
}

}  // namespace
}  // namespace troop
