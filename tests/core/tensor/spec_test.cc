#include "core/tensor/spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace troop {
namespace {

using testing::HasSubstr;

EnvSpec Discrete() {
  return {.id = "Game", .observation = {DType::kF32, {4}}, .action = {.count = 2}};
}
EnvSpec Continuous(std::vector<float> low, std::vector<float> high) {
  EnvSpec spec = Discrete();
  spec.action = {.kind = ActionSpec::Kind::kContinuous, .low = low, .high = high};
  return spec;
}

TEST(EnvSpecTest, AcceptsValidSpecs) {
  EXPECT_TRUE(CheckEnvSpec(Discrete()).ok());
  EXPECT_TRUE(CheckEnvSpec(Continuous({-1, 0}, {1, 2})).ok());
}

TEST(EnvSpecTest, RejectsInvalidSpecsNamingLimit) {
  const float inf = std::numeric_limits<float>::infinity();
  struct Case {
    EnvSpec spec;
    const char* says;
  };
  std::vector<Case> cases = {
      {Continuous({}, {}), "an action has 0 lower"},
      {Continuous({0, 0}, {1}), "2 lower and 1 upper bounds"},
      {Continuous({0}, {inf}), "action[0] is bounded by [0, inf]"},
      {Continuous({0, 2}, {1, 1}), "action[1] is bounded by [2, 1]"},
      {Continuous({std::nanf("")}, {1}), "action[0]"},
      {Continuous(std::vector<float>(4097, 0), std::vector<float>(4097, 1)), "1 to 4096"},
  };
  for (const std::int64_t count : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{1048577}}) {
    cases.push_back({Discrete(), "1 to 1048576"});
    cases.back().spec.action.count = count;
  }
  for (const float scale : {0.0f, -1.0f, inf, std::nanf("")}) {
    cases.push_back({Discrete(), "observation_scale"});
    cases.back().spec.observation_scale = scale;
  }
  cases.push_back({Discrete(), "67108864 are supported"});
  cases.back().spec.observation = {DType::kU8, {1024, 1024, 65}};
  cases.push_back({Discrete(), "has 5 dimensions; up to 4"});  // a batch of stacks has two more
  cases.back().spec.observation = {DType::kU8, {1, 2, 3, 4, 5}};
  cases.push_back({Discrete(), "max_episode_steps is -1"});
  cases.back().spec.max_episode_steps = -1;
  for (const Case& c : cases) {
    const Status status = CheckEnvSpec(c.spec);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << c.says;
    EXPECT_THAT(status.message(), HasSubstr(c.says));
  }
}

}  // namespace
}  // namespace troop
