#include "envs/plugin/plugin_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "envs/vector/native_vector_env.h"
#include "envs/vector_env.h"

// Plug-ins: the table of functions by hand, with all that can be wrong in it, and real libraries.
namespace troop {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string Plugin(const std::string& name) { return TROOP_PLUGIN_FOLDER "/" + name + ".so"; }

// The behavior of this test's plug-in; one thread.
struct Behaviour {
  std::function<void(TroopEnvSpec*)> spec = [](TroopEnvSpec*) {};
  std::int32_t spec_code = 0;
  bool create_fails = false;
  bool takes_any_option = false;
  std::string create_error;
  int alive = 0;
  std::vector<std::string> seen_options;
  const void* action = nullptr;
  const void* observation = nullptr;
};
Behaviour behaviour;  // the C functions have no other way to reach it

std::string Text(const TroopEnvOption& option) {
  switch (option.type) {
    case TROOP_ENV_BOOL:
      return fmt::format("{} bool {}", option.name, option.value.integer);
    case TROOP_ENV_INTEGER:
      return fmt::format("{} integer {}", option.name, option.value.integer);
    case TROOP_ENV_NUMBER:
      return fmt::format("{} number {}", option.name, option.value.number);
    default:
      return fmt::format("{} string {}", option.name, option.value.string);
  }
}

constexpr const char* kIds[] = {"One-v0", "Another-v0", nullptr};

TroopEnvApi GoodApi() {
  TroopEnvApi api{.struct_size = sizeof(TroopEnvApi),
                  .abi_major = TROOP_ENV_ABI_MAJOR,
                  .abi_minor = TROOP_ENV_ABI_MINOR,
                  .ids = kIds};
  api.create = [](const char*, const TroopEnvOption* options, std::size_t count, char* error,
                  std::size_t size) -> TroopEnv* {
    behaviour.seen_options.clear();
    for (std::size_t i = 0; i < count; ++i) {
      if (!behaviour.takes_any_option && options[i].name == std::string_view("no_such_option")) {
        return nullptr;
      }
      behaviour.seen_options.push_back(Text(options[i]));
    }
    std::memcpy(error, behaviour.create_error.data(),
                std::min(size, behaviour.create_error.size()));
    if (behaviour.create_fails) return nullptr;
    ++behaviour.alive;
    return reinterpret_cast<TroopEnv*>(&behaviour);
  };
  api.destroy = [](TroopEnv*) { --behaviour.alive; };
  api.spec = [](TroopEnv*, TroopEnvSpec* spec) {
    spec->observation_type = TROOP_ENV_F32;
    spec->observation_rank = 1;
    spec->observation_shape[0] = 2;
    spec->action_kind = TROOP_ENV_DISCRETE;
    spec->action_count = 3;
    spec->max_episode_steps = 9;
    behaviour.spec(spec);
    return behaviour.spec_code;
  };
  api.reset = [](TroopEnv*, std::uint64_t, void* observation) {
    behaviour.observation = observation;
    std::memset(observation, 1, 8);
    return std::int32_t{0};
  };
  api.step = [](TroopEnv*, const void* action, void* observation, float*, std::int32_t*,
                std::int32_t*) {
    behaviour.action = action;
    behaviour.observation = observation;
    std::memset(observation, 2, 8);
    return std::int32_t{0};
  };
  return api;
}

class PluginTest : public testing::Test {
 protected:
  void SetUp() override { behaviour = {}; }
  void TearDown() override { EXPECT_EQ(behaviour.alive, 0) << "handles are freed"; }
  static Result<std::unique_ptr<Environment>> Make(const TroopEnvApi& api,
                                                   const EnvOptions& options = {}) {
    return MakePluginEnvironment(&api, "test.so", "One-v0", options);
  }
  static std::string Refusal(const TroopEnvApi& api, const EnvOptions& options = {}) {
    const Status status = Make(api, options).status();
    EXPECT_THAT(status.message(), HasSubstr("test.so"));
    return status.message();
  }
};

TEST_F(PluginTest, ValidTableMakesEnvironment) {
  const TroopEnvApi api = GoodApi();
  const auto env = Make(api);
  ASSERT_TRUE(env.ok()) << env.status().ToString();
  const EnvSpec want{.id = "One-v0",
                     .observation = {DType::kF32, {2}},
                     .action = {.kind = ActionSpec::Kind::kDiscrete, .count = 3},
                     .max_episode_steps = 9};
  EXPECT_EQ((*env)->spec(), want);
  EXPECT_TRUE((*env)->Render().rgb.empty());
}

TEST_F(PluginTest, RejectsOtherMajorVersionNamingBoth) {
  TroopEnvApi api = GoodApi();
  api.abi_major = api.abi_minor = 0;
  EXPECT_THAT(Refusal(api), HasSubstr("too old: it has version 0.0 of the interface, this "
                                      "program 1.3"));
  api.abi_major = 7;
  api.abi_minor = 3;
  EXPECT_THAT(Refusal(api), HasSubstr("too new: it has version 7.3"));
  api.struct_size = 12;  // only these three fields are common to all major versions
  EXPECT_THAT(Refusal(api), HasSubstr("too new"));
  EXPECT_THAT(CheckPluginApi(nullptr, "test.so").message(),
              HasSubstr("does not support version 1"));
}

TEST_F(PluginTest, AcceptsLaterMinorVersion) {
  TroopEnvApi api = GoodApi();
  api.abi_minor = 5;
  api.struct_size += 64;
  EXPECT_TRUE(Make(api).ok());
}

TEST_F(PluginTest, AcceptsFirstVersionTableWithoutReadingPastIt) {
  TroopEnvApi api = GoodApi();
  api.abi_minor = 0;
  api.struct_size = offsetof(TroopEnvApi, step_many);
  api.step_many = [](auto...) { FAIL() << "this library has no such member"; };
  const auto env = Make(api);
  ASSERT_TRUE(env.ok()) << env.status().ToString();
  std::vector<std::byte> rows(64);
  float reward = 0;
  std::uint8_t terminated = 0, truncated = 0;
  EXPECT_EQ(
      (*env)->StepMany({&*env, 1}, {rows.data(), rows.data(), &reward, &terminated, &truncated}),
      Environment::Many::kCannot);
}

TEST_F(PluginTest, FailedStepInBatchDoesNotAffectOthers) {
  TroopEnvApi api = GoodApi();
  api.step = [](TroopEnv*, auto...) { return std::int32_t{-9}; };
  api.step_many = [](TroopEnv* const*, std::int32_t count, const void* actions, void* observations,
                     float* rewards, std::uint8_t* terminated, std::uint8_t* truncated,
                     std::int32_t* results) {
    ASSERT_EQ(count, 3);
    for (int i = 0; i < count; ++i) {
      rewards[i] = float(static_cast<const std::int32_t*>(actions)[i]);
      static_cast<float*>(observations)[2 * i + 1] = float(i);
      ASSERT_EQ(terminated[i] + truncated[i] + results[i], 0);
    }
    results[1] = -7;
    terminated[2] = 2;
  };
  std::vector<std::unique_ptr<Environment>> envs;
  for (int i = 0; i < 3; ++i) envs.push_back(*Make(api));
  std::vector<int> seeds(3);
  const auto vector =
      MakeSyncVectorEnv(std::move(envs), [&](int i) { return std::uint64_t(seeds[i]++); });
  vector->SubmitReset();
  vector->Poll();
  Tensor action(DType::kI32, {3});
  std::ranges::copy(std::vector<std::int32_t>{2, 1, 2}, action.as<std::int32_t>().begin());
  vector->Submit(action);
  const StepBatch& batch = *vector->Poll();
  const auto flags = [](const ConstTensor& tensor) {
    const auto row = tensor.as<std::uint8_t>();
    return std::vector<int>(row.begin(), row.end());
  };
  EXPECT_EQ(flags(batch.fault), (std::vector{0, 1, 0}));
  EXPECT_EQ(flags(batch.terminated), (std::vector{0, 0, 1}));
  EXPECT_EQ(flags(batch.truncated), (std::vector{0, 0, 0}));
  EXPECT_EQ(batch.reward.as<float>()[0], 2);
  EXPECT_EQ(batch.reward.as<float>()[1], 0);
  EXPECT_EQ(batch.reward.as<float>()[2], 2);
  EXPECT_EQ(batch.observation.as<float>()[1], 0);
  EXPECT_EQ(batch.final_observation.as<float>()[5], 2);
  EXPECT_EQ(seeds, (std::vector{1, 2, 2}));
  ASSERT_EQ(vector->faults().size(), 1u);
  EXPECT_THAT(vector->faults()[0].what, HasSubstr("step failed (-7)"));
}

TEST_F(PluginTest, RejectsIncompleteTable) {
  TroopEnvApi api = GoodApi();
  api.struct_size = offsetof(TroopEnvApi, step_many) - 1;
  EXPECT_THAT(Refusal(api), HasSubstr("its table has"));
  for (auto lack : std::vector<void (*)(TroopEnvApi*)>{
           [](TroopEnvApi* a) { a->ids = nullptr; }, [](TroopEnvApi* a) { a->create = nullptr; },
           [](TroopEnvApi* a) { a->destroy = nullptr; }, [](TroopEnvApi* a) { a->spec = nullptr; },
           [](TroopEnvApi* a) { a->reset = nullptr; }, [](TroopEnvApi* a) { a->step = nullptr; }}) {
    api = GoodApi();
    lack(&api);
    EXPECT_THAT(Refusal(api), HasSubstr("lacks one of"));
  }
  api = GoodApi();
  static constexpr const char* kNone[] = {nullptr};
  api.ids = kNone;
  EXPECT_THAT(Refusal(api), HasSubstr("list of ids is empty"));
}

TEST_F(PluginTest, UnknownIdErrorNamesNearestAndAllIds) {
  const TroopEnvApi api = GoodApi();
  const Status status = MakePluginEnvironment(&api, "test.so", "Anothr-v0", {}).status();
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_THAT(status.message(),
              HasSubstr("did you mean \"Another-v0\"? Available: One-v0, Another"));
}

TEST_F(PluginTest, PassesOptionsWithTheirTypes) {
  EnvOptions options;
  options.options = {{"a", true}, {"b", std::int64_t{-3}}, {"c", 0.5}, {"d", std::string("x y")}};
  ASSERT_TRUE(Make(GoodApi(), options).ok());
  EXPECT_THAT(behaviour.seen_options,
              testing::ElementsAre("a bool 1", "b integer -3", "c number 0.5", "d string x y"));
}

// A library that reads no option, or only some of them: a mistyped one was ignored.
TEST_F(PluginTest, RejectsOptionsThatPluginDoesNotRead) {
  behaviour.takes_any_option = true;
  EXPECT_TRUE(Make(GoodApi()).ok());
  EnvOptions options;
  options.options = {{"a", true}};
  EXPECT_THAT(Refusal(GoodApi(), options), HasSubstr("One-v0: accepts unknown options"));
}

TEST_F(PluginTest, PluginCodeDependsOnContentNotPath) {
  const std::string path = testing::TempDir() + fmt::format("/code-{}", getpid());
  std::ofstream(path) << "some library";
  std::ofstream(path + "-copy") << "some library";
  const auto code = PluginCode(path);
  ASSERT_TRUE(code.ok());
  EXPECT_THAT(*code, testing::StartsWith("a plug-in of 12 bytes, checksum "));
  EXPECT_EQ(*PluginCode(path + "-copy"), *code);
  std::ofstream(path + "-copy") << "some librarY";
  EXPECT_NE(*PluginCode(path + "-copy"), *code);
  fs::remove(path), fs::remove(path + "-copy");
  EXPECT_EQ(PluginCode(path).status().code(), Code::kNotFound);
}

TEST_F(PluginTest, ReportsReasonOfFailedCreateOnOneLine) {
  behaviour.create_fails = true;
  EXPECT_THAT(Refusal(GoodApi()), HasSubstr("One-v0: create failed without a reason"));
  behaviour.create_error = "no\nlicence";
  EXPECT_THAT(Refusal(GoodApi()), HasSubstr("One-v0: no licence"));
  behaviour.create_error = std::string(5000, 'x');  // to the last byte, without a 0 at its end
  EXPECT_LT(Refusal(GoodApi()).size(), 1100u);
  behaviour.create_fails = false;
  behaviour.create_error.clear();
  behaviour.spec_code = -4;
  EXPECT_THAT(Refusal(GoodApi()), HasSubstr("spec failed (-4): no reason given"));
}

struct BadSpec {
  std::string name, message;
  std::function<void(TroopEnvSpec*)> say;
};
void PrintTo(const BadSpec& bad, std::ostream* out) { *out << bad.name; }

class PluginSpecTest : public PluginTest, public testing::WithParamInterface<BadSpec> {};

TEST_P(PluginSpecTest, RejectsInvalidSpecNamingLimit) {
  behaviour.spec = GetParam().say;
  EXPECT_THAT(Refusal(GoodApi()), HasSubstr(GetParam().message));
}

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kGood[] = {0, 1}, kNan[] = {0, NAN}, kInfinite[] = {0, kInfinity};

void Continuous(TroopEnvSpec* spec, std::int32_t size, const float* low, const float* high) {
  spec->action_kind = TROOP_ENV_CONTINUOUS;
  spec->action_size = size;
  spec->action_low = low;
  spec->action_high = high;
}
void Shaped(TroopEnvSpec* spec, std::vector<std::int64_t> shape) {
  spec->observation_rank = std::int32_t(shape.size());
  std::ranges::copy(shape, spec->observation_shape);
}

INSTANTIATE_TEST_SUITE_P(
    Bad, PluginSpecTest,
    testing::Values(
        BadSpec{"Type", "observation_type is 9", [](auto* s) { s->observation_type = 9; }},
        BadSpec{"RankLow", "observation_rank is -1", [](auto* s) { s->observation_rank = -1; }},
        BadSpec{"RankHigh", "observation_rank is 5; give 0 to 4",
                [](auto* s) { s->observation_rank = 5; }},
        BadSpec{"DimZero", "observation_shape[1] is 0; give at least 1",
                [](auto* s) {
                  Shaped(s, {2, 0});
                }},
        BadSpec{"DimNegative", "observation_shape[0] is -8", [](auto* s) { Shaped(s, {-8}); }},
        BadSpec{"Large", "has more than 64 MiB",
                [](auto* s) {
                  Shaped(s, {16385, 1024});
                }},
        BadSpec{"Overflow", "has more than 64 MiB",
                [](auto* s) {
                  Shaped(s, {1LL << 62, 1LL << 62, 4});
                }},
        BadSpec{"Scale", "observation_scale is -1", [](auto* s) { s->observation_scale = -1; }},
        BadSpec{"ScaleNan", "observation_scale is nan",
                [](auto* s) { s->observation_scale = NAN; }},
        BadSpec{"ScaleHuge", "observation_scale is 1e+300",
                [](auto* s) { s->observation_scale = 1e300; }},
        BadSpec{"Kind", "action_kind is 0", [](auto* s) { s->action_kind = 0; }},
        BadSpec{"NoAction", "action_count is 0; give 1 to 1048576",
                [](auto* s) { s->action_count = 0; }},
        BadSpec{"ManyActions", "action_count is", [](auto* s) { s->action_count = 1LL << 40; }},
        BadSpec{"NoSize", "action_size is 0; give 1 to 4096",
                [](auto* s) { Continuous(s, 0, kGood, kGood); }},
        BadSpec{"HugeSize", "action_size is 2000000000",
                [](auto* s) { Continuous(s, 2000000000, kGood, kGood); }},
        BadSpec{"NoBounds", "action_low or action_high is NULL",
                [](auto* s) { Continuous(s, 2, kGood, nullptr); }},
        BadSpec{"NanBound", "action 1 is within [1, nan]",
                [](auto* s) { Continuous(s, 2, kGood, kNan); }},
        BadSpec{"InfiniteBound", "action 1 is within [1, inf]; give finite bounds",
                [](auto* s) { Continuous(s, 2, kGood, kInfinite); }},
        BadSpec{"LowAboveHigh", "action 0 is within [1, 0]",
                [](auto* s) { Continuous(s, 1, kGood + 1, kGood); }},
        BadSpec{"Limit", "max_episode_steps is -1", [](auto* s) { s->max_episode_steps = -1; }}),
    [](const auto& info) { return info.param.name; });

TEST_F(PluginTest, ConfigStepLimitOverridesPluginLimit) {
  for (const auto& [given, want] : std::vector<std::pair<int, int>>{{-1, 9}, {0, 0}, {4, 4}}) {
    EXPECT_EQ((*Make(GoodApi(), {.max_episode_steps = given}))->spec().max_episode_steps, want);
  }
  EXPECT_THAT(Make(GoodApi(), {.max_episode_steps = -2}).status().message(),
              HasSubstr("max_episode_steps is -2"));
}

// On some machines a load from an odd address is a crash.
TEST_F(PluginTest, PassesAlignedPointersForUnalignedBuffers) {
  const TroopEnvApi api = GoodApi();
  const auto env = Make(api);
  alignas(8) std::byte action[16] = {}, observation[16] = {};
  for (const std::size_t shift : {0, 1, 2, 3}) {
    (*env)->Reset(1, std::span(observation).subspan(shift, 8));
    (*env)->Step(std::span(action).subspan(shift, 4), std::span(observation).subspan(shift, 8));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(behaviour.action) % 4, 0u);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(behaviour.observation) % 4, 0u);
    EXPECT_EQ(observation[shift], std::byte{2});
    EXPECT_EQ(observation[shift + 7], std::byte{2});
  }
}

