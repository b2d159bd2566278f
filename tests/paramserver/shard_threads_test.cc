// A ParameterShard whose updates several threads make at once (Options::hogwild).
#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <thread>
#include <utility>

#include "core/base/executor.h"
#include "tests/paramserver/shard_testing.h"

namespace troop {
namespace {

ParameterShard::Options ThreadOptions(Executor* executor, const std::string& optimizer = "sgd") {
  ParameterShard::Options options = OptionsOf({.mode = SyncMode::kAsync, .learners = 2}, optimizer);
  options.hogwild = executor;
  return options;
}

// Until the threads have done all; whether that came in time.
bool Settle(ParameterShard* shard, std::vector<PushId>* applied = nullptr) {
  const Time deadline = SystemClock().Now() + Seconds(20);
  while (shard->held() + shard->applying() > 0 && SystemClock().Now() < deadline) {
    const auto update = shard->ApplyNext();
    if (update && applied != nullptr) applied->push_back(update->settled.at(0).id);
    if (!update) std::this_thread::yield();
  }
  return shard->held() + shard->applying() == 0;
}

// A thread that does nothing until it is let go.
class Gate {
 public:
  explicit Gate(Executor* executor) {
    EXPECT_TRUE(executor->Submit("gate", [this] { open_.get_future().wait(); }).ok());
  }
  void Open() { open_.set_value(); }

