#include "fleet/run/task_info.h"

#include <gtest/gtest.h>

namespace troop {
namespace {

TEST(ReturnTextTest, OmitsSpreadOfOneEpisodeAndShortensLargeReturns) {
  EvaluationReport report{
      .episodes = 100, .return_mean = 9.3, .return_std = 0.781, .return_min = 8, .return_max = 11};
  EXPECT_EQ(ReturnText(report), "9.30 ± 0.78 over 100 episodes (min 8.00, max 11.00)");
  report.episodes = 1;
  EXPECT_EQ(ReturnText(report), "9.30 over 1 episode");
  report = {.episodes = 2,
            .return_mean = -1.5e36,
            .return_std = 2.5e35,
            .return_min = -2e36,
            .return_max = 9999999};
  EXPECT_EQ(ReturnText(report), "-1.5e+36 ± 2.5e+35 over 2 episodes (min -2e+36, max 9999999.00)");
}

}  // namespace
}  // namespace troop