using PluginDeathTest = PluginTest;
TEST_F(PluginDeathTest, AbortsOnStepWithoutEpisode) {
  const TroopEnvApi api = GoodApi();
  const auto env = MakePluginEnvironment(&api, "test.so", "One-v0", {});
  std::byte action[4] = {}, observation[8] = {};
  EXPECT_DEATH((*env)->Step(action, observation), "no episode is under way");
  (*env)->Reset(1, observation);
  action[0] = std::byte{3};
  EXPECT_DEATH((*env)->Step(action, observation), "action 3 is outside");
}

TEST(PluginFileTest, RejectsInvalidPluginNamingPath) {
  const std::string folder = testing::TempDir() + "troop_plugins";
  fs::create_directories(folder);
  const std::string text = folder + "/text.so";
  std::ofstream(text) << "hello";
  const auto refusal = [](const std::string& path) {
    const Status status = MakeEnvironment("Walk-v0", {.plugin = path}).status();
    EXPECT_THAT(status.message(), HasSubstr("plug-in " + path + ": "));
    return status;
  };
  EXPECT_EQ(refusal(folder + "/nothing.so").code(), Code::kNotFound);
  EXPECT_EQ(refusal("nothing.so").code(), Code::kNotFound);
  EXPECT_THAT(refusal("a/../nothing.so").message(),
              HasSubstr("no such file: " + fs::current_path().string() + "/nothing.so"));
  EXPECT_EQ(refusal(folder).code(), Code::kNotFound);
  EXPECT_EQ(refusal(text).code(), Code::kInvalidArgument);
  EXPECT_THAT(refusal(Plugin("nothing")).message(), HasSubstr("does not export troop_env_api"));
  EXPECT_THAT(MakeVectorEnv("Walk-v0", {.plugin = text, .isolation = Isolation::kNone}, 2,
                            [](int) { return 1; })
                  .status()
                  .message(),
              HasSubstr("text.so"));
  fs::remove_all(folder);
}

