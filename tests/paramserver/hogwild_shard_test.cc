#include "paramserver/hogwild_shard.h"

#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "core/executor.h"
#include "tests/paramserver/shard_testing.h"

namespace troop {
namespace {

HogwildShard::Options OptionsFor(Executor* executor, const std::string& optimizer = "sgd") {
  return {.config = ConfigOf(optimizer), .ranges = {{0, kParameters}}, .executor = executor};
}

std::unique_ptr<HogwildShard> Make(const HogwildShard::Options& options) {
  auto shard = HogwildShard::Make(options, FirstValue());
  EXPECT_TRUE(shard.ok()) << shard.status().ToString();
  return std::move(*shard);
}

// Until none is open; whether that came in time.
bool Settle(HogwildShard* shard, std::vector<PushId>* applied = nullptr) {
  const Time deadline = SystemClock().Now() + Seconds(20);
  while (shard->open() > 0 && SystemClock().Now() < deadline) {
    const auto done = shard->TakeApplied();
    if (applied != nullptr) applied->insert(applied->end(), done.begin(), done.end());
    std::this_thread::yield();
  }
  return shard->open() == 0;
}

TEST(HogwildShardTest, OneThreadHasTheBitsOfAShardWithoutThreads) {
  for (const char* optimizer : {"sgd", "momentum", "adagrad", "rmsprop", "adam"}) {
    for (const bool threads : {false, true}) {
      InlineExecutor here;
      ThreadExecutor one(1, nullptr);
      const auto hogwild =
          Make(OptionsFor(threads ? static_cast<Executor*>(&one) : &here, optimizer));
      const auto plain = MakeWhole(OptionsOf({.mode = SyncMode::kAsync, .learners = 2}, optimizer));
      for (std::uint64_t t = 1; t <= 20; ++t) {
        const PushId id{.learner = std::int32_t(t % 2), .incarnation = 1, .sequence = (t + 1) / 2};
        const auto gradient = GradientAt(FirstValue(), id.learner, t);
        ASSERT_EQ(*hogwild->Push(PushOf(id, t, gradient)), Outcome::kHeld);
        ASSERT_TRUE(Settle(hogwild.get()));
        Push(plain.get(), PushOf(id, t, gradient));
        Drain(plain.get());
        ASSERT_EQ(hogwild->version(), plain->version());
        EXPECT_TRUE(SameBytes(hogwild->Pull().value.as<float>(), plain->value())) << optimizer;
      }
    }
  }
}

// Each push adds one to each element, many at once; every one of them is sent twice.
TEST(HogwildShardTest, NoPushIsLostAndNoneCountsTwice) {
  for (const int threads : {2, 4}) {
    ThreadExecutor executor(threads, nullptr);
    const auto shard = Make(OptionsFor(&executor));
    const Floats minus(kParameters, -1), first = FirstValue();
    std::vector<PushId> applied;
    constexpr std::uint64_t kPushes = 400;
    for (std::uint64_t t = 1; t <= kPushes; ++t) {
      const PushId id{.learner = 3, .incarnation = 1, .sequence = t};
      ShardPush push = PushOf(id, 1, minus);
      push.learning_rate = 1;
      const bool room = shard->open() <= 20 || Settle(shard.get(), &applied);
      ASSERT_TRUE(room);
      ASSERT_EQ(*shard->Push(push), Outcome::kHeld);
      const Outcome again = *shard->Push(push);
      EXPECT_TRUE(again == Outcome::kHeld || again == Outcome::kRepeated);
    }
    ASSERT_TRUE(Settle(shard.get(), &applied));
    EXPECT_EQ(applied.size(), kPushes);
    EXPECT_EQ(shard->version(), 1 + kPushes);
    const auto snapshot = shard->Pull();
    for (std::size_t i = 0; i < first.size(); ++i) {
      ASSERT_NEAR(snapshot.value.as<float>()[i], first[i] + float(kPushes), 0.02);
    }
  }
}

TEST(HogwildShardTest, TooManyAtOnceAreRefusedAndMayComeAgain) {
  ThreadExecutor executor(1, nullptr);
  std::promise<void> gate;
  ASSERT_TRUE(executor.Submit("busy", [&] { gate.get_future().wait(); }).ok());
  auto options = OptionsFor(&executor);
  options.open_max = 2;
  const auto shard = Make(options);
  const Floats gradient(kParameters, 1);
  const auto push = [&](std::uint64_t sequence) {
    return shard->Push(PushOf({.learner = 1, .incarnation = 1, .sequence = sequence}, 1, gradient));
  };
  EXPECT_TRUE(push(1).ok() && push(2).ok());
  EXPECT_EQ(push(3).status().code(), Code::kResourceExhausted);
  gate.set_value();
  ASSERT_TRUE(Settle(shard.get()));
  EXPECT_EQ(*push(3), Outcome::kHeld);
  ASSERT_TRUE(Settle(shard.get()));
  EXPECT_EQ(*push(2), Outcome::kRepeated);
  EXPECT_EQ(shard->version(), 4u);
}

TEST(HogwildShardTest, OldOnesAndOutliersChangeNothing) {
  InlineExecutor executor;
  auto options = OptionsFor(&executor);
  options.guards = {.staleness_max = 2, .loss_deviations = 4};
  const auto shard = Make(options);
  const Floats gradient(kParameters, 1);
  const auto push = [&](std::uint64_t sequence, std::uint64_t clock, float loss) {
    ShardPush p = PushOf({.learner = 1, .incarnation = 1, .sequence = sequence}, clock, gradient);
    p.loss = loss;
    const auto outcome = shard->Push(std::move(p));
    EXPECT_TRUE(outcome.ok()) << outcome.status().ToString();
    Settle(shard.get());
    return outcome.ok() ? *outcome : Outcome::kRepeated;
  };
  for (std::uint64_t t = 1; t <= 40; ++t) {
    ASSERT_EQ(push(t, shard->version(), 1 + 0.01f * float(t % 7)), Outcome::kHeld);
  }
  const Buffer before = shard->Pull().value;
  EXPECT_EQ(push(41, shard->version() - 3, 1), Outcome::kTooOld);
  EXPECT_EQ(push(42, shard->version(), 100), Outcome::kOutlier);
  EXPECT_TRUE(SameBytes(shard->Pull().value.as<float>(), before.as<float>()));
  EXPECT_EQ(push(43, shard->version() - 2, 1), Outcome::kHeld);
}

TEST(HogwildShardTest, WhatDoesNotFitIsRefusedByName) {
  InlineExecutor executor;
  const auto shard = Make(OptionsFor(&executor));
  const Floats gradient(kParameters, 1), less(kParameters - 16, 1);
  const PushId id{.learner = 1, .incarnation = 2, .sequence = 1};
  EXPECT_EQ(shard->Push(PushOf(id, 1, gradient, 7)).status().code(), Code::kFailedPrecondition);
  EXPECT_EQ(shard->Push(PushOf(id, 9, gradient)).status().code(), Code::kFailedPrecondition);
  EXPECT_EQ(shard->Push(PushOf(id, 1, less)).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(*shard->Push(PushOf(id, 1, gradient)), Outcome::kHeld);
  const PushId old{.learner = 1, .incarnation = 1, .sequence = 5};
  EXPECT_EQ(shard->Push(PushOf(old, 1, gradient)).status().code(), Code::kAborted);
  EXPECT_FALSE(HogwildShard::Make(OptionsFor(&executor), less).ok());
  Settle(shard.get());
}

}  // namespace
}  // namespace troop
