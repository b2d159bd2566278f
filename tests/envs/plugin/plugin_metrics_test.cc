// Tests of the metrics of a plug-in's table.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "envs/plugin/plugin_environment.h"

namespace troop {
namespace {

using testing::HasSubstr;

constexpr const char* kIds[] = {"One-v0", nullptr};
int handle;  // what all handles point to

// A table without metrics, of an environment in which nothing happens.
TroopEnvApi QuietApi() {
  TroopEnvApi api{.struct_size = sizeof(TroopEnvApi),
                  .abi_major = TROOP_ENV_ABI_MAJOR,
                  .abi_minor = TROOP_ENV_ABI_MINOR,
                  .ids = kIds};
  api.create = [](const char*, const TroopEnvOption*, std::size_t, char*, std::size_t) {
    return reinterpret_cast<TroopEnv*>(&handle);
  };
  api.destroy = [](TroopEnv*) {};
  api.spec = [](TroopEnv*, TroopEnvSpec* spec) {
    spec->observation_type = TROOP_ENV_F32;
    spec->observation_rank = 1;
    spec->observation_shape[0] = 2;
    spec->action_kind = TROOP_ENV_DISCRETE;
    spec->action_count = 3;
    return std::int32_t{0};
  };
  api.reset = [](TroopEnv*, std::uint64_t, void* observation) {
    std::memset(observation, 0, 8);
    return std::int32_t{0};
  };
  api.step = [](TroopEnv*, const void*, void* observation, float*, std::int32_t*, std::int32_t*) {
    std::memset(observation, 0, 8);
    return std::int32_t{0};
  };
  return api;
}

Result<std::unique_ptr<Environment>> Make(const TroopEnvApi& api, const EnvOptions& options) {
  return MakePluginEnvironment(&api, "test.so", "One-v0", options);
}
std::string Refusal(const TroopEnvApi& api, const EnvOptions& options) {
  return Make(api, options).status().message();
}

// The member came with version 1.2: older tables end before it.
TEST(PluginMetricsTest, CollectsMetricsOnlyFromTablesThatHaveThem) {
  TroopEnvApi api = QuietApi();
  EXPECT_THAT(Refusal(api, {.metrics = true}), HasSubstr("its table has no `metrics`"));
  static int calls;
  calls = 0;
  api.metrics = [](TroopEnv*, void (*emit)(void*, const char*, double), void* sink) {
    ++calls;
    emit(sink, "calls", calls);
    emit(sink, nullptr, 1);
  };
  TroopEnvApi older = api;
  older.abi_minor = 1;
  older.struct_size = offsetof(TroopEnvApi, metrics);
  EXPECT_THAT(Refusal(older, {.metrics = true}), HasSubstr("its table has no `metrics`"));
  for (const bool collects : {false, true}) {
    const auto env = Make(collects ? api : older, {.metrics = collects});
    ASSERT_TRUE(env.ok()) << env.status().ToString();
    std::vector<float> observation(2);
    const std::int32_t action = 1;
    (*env)->Reset(1, std::as_writable_bytes(std::span(observation)));
    for (int i = 0; i < 3; ++i) {
      (*env)->Step(std::as_bytes(std::span(&action, 1)),
                   std::as_writable_bytes(std::span(observation)));
    }
    EnvMetrics taken;
    (*env)->TakeMetrics(&taken);
    ASSERT_EQ(taken.summaries().size(), collects ? 1u : 0u);
    if (!collects) continue;
    const MetricSummary want{.count = 3, .mean = 2, .min = 1, .max = 3};
    EXPECT_EQ(taken.summaries().find("calls")->second, want);
    EXPECT_THAT(taken.problem(), HasSubstr("the metric name"));
    EnvMetrics again;
    (*env)->TakeMetrics(&again);
    EXPECT_TRUE(again.summaries().empty());
  }
}

}  // namespace
}  // namespace troop