 private:
  std::promise<void> open_;
};

TEST(ShardThreadsTest, OneThreadMatchesUnthreadedShardBitwise) {
  for (const char* optimizer : {"sgd", "momentum", "adagrad", "rmsprop", "adam", "radam"}) {
    for (const bool threads : {false, true}) {
      InlineExecutor here;
      ThreadExecutor one(1, nullptr);
      auto options = ThreadOptions(threads ? static_cast<Executor*>(&one) : &here, optimizer);
      options.sync.staleness_discount = true;
      options.undecayed = {{100, 300}, {600, 610}};
      const bool decays = options.optimizer.type == OptimizerType::kAdam ||
                          options.optimizer.type == OptimizerType::kRAdam;
      if (decays) options.optimizer.weight_decay = 0.1;
      const auto hogwild = MakeWhole(options);
      options.hogwild = nullptr;
      const auto plain = MakeWhole(options);
      for (std::uint64_t t = 1; t <= 20; ++t) {
        const PushId id{.learner = std::int32_t(t % 2), .incarnation = 1, .sequence = (t + 1) / 2};
        const auto gradient = GradientAt(FirstValue(), id.learner, t);
        const std::uint64_t clock = t > 3 ? t - 3 : t;
        ASSERT_EQ(Push(hogwild.get(), PushOf(id, clock, gradient)), Outcome::kHeld);
        ASSERT_TRUE(Settle(hogwild.get()));
        Push(plain.get(), PushOf(id, clock, gradient));
        Drain(plain.get());
        ASSERT_EQ(hogwild->version(), plain->version());
        EXPECT_TRUE(SameBytes(hogwild->Pull()->value.as<float>(), plain->value())) << optimizer;
      }
      // Both save the same snapshot.
      EXPECT_EQ(hogwild->Snapshot().text(), plain->Snapshot().text()) << optimizer;
    }
  }
}

// Each push adds one to each element, many at once; every one of them is sent twice.
TEST(ShardThreadsTest, AppliesEachPushExactlyOnce) {
  for (const int threads : {2, 4}) {
    ThreadExecutor executor(threads, nullptr);
    const auto shard = MakeWhole(ThreadOptions(&executor));
    const Floats minus(kParameters, -1), first = FirstValue();
    std::vector<PushId> applied;
    constexpr std::uint64_t kPushes = 400;
    for (std::uint64_t t = 1; t <= kPushes; ++t) {
      const PushId id{.learner = 1, .incarnation = 1, .sequence = t};
      ShardPush push = PushOf(id, 1, minus);
      push.learning_rate = 1;
      const bool room = shard->applying() <= 20 || Settle(shard.get(), &applied);
      ASSERT_TRUE(room);
      ASSERT_EQ(*shard->Push(push), Outcome::kHeld);
      while (const auto update = shard->ApplyNext()) applied.push_back(update->settled.at(0).id);
      const Outcome again = *shard->Push(push);
      EXPECT_TRUE(again == Outcome::kHeld || again == Outcome::kRepeated);
    }
    ASSERT_TRUE(Settle(shard.get(), &applied));
    EXPECT_EQ(applied.size(), kPushes);
    EXPECT_EQ(shard->version(), 1 + kPushes);
    const auto snapshot = *shard->Pull();
    for (std::size_t i = 0; i < first.size(); ++i) {
      ASSERT_NEAR(snapshot.value.as<float>()[i], first[i] + float(kPushes), 0.02);
    }
  }
}

// Weights that were pulled during an update do not count as its result.
TEST(ShardThreadsTest, CountsVersionOnceItsUpdateIsDone) {
  ThreadExecutor executor(1, nullptr);
  Gate gate(&executor);
  const auto shard = MakeWhole(ThreadOptions(&executor));
  const Floats gradient(kParameters, 1);
  Push(shard.get(), PushOf({.learner = 1, .incarnation = 1, .sequence = 1}, 1, gradient));
  EXPECT_FALSE(shard->ApplyNext(false));
  EXPECT_EQ(shard->applying(), 0u);
  EXPECT_FALSE(shard->ApplyNext());
  EXPECT_EQ(shard->applying(), 1u);
  EXPECT_EQ(shard->version(), 1u);
  const auto before = *shard->Pull();
  EXPECT_EQ(before.version, 1u);
  EXPECT_TRUE(SameBytes(before.value.as<float>(), FirstValue()));
  gate.Open();
  ASSERT_TRUE(Settle(shard.get()));
  const auto after = *shard->Pull();
  EXPECT_EQ(after.version, 2u);
  EXPECT_NEAR(after.value.as<float>()[5], FirstValue()[5] - 0.01f, 1e-6f);
  EXPECT_TRUE(SameBytes(before.value.as<float>(), FirstValue()));
}

TEST(ShardThreadsTest, RejectsExcessPushesAndAcceptsThemLater) {
  ThreadExecutor executor(1, nullptr, ParameterShard::kApplyingMax + 1);  // and the gate
  Gate gate(&executor);
  const auto shard = MakeWhole(ThreadOptions(&executor));
  const Floats gradient(kParameters, 1);
  const auto push = [&](std::uint64_t sequence) {
    const auto outcome = shard->Push(
        PushOf({.learner = std::int32_t(sequence % 8), .incarnation = 1, .sequence = sequence}, 1,
               gradient));
    shard->ApplyNext();
    return outcome;
  };
  for (int i = 0; i < 8; ++i) shard->Join(i);
  const std::uint64_t most = ParameterShard::kApplyingMax + ParameterShard::kHeldMax;
  for (std::uint64_t i = 1; i <= most; ++i) ASSERT_TRUE(push(i).ok()) << i;
  EXPECT_EQ(push(most + 1).status().code(), Code::kResourceExhausted);
  gate.Open();
  ASSERT_TRUE(Settle(shard.get()));
  EXPECT_EQ(*push(most + 1), Outcome::kHeld);
  ASSERT_TRUE(Settle(shard.get()));
  EXPECT_EQ(*push(2), Outcome::kRepeated);
  EXPECT_EQ(shard->version(), most + 2);
}

// Those before it count, whether the threads have made them or not.
TEST(ShardThreadsTest, DropsStalePushesAndOutliers) {
  ThreadExecutor executor(1, nullptr);
  Gate gate(&executor);
  auto options = ThreadOptions(&executor);
  options.guards = {.staleness_max = 2, .loss_deviations = 4, .first = 2};
  const auto shard = MakeWhole(options);
  const Floats gradient(kParameters, 1);
  std::uint64_t sequence = 0;
  const auto push = [&](std::uint64_t clock, float loss) {
    ShardPush p = PushOf({.learner = 1, .incarnation = 1, .sequence = ++sequence}, clock, gradient);
    p.loss = loss;
    const Outcome outcome = Push(shard.get(), std::move(p));
    shard->ApplyNext();
    return outcome;
  };
  EXPECT_EQ(push(1, 1), Outcome::kHeld);
  EXPECT_EQ(push(1, 1.1f), Outcome::kHeld);
  EXPECT_EQ(push(1, 0.9f), Outcome::kHeld);
  EXPECT_EQ(push(1, 1), Outcome::kTooOld);
  gate.Open();
  ASSERT_TRUE(Settle(shard.get()));
  EXPECT_EQ(shard->version(), 4u);
  EXPECT_EQ(push(4, 100), Outcome::kOutlier);
  EXPECT_EQ(push(2, 1), Outcome::kHeld);
  ASSERT_TRUE(Settle(shard.get()));
  EXPECT_EQ(shard->version(), 5u);
  EXPECT_EQ(shard->staleness().count(), 4u);
}

// Does a job when the test says so.
class HandExecutor final : public Executor {
 public:
  Result<Job> Submit(std::string_view, std::function<void()> work) override {
    jobs_.push_back(std::move(work));
    return Job(jobs_.size());
  }
  bool TakeDone(Job job) override { return jobs_[std::size_t(job) - 1] == nullptr; }
  void Do(Job job) { std::exchange(jobs_[std::size_t(job) - 1], nullptr)(); }