EnvOptions Walk(const std::string& fault, std::vector<EnvOption> more = {}) {
  EnvOptions options{.plugin = Plugin("walk")};
  options.isolation = Isolation::kNone;
  options.options = std::move(more);
  if (!fault.empty()) options.options.push_back({"fault", fault});
  return options;
}

TEST(CppPluginTest, ChecksOptionNamesAndTypesAndNamesThemInErrors) {
  EXPECT_TRUE(MakeEnvironment("Walk-v0", Walk("", {{"wind", std::int64_t{0}}})).ok());
  const auto refusal = [](std::vector<EnvOption> options) {
    return MakeEnvironment("Walk-v0", Walk("", std::move(options))).status().message();
  };
  EXPECT_THAT(refusal({{"lenght", std::int64_t{3}}}),
              HasSubstr("unknown option lenght; known: fault = \"\", at_step = 5, length = "
                        "12, wind = 0.2, render = true"));
  EXPECT_THAT(refusal({{"length", 3.5}}), HasSubstr("option length must be an integer"));
  EXPECT_THAT(refusal({{"wind", true}}), HasSubstr("option wind must be a number"));
  EXPECT_THAT(refusal({{"render", std::int64_t{1}}}), HasSubstr("option render must be true or"));
  EXPECT_THAT(refusal({{"fault", 1.5}}), HasSubstr("option fault must be a string"));
  EnvOptions grey = Walk("", {{"length", std::int64_t{1}}});
  EXPECT_THAT(MakeEnvironment("Grey-v0", grey).status().message(), HasSubstr("there are none"));
  EXPECT_THAT(MakeEnvironment("Walk-v0", Walk("create")).status().message(),
              HasSubstr("Walk-v0: planted: no licence"));
}

