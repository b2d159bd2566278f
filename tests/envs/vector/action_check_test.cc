#include "envs/vector/action_check.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>

namespace troop {
namespace {

TEST(ActionCheckTest, DiscreteActionsAreCopied) {
  const std::array<std::int64_t, 3> wide{0, 2, 1};
  const std::array<std::int32_t, 3> narrow{2, 0, 0};
  std::array<std::int32_t, 3> to{};
  EXPECT_TRUE(CopyDiscreteActions(wide, 3, to).ok());
  EXPECT_EQ(to, (std::array<std::int32_t, 3>{0, 2, 1}));
  EXPECT_TRUE(CopyDiscreteActions(narrow, 3, to).ok());
  EXPECT_EQ(to, narrow);
}

TEST(ActionCheckTest, DiscreteActionOutsideRangeIsNamed) {
  std::array<std::int32_t, 3> to{};
  // 2^32 becomes 0 in 32 bits.
  for (const std::int64_t wrong : {std::int64_t{3}, std::int64_t{-1}, std::int64_t{1} << 32}) {
    const std::array<std::int64_t, 3> from{0, wrong, 1};
    const Status status = CopyDiscreteActions(from, 3, to);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_EQ(status.message(), fmt::format("action {} of environment 1 is outside 0 to 2", wrong));
  }
}

TEST(ActionCheckTest, ContinuousActionsMustBeWithinTheirOwnBounds) {
  const ActionSpec spec{.kind = ActionSpec::Kind::kContinuous, .low = {-1, 0}, .high = {1, 5}};
  std::array<float, 4> to{};
  EXPECT_TRUE(CopyContinuousActions(std::array<float, 4>{-1, 5, 1, 0}, spec, to).ok());
  EXPECT_EQ(to, (std::array<float, 4>{-1, 5, 1, 0}));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const float wrong : {-0.5f, 5.5f, nan}) {
    const Status status = CopyContinuousActions(std::array<float, 4>{0, 1, 0, wrong}, spec, to);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_TRUE(status.message().starts_with("action[1] of environment 1 is ")) << status.message();
  }
}

}  // namespace
}  // namespace troop