 private:
  std::vector<std::function<void()>> jobs_;
};

// The learner restarted, and the push of its new incarnation was applied first.
TEST(ShardThreadsTest, SettlesInFlightPushOfOlderIncarnationOnce) {
  HandExecutor executor;
  const auto shard = MakeWhole(ThreadOptions(&executor));
  const Floats gradient(kParameters, 1);
  const PushId old{.learner = 1, .incarnation = 1, .sequence = 1};
  const PushId young{.learner = 1, .incarnation = 2, .sequence = 1};
  Push(shard.get(), PushOf(old, 1, gradient));
  Push(shard.get(), PushOf(young, 1, gradient));
  EXPECT_FALSE(shard->ApplyNext());
  executor.Do(2);
  EXPECT_EQ(shard->ApplyNext()->settled.at(0).id, young);
  EXPECT_EQ(shard->version(), 2u);
  executor.Do(1);
  EXPECT_EQ(shard->ApplyNext()->settled.at(0).id, old);
  EXPECT_EQ(shard->version(), 3u);
  EXPECT_EQ(shard->Push(PushOf(old, 1, gradient)).status().code(), Code::kAborted);
  EXPECT_EQ(Push(shard.get(), PushOf(young, 1, gradient)), Outcome::kRepeated);
}

// A learner's push that a thread was slow with stays its own while many others are settled.
TEST(ShardThreadsTest, SettlesOvertakenPushOnce) {
  HandExecutor executor;
  const auto shard = MakeWhole(ThreadOptions(&executor));
  const Floats gradient(kParameters, 1);
  const auto id = [](std::uint64_t sequence) {
    return PushId{.learner = 1, .incarnation = 1, .sequence = sequence};
  };
  for (std::uint64_t t = 1; t <= 2 * PushDedup::kWindow; ++t) {
    Push(shard.get(), PushOf(id(t), 1, gradient));
    shard->ApplyNext();
    if (t == 1) continue;
    executor.Do(Executor::Job(t));
    ASSERT_EQ(shard->ApplyNext()->settled.at(0).id, id(t));
  }
  EXPECT_EQ(Push(shard.get(), PushOf(id(1), 1, gradient)), Outcome::kHeld);
  executor.Do(1);
  EXPECT_EQ(shard->ApplyNext()->settled.at(0).id, id(1));
  EXPECT_EQ(Push(shard.get(), PushOf(id(1), 1, gradient)), Outcome::kRepeated);
  EXPECT_EQ(shard->version(), 1 + 2 * PushDedup::kWindow);
}

TEST(ShardThreadsTest, DestructorWaitsForThreads) {
  ThreadExecutor executor(2, nullptr);
  auto shard = MakeWhole(ThreadOptions(&executor));
  const Floats gradient(kParameters, 1);
  for (std::uint64_t t = 1; t <= 30; ++t) {
    Push(shard.get(), PushOf({.learner = 1, .incarnation = 1, .sequence = t}, 1, gradient));
  }
  shard->ApplyNext();
  shard.reset();  // the sanitizers would see a thread in what is gone
}

TEST(ShardThreadsTest, RejectsThreadsInOrderDependentModes) {
  InlineExecutor executor;
  auto options = ThreadOptions(&executor);
  options.keep_sums = true;
  EXPECT_EQ(ParameterShard::Make(options, FirstValue()).status().code(), Code::kInvalidArgument);
  for (const SyncMode mode : {SyncMode::kBsp, SyncMode::kSsp, SyncMode::kLocalSgd}) {
    options = ThreadOptions(&executor);
    options.sync.mode = mode;
    EXPECT_EQ(ParameterShard::Make(options, FirstValue()).status().code(), Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace troop