TEST(CppPluginTest, PassesBytesScaleAndContinuousActionsToHost) {
  const auto env = MakeEnvironment("Grey-v0", Walk(""));
  ASSERT_TRUE(env.ok()) << env.status().ToString();
  const EnvSpec want{
      .id = "Grey-v0",
      .observation = {DType::kU8, {4, 5, 1}},
      .observation_scale = float(1 / 255.0),
      .action = {.kind = ActionSpec::Kind::kContinuous, .low = {-2, 0}, .high = {2, 1}}};
  EXPECT_EQ((*env)->spec(), want);
  std::vector<std::byte> observation(20);
  (*env)->Reset(254, observation);
  EXPECT_EQ(observation, std::vector(20, std::byte{254}));
  const std::vector<float> action = {1.5, 0.25};
  StepResult step = (*env)->Step(std::as_bytes(std::span(action)), observation);
  EXPECT_EQ(step.reward, 15.25f);
  EXPECT_FALSE(step.truncated);
  step = (*env)->Step(std::as_bytes(std::span(action)), observation);
  EXPECT_TRUE(step.truncated) << "its own clock";
  EXPECT_FALSE(step.terminated);
}

// The program and a worker process agree on actions of several discrete components.
TEST(CppPluginTest, SeveralDiscreteComponentsReachHost) {
  setenv("TROOP_PROGRAM", TROOP_ENV_WORKER, 1);
  for (const Isolation isolation : {Isolation::kNone, Isolation::kProcess}) {
    EnvOptions options = Walk("");
    options.isolation = isolation;
    const auto spec = FindEnvSpec("Dials-v0", options);
    ASSERT_TRUE(spec.ok()) << spec.status().ToString();
    EXPECT_EQ(DescribeActions(spec->action),
              "actions f32[3] from [0, 0, 0] to [4, 6, 199] in integers");
  }
}

