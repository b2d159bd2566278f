#include "envs/vector/threaded_vector_env.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "tests/envs/seeds.h"

namespace troop {
namespace {

// Seeds by index and number of the episode, without state that threads share.
EpisodeSeeder SeederFor(int size) {
  auto episodes = std::make_shared<std::vector<int>>(std::size_t(size));
  return [episodes](int i) { return SeedOf(i, (*episodes)[std::size_t(i)]++); };
}

std::unique_ptr<VectorEnv> Make(std::string_view id, int size, int threads) {
  auto env = MakeThreadedVectorEnv(id, {}, size, threads, SeederFor(size));
  EXPECT_TRUE(env.ok()) << env.status().ToString();
  return std::move(*env);
}

std::span<const std::byte> Row(const ConstTensor& t, int i) {
  const std::size_t bytes = t.bytes().size() / std::size_t(t.dim(0));
  return t.bytes().subspan(std::size_t(i) * bytes, bytes);
}

// The oracle: single environments in a plain loop, which are reset by hand.
class PlainLoop {
 public:
  PlainLoop(std::string_view id, int size) : episode_(std::size_t(size)) {
    for (int i = 0; i < size; ++i) {
      envs_.push_back(std::move(*MakeEnvironment(id, {})));
      observation_.emplace_back(envs_[0]->spec().observation.bytes());
      Restart(i);
    }
  }
  void Restart(int i) {
    envs_[std::size_t(i)]->Reset(SeedOf(i, episode_[std::size_t(i)]++),
                                 observation_[std::size_t(i)]);
  }
  // Steps environment i and compares it with row i of the batch; returns true if its episode ended.
  bool Compare(int i, std::span<const std::byte> action, const StepBatch& batch) {
    auto& observation = observation_[std::size_t(i)];
    const StepResult step = envs_[std::size_t(i)]->Step(action, observation);
    EXPECT_EQ(batch.reward.as<float>()[std::size_t(i)], step.reward);
    EXPECT_EQ(batch.terminated.as<std::uint8_t>()[std::size_t(i)], step.terminated);
    EXPECT_EQ(batch.truncated.as<std::uint8_t>()[std::size_t(i)], step.truncated);
    const bool ended = step.terminated || step.truncated;
    if (ended) {
      EXPECT_TRUE(std::ranges::equal(Row(batch.final_observation, i), observation));
      Restart(i);
    }
    EXPECT_TRUE(std::ranges::equal(Row(batch.observation, i), observation));
    return ended;
  }

 private:
  std::vector<std::unique_ptr<Environment>> envs_;
  std::vector<std::vector<std::byte>> observation_;
  std::vector<int> episode_;
};

// Actions that differ between environments and steps.
Tensor ActionsOf(const VectorEnv& env, int step) {
  const ActionSpec& spec = env.spec().action;
  Tensor action(spec.tensor().dtype, spec.tensor().shape.Prepend(env.size()));
  for (int i = 0; i < env.size(); ++i) {
    const int value = (7 * step + 3 * i + step * step / 5) % 11;
    if (spec.discrete()) {
      action.as<std::int32_t>()[std::size_t(i)] = std::int32_t(value % spec.count);
    } else {
      action.as<float>()[std::size_t(i)] = spec.low[0] * float(value) / 11;
    }
  }
  return action;
}

TEST(ThreadedVectorEnvTest, EveryNumberOfThreadsGivesBytesOfSingleEnvironments) {
  constexpr int kSize = 5;
  for (const char* id : {"CartPole-v1", "Pendulum-v1", "Catch-v0", "MinAtar/Breakout-v0"}) {
    for (const int threads : {1, 2, 3, 5}) {
      SCOPED_TRACE(testing::Message() << id << " in " << threads << " threads");
      const auto env = Make(id, kSize, threads);
      PlainLoop plain(id, kSize);
      env->SubmitReset();
      ASSERT_NE(env->Poll(), nullptr);
      int ended = 0;
      for (int step = 0; step < 250 && !testing::Test::HasFailure(); ++step) {
        const Tensor action = ActionsOf(*env, step);
        env->Submit(action);
        const StepBatch* batch = env->Poll();
        for (int i = 0; i < kSize; ++i) ended += plain.Compare(i, Row(action, i), *batch);
      }
      EXPECT_GE(ended, kSize);
    }
  }
}

TEST(ThreadedVectorEnvTest, RestartsOnlyGivenEnvironments) {
  const auto env = Make("CartPole-v1", 5, 2);
  PlainLoop plain("CartPole-v1", 5);
  env->SubmitReset();
  env->Poll();
  for (int step = 0; step < 5; ++step) {
    const Tensor action = ActionsOf(*env, step);
    env->Submit(action);
    const StepBatch* batch = env->Poll();
    for (int i = 0; i < 5; ++i) plain.Compare(i, Row(action, i), *batch);
    env->SubmitRestart(std::vector<int>{1, 4});
    ASSERT_NE(env->Poll(), nullptr);
    plain.Restart(1);
    plain.Restart(4);
  }
}

#ifndef __SANITIZE_THREAD__  // it ends a child of fork that starts threads
TEST(ThreadedVectorEnvTest, ContinuesInChildOfFork) {
  const auto env = Make("CartPole-v1", 4, 3);
  PlainLoop plain("CartPole-v1", 4);
  env->SubmitReset();  // starts the threads, which the child lacks
  env->Poll();
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);  // a child that waits for the parent's threads ends
    for (int step = 0; step < 50; ++step) {
      const Tensor action = ActionsOf(*env, step);
      env->Submit(action);
      const StepBatch* batch = env->Poll();
      for (int i = 0; i < 4; ++i) plain.Compare(i, Row(action, i), *batch);
    }
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}
#endif

TEST(ThreadedVectorEnvTest, WrongNumbersAreRefused) {
  const auto message = [](std::string_view id, int size, int threads) {
    return MakeThreadedVectorEnv(id, {}, size, threads, SeederFor(4)).status().message();
  };
  EXPECT_NE(message("CartPole-v1", 4, 5).find("threads is 5, must be 1 to 4"), std::string::npos);
  EXPECT_NE(message("CartPole-v1", 4, 0).find("threads is 0, must be 1 to 4"), std::string::npos);
  EXPECT_NE(message("CartPole-v1", 0, 1).find("size is 0"), std::string::npos);
  EXPECT_NE(message("ALE/Pong-v5", 4, 2).find("not a native"), std::string::npos);
}

}  // namespace
}  // namespace troop
