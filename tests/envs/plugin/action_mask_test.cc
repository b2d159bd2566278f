// Plug-ins whose observations have parts and an action mask.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "core/base/philox.h"
#include "envs/plugin/plugin_environment.h"
#include "envs/vector_env.h"

namespace troop {
namespace {

using testing::HasSubstr;

EnvOptions ConnectFour(Isolation isolation = Isolation::kNone) {
  return {.plugin = TROOP_PLUGIN_FOLDER "/connect_four.so", .isolation = isolation};
}

class ConnectFourTest : public testing::Test {
 protected:
  ConnectFourTest() { setenv("TROOP_PROGRAM", TROOP_ENV_WORKER, 1); }
};

TEST_F(ConnectFourTest, SpecHasBoardAndMask) {
  const auto env = MakeEnvironment("ConnectFour-v0", ConnectFour());
  ASSERT_TRUE(env.ok()) << env.status().ToString();
  EXPECT_EQ(DescribeObservation((*env)->spec()),
            "u8[91]: board [6, 7, 2], action_mask [7] (action mask)");
  // A worker process reports the same.
  const auto isolated = FindEnvSpec("ConnectFour-v0", ConnectFour(Isolation::kProcess));
  ASSERT_TRUE(isolated.ok()) << isolated.status().ToString();
  EXPECT_EQ(isolated->parts, (*env)->spec().parts);
}

// The mask equals the top row of the board, and no allowed action fails.
TEST_F(ConnectFourTest, AllowedActionsNeverFail) {
  for (const Isolation isolation : {Isolation::kNone, Isolation::kProcess}) {
    std::uint64_t seed = 0;
    EnvOptions options = ConnectFour(isolation);
    options.wait = true;
    const auto env = MakeVectorEnv("ConnectFour-v0", options, 4, [&](int) { return ++seed; });
    ASSERT_TRUE(env.ok()) << env.status().ToString();
    (*env)->SubmitReset();
    const StepBatch* batch = (*env)->Poll();
    const Tensor action(DType::kI32, {4});
    Rng rng({5, Purpose::kTest});
    int full = 0, ended = 0;
    for (int t = 0; t < 300; ++t) {
      ASSERT_TRUE(batch != nullptr && (*env)->faults().empty()) << (*env)->faults()[0].what;
      for (std::size_t i = 0; i < 4; ++i) {
        const auto row = batch->observation.as<std::uint8_t>().subspan(i * 91, 91);
        for (std::size_t column = 0; column < 7; ++column) {
          const bool taken = row[2 * column] + row[2 * column + 1] > 0;
          ASSERT_EQ(row[84 + column], taken ? 0 : 1);
          full += taken;
        }
        const auto allowed = AllowedActions((*env)->spec(), std::as_bytes(row));
        action.as<std::int32_t>()[i] = allowed[rng.Below(std::uint32_t(allowed.size()))];
        ended += batch->terminated.as<std::uint8_t>()[i];
      }
      (*env)->Submit(action);
      batch = (*env)->Poll();
    }
    EXPECT_GT(full, 20) << "columns were full";
    EXPECT_GT(ended, 20);
  }
}

TEST_F(ConnectFourTest, FullColumnIsRefused) {
  const auto env = MakeEnvironment("ConnectFour-v0", ConnectFour());
  std::vector<std::byte> observation(91);
  const std::int32_t column = 3;
  // Six discs fill the column, unless the game is over before.
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    (*env)->Reset(seed, observation);
    for (int t = 0; t < 7 && (*env)->fault().empty(); ++t) {
      if ((*env)->Step(std::as_bytes(std::span(&column, 1)), observation).terminated) break;
    }
    if (!(*env)->fault().empty()) break;
  }
  EXPECT_THAT((*env)->fault(), HasSubstr("column 3 is full"));
}

TEST_F(ConnectFourTest, OptionsThatRepeatActionsAreRefused) {
  const auto refusal = [](const EnvOptions& options) {
    const auto made = MakeVectorEnv("ConnectFour-v0", options, 1, [](int) { return 1; });
    EXPECT_EQ(FindEnvSpec("ConnectFour-v0", options).status().message(), made.status().message());
    return made.status().message();
  };
  for (const Isolation isolation : {Isolation::kNone, Isolation::kProcess}) {
    EnvOptions options = ConnectFour(isolation);
    options.action_mask = true;
    EXPECT_EQ(refusal(options), "");
    options.sticky_actions = 0.25;
    EXPECT_THAT(refusal(options), HasSubstr("action mask, which env.sticky_actions ignores"));
    options.sticky_actions = -1;
    options.action_repeat = 2;
    EXPECT_THAT(refusal(options), HasSubstr("action mask, which env.action_repeat ignores"));
  }
  EnvOptions plain;
  plain.action_mask = true;
  EXPECT_THAT(FindEnvSpec("CartPole-v1", plain).status().message(),
              HasSubstr("CartPole-v1 has no action mask, which env.action_mask requires"));
  plain.action_mask = false;
  plain.action_bound = 2;
  EXPECT_THAT(MakeEnvironment("CartPole-v1", plain).status().message(),
              HasSubstr("CartPole-v1 is not a Python environment; remove env.action_bound"));
}

// --- a table made by hand ---

// The next observation and spec of the plug-in; one thread.
struct Behavior {
  std::array<float, 4> observation{};  // two numbers, then the mask
  bool ends = false;
  TroopEnvPart parts[2] = {};
  std::int32_t part_count = 2;
};
Behavior behavior;

TroopEnvApi MaskedApi() {
  static constexpr const char* kIds[] = {"One-v0", nullptr};
  TroopEnvApi api{.struct_size = sizeof(TroopEnvApi),
                  .abi_major = TROOP_ENV_ABI_MAJOR,
                  .abi_minor = TROOP_ENV_ABI_MINOR,
                  .ids = kIds};
  api.create = [](const char*, const TroopEnvOption*, std::size_t, char*, std::size_t) {
    return reinterpret_cast<TroopEnv*>(&behavior);
  };
  api.destroy = [](TroopEnv*) {};
  api.spec = [](TroopEnv*, TroopEnvSpec* spec) {
    spec->observation_type = TROOP_ENV_F32;
    spec->observation_rank = 1;
    spec->observation_shape[0] = 4;
    spec->action_kind = TROOP_ENV_DISCRETE;
    spec->action_count = 2;
    spec->part_count = behavior.part_count;
    spec->parts = behavior.parts;
    return std::int32_t{0};
  };
  api.reset = [](TroopEnv*, std::uint64_t, void* observation) {
    std::memcpy(observation, behavior.observation.data(), sizeof behavior.observation);
    return std::int32_t{0};
  };
  api.step = [](TroopEnv*, const void*, void* observation, float*, std::int32_t* terminated,
                std::int32_t*) {
    std::memcpy(observation, behavior.observation.data(), sizeof behavior.observation);
    *terminated = behavior.ends;
    return std::int32_t{0};
  };
  api.step_many = [](TroopEnv* const*, std::int32_t count, const void*, void* observations, float*,
                     std::uint8_t* terminated, std::uint8_t*, std::int32_t*) {
    for (std::int32_t i = 0; i < count; ++i) {
      std::memcpy(static_cast<float*>(observations) + 4 * i, behavior.observation.data(),
                  sizeof behavior.observation);
      terminated[i] = behavior.ends;
    }
  };
  return api;
}

class MaskedPluginTest : public testing::Test {
 protected:
  MaskedPluginTest() {
    behavior = {.observation = {5, 6, 1, 0}};
    behavior.parts[0] = {.name = "numbers", .rank = 1, .shape = {2}, .scale = 0.5};
    behavior.parts[1] = {.name = "mask", .rank = 1, .shape = {2}, .action_mask = 1};
  }
  Result<std::unique_ptr<Environment>> Make() const {
    return MakePluginEnvironment(&api_, "test.so", "One-v0", {});
  }
  const TroopEnvApi api_ = MaskedApi();
};

TEST_F(MaskedPluginTest, PartsReachSpec) {
  const auto env = Make();
  ASSERT_TRUE(env.ok()) << env.status().ToString();
  EXPECT_EQ(DescribeObservation((*env)->spec()),
            "f32[4]: numbers [2] scaled by 0.5, mask [2] (action mask)");
}

TEST_F(MaskedPluginTest, BadPartsAreRefusedNamingMember) {
  struct Case {
    void (*change)();
    const char* says;
  };
  const Case cases[] = {
      {[] { behavior.part_count = -1; }, "part_count is -1"},
      {[] { behavior.part_count = 65; }, "part_count is 65; give the number of parts, at most 64"},
      {[] { behavior.parts[0].name = nullptr; }, "named \"\""},
      {[] { behavior.parts[0].rank = 5; }, "parts[0].rank is 5; give 0 to 4"},
      {[] { behavior.parts[1].rank = -1; }, "parts[1].rank is -1"},
      {[] { behavior.parts[0].shape[0] = 0; }, "parts[0].shape[0] is 0"},
      {[] { behavior.parts[0].shape[0] = std::int64_t{1} << 62; }, "more than 64 MiB"},
      {[] { behavior.parts[0].shape[0] = 3; }, "its parts have 5 elements"},
      {[] { behavior.parts[0].scale = -1; }, "has the scale -1"},
      {[] { behavior.part_count = 1; }, "its parts have 2 elements"},
  };
  const Behavior good = behavior;
  for (const Case& c : cases) {
    behavior = good;
    c.change();
    EXPECT_THAT(Make().status().message(), HasSubstr(c.says));
  }
}

// A mask that allows nothing is a fault, except after the last step of an episode.
TEST_F(MaskedPluginTest, WrongMaskIsFault) {
  const auto env = Make();
  ASSERT_TRUE(env.ok());
  std::vector<std::byte> observation(16);
  const std::int32_t action = 0;
  const auto step = [&] { return (*env)->Step(std::as_bytes(std::span(&action, 1)), observation); };
  (*env)->Reset(1, observation);
  step();
  EXPECT_EQ((*env)->fault(), "");
  behavior.observation = {5, 6, 0, 0};
  step();
  EXPECT_EQ((*env)->fault(), "the action mask allows none of the 2 actions");
  (*env)->Reset(2, observation);
  EXPECT_EQ((*env)->fault(), "the action mask allows none of the 2 actions");
  behavior.observation = {5, 6, 1, 0.5F};
  (*env)->Reset(3, observation);
  EXPECT_EQ((*env)->fault(), "element 1 of the action mask is 0.5; give 0 or 1");
  behavior.observation = {5, 6, 1, 0};
  (*env)->Reset(4, observation);
  behavior.observation = {5, 6, 0, 0};
  behavior.ends = true;
  EXPECT_TRUE(step().terminated);
  EXPECT_EQ((*env)->fault(), "");
}

TEST_F(MaskedPluginTest, WrongMaskOfOneCallForAllIsFault) {
  std::vector<std::unique_ptr<Environment>> envs;
  for (int i = 0; i < 2; ++i) envs.push_back(std::move(*Make()));
  std::array<float, 8> observations{};
  std::array<std::int32_t, 2> actions{};
  std::array<float, 2> rewards{};
  std::array<std::uint8_t, 2> terminated{}, truncated{};
  const auto room = std::as_writable_bytes(std::span(observations)).first(16);
  for (const auto& env : envs) env->Reset(1, room);
  const Environment::Rows rows{reinterpret_cast<std::byte*>(actions.data()),
                               reinterpret_cast<std::byte*>(observations.data()), rewards.data(),
                               terminated.data(), truncated.data()};
  EXPECT_EQ(envs[0]->StepMany(envs, rows), Environment::Many::kGood);
  behavior.observation = {5, 6, 0, 0};
  EXPECT_EQ(envs[0]->StepMany(envs, rows), Environment::Many::kSomeFailed);
  for (const auto& env : envs)
    EXPECT_EQ(env->fault(), "the action mask allows none of the 2 actions");
}

}  // namespace
}  // namespace troop