TEST(CppPluginTest, ListsIdsOfLibrary) {
  EXPECT_THAT(*PluginEnvironmentIds(Plugin("walk")),
              testing::ElementsAre("Walk-v0", "Grey-v0", "Corner-v0", "Dials-v0"));
}

// The promise of docs/guide/environments.md.
TEST(CppPluginTest, ExampleHasFewerThanThirtyLines) {
  std::ifstream file(TROOP_SOURCE_DIR "/examples/cpp_environment/inventory.cc");
  ASSERT_TRUE(file.good());
  int lines = 0;
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find_first_not_of(' ');
    lines += first != std::string::npos && !line.substr(first).starts_with("//");
  }
  EXPECT_LT(lines, 30);
  EXPECT_GT(lines, 15);
}

// --- failures in a vector ---

struct Player {
  explicit Player(const EnvOptions& options, int size = 4)
      : seeds(size, 0), action(DType::kI32, {size}) {
    auto made = MakeVectorEnv("Walk-v0", options, size,
                              [this](int i) { return std::uint64_t(100 * i) + ++seeds[i]; });
    TROOP_CHECK(made.ok(), "{}", made.status().ToString());
    env = std::move(*made);
    std::ranges::fill(action.as<std::int32_t>(), 2);
  }
  const StepBatch& Step() {
    env->Submit(action);
    return *env->Poll();
  }
  float Observed(const StepBatch& batch, int i, int element) const {
    return batch.observation.as<float>()[std::size_t(3 * i + element)];
  }
  std::vector<std::uint64_t> seeds;  // the last one given, less 100 * index
  Tensor action;
  std::unique_ptr<VectorEnv> env;
};

