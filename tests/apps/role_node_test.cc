#include "apps/role_node.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troop {
namespace {

using testing::HasSubstr;

EnvSpec Spec(std::int64_t actions, const TensorSpec& observation) {
  return {.id = "Mine-v0",
          .observation = observation,
          .action = {.kind = ActionSpec::Kind::kDiscrete, .count = actions}};
}

TEST(SameEnvironmentTest, AnotherShapeOrOtherActionsAreRefusedAndBothAreNamed) {
  const EnvSpec here = Spec(4, {DType::kF32, {8}}), there = Spec(6, {DType::kF32, {8}});
  EXPECT_TRUE(CheckSameEnv(here, here, "other").ok());
  const Status actions = CheckSameEnv(here, there, "other");
  EXPECT_EQ(actions.code(), Code::kInvalidArgument);  // exit code 2: it is not started again
  for (const char* part : {"Mine-v0", "on other", "4 actions", "6 actions"}) {
    EXPECT_THAT(actions.message(), HasSubstr(part));
  }
  const Status shape = CheckSameEnv(here, Spec(4, {DType::kU8, {84, 84}}), "other");
  EXPECT_THAT(shape.message(), HasSubstr("f32[8]"));
  EXPECT_THAT(shape.message(), HasSubstr("u8[84, 84]"));
  // Limits of time and the like are the run's business, not the network's.
  EnvSpec longer = here;
  longer.max_episode_steps = 7;
  EXPECT_TRUE(CheckSameEnv(here, longer, "other").ok());
}

// An environment with another source took part unnoticed, where its shape was the same.
TEST(SameEnvironmentTest, OtherCodeIsRefusedAndBothAreNamed) {
  EnvSpec here = Spec(4, {DType::kF32, {8}}), there = here;
  here.code = "a plug-in of 10 bytes, checksum 00000001";
  EXPECT_TRUE(CheckSameEnv(here, there, "other").ok());  // unknown
  there.code = here.code;
  EXPECT_TRUE(CheckSameEnv(here, there, "other").ok());
  there.code = "a plug-in of 10 bytes, checksum 00000002";
  const Status other = CheckSameEnv(here, there, "other");
  EXPECT_EQ(other.code(), Code::kInvalidArgument);  // exit code 2: it is not started again
  EXPECT_THAT(other.message(), HasSubstr("on other: the environment Mine-v0 is made of " +
                                         here.code + " here, that of the run of " + there.code));
}

TEST(SameEnvironmentTest, ContinuousAndDiscreteActionsAreNotTheSame) {
  const EnvSpec here = Spec(2, {DType::kF32, {8}});
  EnvSpec there = here;
  there.action = {.kind = ActionSpec::Kind::kContinuous, .low = {-1, -1}, .high = {1, 1}};
  EXPECT_THAT(CheckSameEnv(here, there, "other").message(), HasSubstr("actions of 2 numbers"));
}

}  // namespace
}  // namespace troop
