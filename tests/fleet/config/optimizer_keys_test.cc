// The keys of the learning-rate schedule.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "fleet/config/config.h"

namespace troop {
namespace {

using ::testing::HasSubstr;

// Combinations that would be ignored, or have no meaning, and a part of their error.
TEST(OptimizerKeysTest, ImpossibleSchedulesAreRejected) {
  const struct {
    std::vector<std::string> keys;
    std::string error;
  } cases[] = {
      {{"optimizer.lr_schedule=step"},
       "optimizer.lr_milestones: the step schedule needs at least one"},
      {{"optimizer.lr_milestones=[0.5]"},
       "optimizer.lr_milestones=[0.5]: has no effect with optimizer.lr_schedule = \"linear\""},
      {{"optimizer.lr_milestone_factor=0.5"},
       "optimizer.lr_milestone_factor=0.5: has no effect with optimizer.lr_schedule = \"linear\""},
      {{"optimizer.lr_schedule=step", "optimizer.lr_milestones=[0.5]",
        "optimizer.final_lr_fraction=0"},
       "optimizer.final_lr_fraction=0: has no effect with optimizer.lr_schedule = \"step\""},
      {{"optimizer.lr_schedule=cosine"}, "the learning rate would stay constant"},
      {{"optimizer.lr_schedule=step", "optimizer.lr_milestones=[0.5, 0.5]"},
       "0.5 is not a fraction of the run below 1 and after 0.5 (the milestone before it)"},
      {{"optimizer.lr_schedule=step", "optimizer.lr_milestones=[0.1]",
        "optimizer.warmup_ratio=0.2"},
       "0.1 is not a fraction of the run below 1 and after 0.2 (the end of the warm-up)"},
      {{"optimizer.lr_schedule=step", "optimizer.lr_milestones=[1]"},
       "1 is not a fraction of the run below 1"},
  };
  for (const auto& [keys, error] : cases) {
    const auto read = ParseConfig("", "run.toml", keys);
    ASSERT_FALSE(read.ok()) << error;
    EXPECT_THAT(read.status().message(), HasSubstr(error));
  }
}

TEST(OptimizerKeysTest, SchedulesAreRead) {
  const std::vector<std::string> stepped{"optimizer.lr_schedule=step", "optimizer.warmup_ratio=0.1",
                                         "optimizer.lr_milestones=[0.1, 0.75]"};
  const auto step = ParseConfig("", "run.toml", stepped);
  ASSERT_TRUE(step.ok()) << step.status().message();
  EXPECT_EQ(step->optimizer.lr_milestones, (std::vector<double>{0.1, 0.75}));
  const std::vector<std::string> curved{"optimizer.lr_schedule=cosine",
                                        "optimizer.final_lr_fraction=0"};
  const auto cosine = ParseConfig("", "run.toml", curved);
  ASSERT_TRUE(cosine.ok()) << cosine.status().message();
  EXPECT_EQ(cosine->optimizer.lr_schedule, LrSchedule::kCosine);
}

}  // namespace
}  // namespace troop