// Steps 5, 10, … fail; wind holds the walkers in the corridor.
TEST(PluginFaultTest, FailedStepEndsItsEpisodeWithReason) {
  for (const char* fault : {"throws", "throws_int"}) {
    Player player(Walk(fault, {{"length", std::int64_t{1000}}}));
    player.env->SubmitReset();
    EXPECT_EQ(player.env->Poll()->fault.as<std::uint8_t>()[3], 0);
    for (int t = 1; t <= 12; ++t) {
      const StepBatch& batch = player.Step();
      const bool fails = t % 5 == 0;
      ASSERT_EQ(player.env->faults().size(), fails ? 4u : 0u) << t;
      for (int i = 0; i < 4; ++i) {
        ASSERT_EQ(batch.fault.as<std::uint8_t>()[i], fails);
        ASSERT_EQ(player.Observed(batch, i, 2), t % 5) << "a new episode has begun";
        if (!fails) continue;
        EXPECT_EQ(batch.reward.as<float>()[i], 0);
        EXPECT_EQ(batch.terminated.as<std::uint8_t>()[i], 0);
        const EnvFault& told = player.env->faults()[i];
        EXPECT_EQ(told.index, i);
        EXPECT_EQ(told.seed, std::uint64_t(100 * i + t / 5));
        EXPECT_EQ(told.step, 5);
        EXPECT_THAT(told.what,
                    HasSubstr(std::string(fault) == "throws" ? "step failed (-1): planted: step 5"
                                                             : "it threw something"));
      }
    }
    EXPECT_EQ(player.seeds[0], 3u);
  }
}

