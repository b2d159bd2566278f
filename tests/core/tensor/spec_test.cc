#include "core/tensor/spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

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

// Actions of several discrete components.
EnvSpec Dials() {
  EnvSpec spec = Continuous({0, -1}, {3, 1});
  spec.action.integers = true;
  return spec;
}

TEST(EnvSpecTest, BoundsOfIntegersAreIntegers) {
  EXPECT_TRUE(CheckEnvSpec(Dials()).ok());
  EXPECT_EQ(Dials().action.choices(), 7);
  EXPECT_EQ(DescribeActions(Dials().action), "actions f32[2] from [0, -1] to [3, 1] in integers");
  EXPECT_EQ(DescribeActions(Discrete().action), "2 actions");
  const auto says = [](float low, float high) {
    EnvSpec spec = Dials();
    spec.action.low[1] = low, spec.action.high[1] = high;
    return CheckEnvSpec(spec).message();
  };
  EXPECT_THAT(says(0.5F, 1), HasSubstr("action[1] is bounded by 0.5; give an integer"));
  EXPECT_THAT(says(0, 3e7F), HasSubstr("an integer of at most 16777216"));
  EXPECT_THAT(says(0, 2e6F), HasSubstr("2000005 values together; 1 to 1048576"));
}

TEST(EnvSpecTest, ComponentsAreCheckedAgainstBounds) {
  const ActionSpec spec = Dials().action;
  const auto says = [&](std::vector<float> actions) {
    return CheckComponents(spec, actions).message();
  };
  EXPECT_EQ(says({0, -1, 3, 1}), "");
  EXPECT_THAT(says({0, -1, 4, 1}), HasSubstr("action[0] is 4, must be within [0, 3]"));
  EXPECT_THAT(says({0, 0.5F}), HasSubstr("action[1] is 0.5, must be an integer"));
  EXPECT_THAT(says({std::nanf(""), 0}), HasSubstr("action[0] is nan"));
  EXPECT_TRUE(CheckComponents(Continuous({0}, {1}).action, std::vector<float>{0.5F}).ok());
}

// An image, an action mask and numbers.
EnvSpec Structured() {
  EnvSpec spec = Discrete();
  spec.observation.shape = {12 + 2 + 3};
  spec.parts = {{.name = "image", .shape = {2, 2, 3}, .scale = 0.5F},
                {.name = "action_mask", .shape = {2}, .action_mask = true},
                {.name = "goal", .shape = {3}}};
  return spec;
}

TEST(ObservationPartsTest, RejectsPartsThatDoNotFit) {
  EXPECT_TRUE(CheckEnvSpec(Structured()).ok());
  struct Case {
    void (*change)(EnvSpec*);
    const char* says;
  };
  const Case cases[] = {
      {[](EnvSpec* s) { s->parts[0].name = ""; }, "named \"\"; give unique names"},
      {[](EnvSpec* s) { s->parts[0].name = "goal"; }, "named \"goal\"; give unique names"},
      {[](EnvSpec* s) { s->parts[0].name.assign(65, 'x'); }, "give unique names of 1 to 64"},
      {[](EnvSpec* s) { s->parts[2].shape = {4}; }, "its parts have 18 elements; give [18]"},
      {[](EnvSpec* s) {
         s->parts[2].shape = {1, 1, 1, 1, 3};
       },
       "give at most 4 dimensions"},
      {[](EnvSpec* s) { s->parts[0].scale = 0; }, "has the scale 0"},
      {[](EnvSpec* s) { s->parts[0].scale = std::nanf(""); }, "has the scale nan"},
      {[](EnvSpec* s) { s->action.count = 3; }, "\"action_mask\" has 2 elements"},
      {[](EnvSpec* s) {
         s->action = Continuous({0, 0}, {1, 1}).action;
       },
       "per discrete action"},
      {[](EnvSpec* s) { s->observation.dtype = DType::kI32; }, "give u8 or f32"},
      {[](EnvSpec* s) { s->observation_scale = 0.5F; }, "and the scale of each part"},
      {[](EnvSpec* s) {
         s->observation.shape = {17, 1};
       },
       "give [17]"},
      {[](EnvSpec* s) { s->parts.assign(65, s->parts[2]); }, "65 parts; up to 64"},
      {[](EnvSpec* s) {
         s->parts = {s->parts[1]};
         s->observation.shape = {2};
       },
       "no part but the action mask"},
      {[](EnvSpec* s) {
         s->parts[2] = {.name = "second", .shape = {2}, .action_mask = true};
         s->observation.shape = {16};
       },
       "give one mask"},
  };
  for (const Case& c : cases) {
    EnvSpec spec = Structured();
    c.change(&spec);
    EXPECT_THAT(CheckEnvSpec(spec).message(), HasSubstr(c.says));
  }
}

TEST(ObservationPartsTest, DescriptionListsParts) {
  EXPECT_EQ(DescribeObservation(Structured()),
            "f32[17]: image [2, 2, 3] scaled by 0.5, action_mask [2] (action mask), goal [3]");
  EXPECT_EQ(DescribeObservation(Discrete()), "f32[4]");
}

// Both element types, also at an address that is not aligned.
TEST(ActionMaskTest, SelectsAllowedActions) {
  const auto bytes = [](const auto& values) {
    std::vector<std::byte> bytes(1);
    const auto all = std::as_bytes(std::span(values));
    bytes.insert(bytes.end(), all.begin(), all.end());
    return bytes;
  };
  for (const DType dtype : {DType::kF32, DType::kU8}) {
    EnvSpec spec = Structured();
    spec.observation.dtype = dtype;
    const auto frame = [&](float first, float second) {
      std::vector<float> floats(17, 7);
      floats[12] = first, floats[13] = second;
      if (dtype == DType::kF32) return bytes(floats);
      return bytes(std::vector<std::uint8_t>(floats.begin(), floats.end()));
    };
    struct Case {
      float first, second;
      std::vector<std::int32_t> allowed;
      const char* says;
    };
    const Case cases[] = {{1, 1, {0, 1}, ""},
                          {0, 1, {1}, ""},
                          {1, 0, {0}, ""},
                          {0, 0, {0, 1}, "allows none of the 2 actions"},
                          {0, 2, {1}, "element 1 of the action mask is 2; give 0 or 1"}};
    for (const Case& c : cases) {
      const std::vector<std::byte> all = frame(c.first, c.second);
      const auto seen = std::span(all).subspan(1);
      EXPECT_EQ(AllowedActions(spec, seen), c.allowed);
      for (const std::int32_t action : {0, 1}) {
        EXPECT_EQ(AllowsAction(spec, seen, action),
                  std::ranges::find(c.allowed, action) != c.allowed.end());
      }
      EXPECT_THAT(CheckActionMask(spec, seen).message(), HasSubstr(c.says));
      EXPECT_EQ(CheckActionMask(spec, seen).ok(), *c.says == 0);
    }
  }
  const std::vector<float> plain(4);
  EXPECT_EQ(AllowedActions(Discrete(), std::as_bytes(std::span(plain))),
            (std::vector<std::int32_t>{0, 1}));
  EXPECT_FALSE(ActionMaskOffset(Discrete()));
  EXPECT_EQ(ActionMaskOffset(Structured()), 12);
}

}  // namespace
}  // namespace troop
