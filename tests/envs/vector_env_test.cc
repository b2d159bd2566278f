#include "envs/vector_env.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <string>
#include <vector>

#include "core/base/philox.h"
#include "tests/envs/seeds.h"

// The contract of every environment in this process: what holds for each id of the table, and for
// plug-ins in C and C++.
namespace troop {
namespace {

constexpr int kSizes[] = {1, 5, 8, 64};

// [size, ...action]: any legal actions.
Tensor RandomActions(const ActionSpec& spec, int size, Rng* rng) {
  const TensorSpec one = spec.tensor();
  Tensor action(one.dtype, one.shape.Prepend(size));
  if (spec.discrete()) {
    const auto count = std::uint32_t(spec.count);
    for (auto& a : action.as<std::int32_t>()) a = std::int32_t(rng->Below(count));
  } else {
    const std::size_t width = spec.low.size();
    std::size_t i = 0;
    for (auto& a : action.as<float>()) {
      a = float(rng->Uniform(spec.low[i % width], spec.high[i % width]));
      ++i;
    }
  }
  return action;
}

// The library of a plug-in's id; empty: it is built in.
std::string PluginOf(const std::string& id) {
  for (const char* name : {"Walk", "Inventory", "TwoTanks"}) {
    if (id != name + std::string("-v0")) continue;
    std::string file = id == "TwoTanks-v0" ? "two_tanks" : name;
    file[0] = char(std::tolower(file[0]));
    return TROOP_PLUGIN_FOLDER "/" + file + ".so";
  }
  return {};
}

std::unique_ptr<Environment> Make(const std::string& id, EnvOptions options = {}) {
  options.plugin = PluginOf(id);
  options.isolation = Isolation::kNone;
  auto env = MakeEnvironment(id, options);
  TROOP_CHECK(env.ok(), "{}", env.status().ToString());
  return std::move(env).value();
}

std::unique_ptr<VectorEnv> MakeVector(const std::string& id, int size, EnvOptions options = {}) {
  options.plugin = PluginOf(id);
  options.isolation = Isolation::kNone;
  auto env = MakeVectorEnv(id, options, size, CountingSeeder());
  TROOP_CHECK(env.ok(), "{}", env.status().ToString());
  return std::move(env).value();
}

std::string Row(const ConstTensor& tensor, int index) {
  const std::size_t bytes = tensor.bytes().size() / std::size_t(tensor.dim(0));
  return {reinterpret_cast<const char*>(tensor.bytes().data()) + std::size_t(index) * bytes, bytes};
}

class EveryEnvironment : public testing::TestWithParam<std::string> {};

TEST_P(EveryEnvironment, SpecHoldsIdAndStepLimit) {
  EXPECT_EQ(Make(GetParam())->spec().id, GetParam());
  EXPECT_EQ(Make(GetParam(), {.max_episode_steps = 7})->spec().max_episode_steps, 7);
  EXPECT_EQ(Make(GetParam(), {.max_episode_steps = 0})->spec().max_episode_steps, 0);
  EXPECT_EQ(MakeVector(GetParam(), 3)->spec(), Make(GetParam())->spec());
}

// Steps single environments by hand as the batched code should, and compares all bytes.
TEST_P(EveryEnvironment, VectorMatchesSingleEnvironmentsByteForByte) {
  const EnvOptions options{.max_episode_steps = 37};  // so that both kinds of ending occur
  for (const int size : kSizes) {
    Rng rng({.index = std::uint64_t(size)});
    auto vector = MakeVector(GetParam(), size, options);
    vector->SubmitReset();
    const StepBatch* batch = vector->Poll();
    ASSERT_NE(batch, nullptr);
    EXPECT_EQ(vector->Poll(), nullptr) << "a result is given once";
    const EpisodeSeeder seeder = CountingSeeder();
    std::vector<std::unique_ptr<Environment>> singles;
    const std::size_t row = vector->spec().observation.bytes();
    std::string now(row, 0);
    for (int i = 0; i < size; ++i) {
      singles.push_back(Make(GetParam(), options));
      singles[i]->Reset(seeder(i), std::as_writable_bytes(std::span(now)));
      ASSERT_EQ(now, Row(batch->observation, i)) << "reset of " << i;
    }
    for (int t = 0; t < 200; ++t) {
      const Tensor action = RandomActions(vector->spec().action, size, &rng);
      const std::size_t action_bytes = vector->spec().action.tensor().bytes();
      vector->Submit(action);
      batch = vector->Poll();
      ASSERT_NE(batch, nullptr);
      for (int i = 0; i < size; ++i) {
        const StepResult step =
            singles[i]->Step(action.bytes().subspan(i * action_bytes, action_bytes),
                             std::as_writable_bytes(std::span(now)));
        ASSERT_EQ(step.reward, batch->reward.as<float>()[i]);
        ASSERT_EQ(step.terminated, batch->terminated.as<std::uint8_t>()[i] == 1);
        ASSERT_EQ(step.truncated, batch->truncated.as<std::uint8_t>()[i] == 1);
        ASSERT_EQ(batch->fault.as<std::uint8_t>()[i], 0);
        if (step.terminated || step.truncated) {
          ASSERT_EQ(now, Row(batch->final_observation, i)) << "step " << t << ", row " << i;
          singles[i]->Reset(seeder(i), std::as_writable_bytes(std::span(now)));
        }
        ASSERT_EQ(now, Row(batch->observation, i)) << "step " << t << ", row " << i;
      }
    }
  }
}

TEST_P(EveryEnvironment, EpisodeDependsOnlyOnSeedAndActions) {
  auto play = [&](Environment* env, std::uint64_t seed) {
    std::string bytes, observation(env->spec().observation.bytes(), 0);
    Rng rng({.index = 5});
    env->Reset(seed, std::as_writable_bytes(std::span(observation)));
    bytes += observation;
    for (int t = 0; t < 100; ++t) {
      const Tensor action = RandomActions(env->spec().action, 1, &rng);
      const StepResult step =
          env->Step(action.bytes(), std::as_writable_bytes(std::span(observation)));
      bytes += observation;
      if (step.terminated || step.truncated) break;
    }
    return bytes;
  };
  auto fresh = Make(GetParam()), used = Make(GetParam());
  play(used.get(), 99);
  const std::string expected = play(fresh.get(), 4);
  EXPECT_EQ(play(used.get(), 4), expected);
  bool differs = false;
  for (std::uint64_t seed = 5; seed < 25; ++seed) differs |= play(used.get(), seed) != expected;
  EXPECT_TRUE(differs);
}

// Every few steps some are given up, some of them right after an episode's end.
TEST_P(EveryEnvironment, RestartStartsNextEpisodeOnlyInThatEnvironment) {
  const EnvOptions options{.max_episode_steps = 9};
  for (const int size : kSizes) {
    Rng rng({.index = std::uint64_t(size)});
    auto vector = MakeVector(GetParam(), size, options);
    vector->SubmitReset();
    const StepBatch* batch = vector->Poll();
    const EpisodeSeeder seeder = CountingSeeder();
    std::vector<std::unique_ptr<Environment>> singles;
    const std::size_t row = vector->spec().observation.bytes();
    std::vector<std::string> now(std::size_t(size), std::string(row, 0));
    const auto bytes = [&](int i) { return std::as_writable_bytes(std::span(now[i])); };
    for (int i = 0; i < size; ++i) {
      singles.push_back(Make(GetParam(), options));
      singles[i]->Reset(seeder(i), bytes(i));
    }
    for (int t = 0; t < 60; ++t) {
      if (t % 3 == 0) {
        for (int i = t % 2; i < size; i += 2) {
          vector->SubmitRestart({&i, 1});
          ASSERT_NE(vector->Poll(), nullptr);
          singles[i]->Reset(seeder(i), bytes(i));
        }
        for (int i = 0; i < size; ++i) {
          ASSERT_EQ(now[i], Row(batch->observation, i)) << "restart " << t << ", row " << i;
        }
      }
      const Tensor action = RandomActions(vector->spec().action, size, &rng);
      const std::size_t action_bytes = vector->spec().action.tensor().bytes();
      vector->Submit(action);
      batch = vector->Poll();
      for (int i = 0; i < size; ++i) {
        const StepResult step =
            singles[i]->Step(action.bytes().subspan(i * action_bytes, action_bytes), bytes(i));
        ASSERT_EQ(step.reward, batch->reward.as<float>()[i]);
        ASSERT_EQ(step.terminated, batch->terminated.as<std::uint8_t>()[i] == 1);
        ASSERT_EQ(step.truncated, batch->truncated.as<std::uint8_t>()[i] == 1);
        if (step.terminated || step.truncated) singles[i]->Reset(seeder(i), bytes(i));
        ASSERT_EQ(now[i], Row(batch->observation, i)) << "step " << t << ", row " << i;
      }
    }
  }
}

// A wrong write past its row would show in the neighbour's bytes.
TEST_P(EveryEnvironment, ObservationStaysWithinItsRow) {
  auto env = Make(GetParam());
  const std::size_t row = env->spec().observation.bytes();
  std::string padded(row + 64, '\x7e');
  const auto inside = std::as_writable_bytes(std::span(padded)).subspan(32, row);
  env->Reset(1, inside);
  Rng rng({});
  env->Step(RandomActions(env->spec().action, 1, &rng).bytes(), inside);
  EXPECT_EQ(padded.substr(0, 32), std::string(32, '\x7e'));
  EXPECT_EQ(padded.substr(row + 32), std::string(32, '\x7e'));
}

TEST_P(EveryEnvironment, RendersPictureOfCurrentState) {
  if (GetParam() == "Inventory-v0" || GetParam() == "TwoTanks-v0") {
    EXPECT_TRUE(Make(GetParam())->Render().rgb.empty());
    return;
  }
  auto vector = MakeVector(GetParam(), 3);
  vector->SubmitReset();
  vector->Poll();
  auto env = Make(GetParam());
  std::string observation(env->spec().observation.bytes(), 0);
  env->Reset(SeedOf(2, 0), std::as_writable_bytes(std::span(observation)));
  const Environment::Picture first = env->Render();
  ASSERT_EQ(first.rgb.size(), std::size_t(3) * first.width * first.height);
  ASSERT_GT(first.width, 0);
  EXPECT_EQ(vector->Render(2).rgb, first.rgb);
  Rng rng({});
  bool moved = false;
  for (int t = 0; t < 8; ++t) {
    const auto step = env->Step(RandomActions(env->spec().action, 1, &rng).bytes(),
                                std::as_writable_bytes(std::span(observation)));
    moved |= env->Render().rgb != first.rgb;
    if (step.terminated) break;
  }
  EXPECT_TRUE(moved);
}

TEST_P(EveryEnvironment, TruncatesOnLastAllowedStep) {
  auto env = Make(GetParam(), {.max_episode_steps = 3});
  std::string observation(env->spec().observation.bytes(), 0);
  const auto bytes = std::as_writable_bytes(std::span(observation));
  Rng rng({});
  for (int episode = 0; episode < 2; ++episode) {  // the clock restarts
    env->Reset(episode, bytes);
    for (int t = 1; t <= 3; ++t) {
      const StepResult step = env->Step(RandomActions(env->spec().action, 1, &rng).bytes(), bytes);
      EXPECT_EQ(step.truncated, t == 3);
      EXPECT_FALSE(step.terminated);
    }
  }
}

// Always to the right, a pole falls within some ten steps.
TEST(CartPoleVectorTest, FallOnLastAllowedStepTerminatesAndTruncates) {
  int both = 0;
  for (const int limit : {8, 9, 10, 11}) {
    EnvOptions options;
    options.max_episode_steps = limit;
    const auto vector = MakeVector("CartPole-v1", 64, options);
    Tensor action(DType::kI32, {64});
    std::ranges::fill(action.as<std::int32_t>(), 1);
    vector->SubmitReset();
    vector->Poll();
    for (int t = 1; t <= limit; ++t) {
      vector->Submit(action);
      const StepBatch* batch = vector->Poll();
      for (std::size_t i = 0; t == limit && i < 64; ++i) {
        const bool fell = batch->terminated.as<std::uint8_t>()[i] != 0;
        const bool clock = batch->truncated.as<std::uint8_t>()[i] != 0;
        EXPECT_TRUE(fell || clock ||
                    limit > 8);  // those that fell before are in their next episode
        both += fell && clock;
      }
    }
  }
  EXPECT_GT(both, 10);
}

std::string TestName(const testing::TestParamInfo<std::string>& info) {
  std::string name;
  for (const char c : info.param) {
    if (std::isalnum(static_cast<unsigned char>(c))) name += c;
  }
  return name;
}
INSTANTIATE_TEST_SUITE_P(Plugins, EveryEnvironment,
                         testing::Values("Walk-v0", "Inventory-v0", "TwoTanks-v0"), TestName);
INSTANTIATE_TEST_SUITE_P(Native, EveryEnvironment, testing::ValuesIn(EnvironmentIds()), TestName);

TEST(RegistryTest, UnknownIdErrorNamesNearestAndAllIds) {
  const Status status = MakeEnvironment("CartPol-v1", {}).status();
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_THAT(status.message(), testing::HasSubstr("did you mean \"CartPole-v1\""));
  EXPECT_THAT(MakeEnvironment("cartpole-v1", {}).status().message(),
              testing::HasSubstr("did you mean \"CartPole-v1\""));
  for (const std::string& id : EnvironmentIds()) {
    EXPECT_THAT(status.message(), testing::HasSubstr(id));
  }
  EXPECT_EQ(MakeVectorEnv("Nothing", {}, 4, CountingSeeder()).status().code(), Code::kNotFound);
}

TEST(RegistryTest, RejectsOptionsOutOfRange) {
  EXPECT_EQ(MakeEnvironment("CartPole-v1", {.max_episode_steps = -2}).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(MakeEnvironment("CartPole-v1", {.sticky_actions = 1.1}).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(MakeEnvironment("CartPole-v1", {.wrappers = {"m:A"}}).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(MakeVectorEnv("CartPole-v1", {}, 0, CountingSeeder()).status().code(),
            Code::kInvalidArgument);
  const EnvOptions list{.options = {{"goal", EnvOption::Json{"[1]"}}}};
  for (const std::string id : {"MinAtar/Breakout-v1", "Walk-v0"}) {
    EnvOptions options = list;
    if (id == "Walk-v0") options.plugin = TROOP_PLUGIN_FOLDER "/walk.so";
    EXPECT_THAT(MakeVectorEnv(id, options, 1, CountingSeeder()).status().message(),
                testing::HasSubstr("env.options.goal is a list or a table"));
  }
}

// Without the check Breakout's ball would be written behind the board.
TEST(VectorEnvDeathTest, AbortsOnStepAfterEpisodeEnd) {
  for (const char* id : {"CartPole-v1", "Catch-v0", "MinAtar/Breakout-v0"}) {
    auto env = Make(id);
    std::vector<std::byte> observation(env->spec().observation.bytes());
    env->Reset(1, observation);
    const Tensor action(DType::kI32, {});
    while (!env->Step(action.bytes(), observation).terminated) {
    }
    EXPECT_DEATH(env->Step(action.bytes(), observation), "no episode is under way") << id;
  }
}

TEST(VectorEnvDeathTest, AbortsOnCallsOutOfOrder) {
  EXPECT_DEATH(
      {
        auto vector = MakeVector("CartPole-v1", 2);
        vector->Submit(Tensor(DType::kI32, {2}));
      },
      "after a polled");
  EXPECT_DEATH(
      {
        auto vector = MakeVector("CartPole-v1", 2);
        vector->SubmitReset();
        vector->Poll();
        vector->Submit(Tensor(DType::kI32, {3}));
      },
      "actions are i32");
  const int first = 0;
  EXPECT_DEATH(MakeVector("CartPole-v1", 2)->SubmitRestart({&first, 1}), "after a polled");
}

}  // namespace
}  // namespace troop