// Every third reset of an environment fails.
TEST(PluginFaultTest, ReportsFailedResetOneStepAfterEpisodeEnd) {
  Player player(Walk("reset_throws", {{"length", std::int64_t{2}}, {"wind", 0.0}}), 1);
  player.env->SubmitReset();
  player.env->Poll();
  int ends = 0, faults = 0;
  bool down = false;
  for (int t = 0; t < 60; ++t) {
    const StepBatch& batch = player.Step();
    const bool fault = batch.fault.as<std::uint8_t>()[0] != 0;
    ASSERT_EQ(fault, down) << t;
    faults += fault;
    if (fault) {
      const EnvFault& told = player.env->faults()[0];
      EXPECT_EQ(told.step, 0);
      EXPECT_EQ(told.seed, player.seeds[0] - 1);
      EXPECT_THAT(told.what, HasSubstr("reset failed (-1): planted: reset"));
    }
    const bool ended = batch.terminated.as<std::uint8_t>()[0] != 0;
    ends += ended;
    if (ended) {
      EXPECT_EQ(batch.reward.as<float>()[0], 1);
    }
    down = ended && player.seeds[0] % 3 == 0;
    if (down) {
      EXPECT_EQ(player.Observed(batch, 0, 0), 0) << "nothing of a start that failed";
    }
  }
  EXPECT_GT(ends, 10);
  EXPECT_GT(faults, 5);
}

TEST(PluginFaultTest, ReportsFailedRestartAndRetries) {
  Player player(Walk("reset_throws"), 2);
  player.env->SubmitReset();
  player.env->Poll();
  const int second = 1;
  for (const bool fails : {false, true}) {
    player.env->SubmitRestart({&second, 1});
    const StepBatch* batch = player.env->Poll();
    EXPECT_EQ(batch->fault.as<std::uint8_t>()[1], fails);
    EXPECT_EQ(batch->fault.as<std::uint8_t>()[0], 0);
    ASSERT_EQ(player.env->faults().size(), fails ? 1u : 0u);
  }
  EXPECT_EQ(player.env->faults()[0].seed, 103u);
  player.env->SubmitRestart({&second, 1});
  const StepBatch* batch = player.env->Poll();
  EXPECT_EQ(batch->fault.as<std::uint8_t>()[1], 0);
  EXPECT_TRUE(player.env->faults().empty());
  EXPECT_EQ(player.Observed(player.Step(), 1, 2), 1);
}

}  // namespace
}  // namespace troop
