#include "apps/monitor/coordinator_client.h"

#include <gtest/gtest.h>

#include <set>

namespace troop {
namespace {

// Regression: the name was the process id, which is 1 in every container, so of two simultaneous
// clients one was rejected. False alarms: 28 pairs of 24 random bits, 1 run in 600,000.
TEST(LiveRunTest, ClientsOfEqualProcessIdHaveDistinctNames) {
  std::set<std::int32_t> names;
  for (int i = 0; i < 8; ++i) names.insert(GuestOrigin(Role::kLearner).index);
  EXPECT_EQ(names.size(), 8u);
}

// "It was killed" was said of a run whose disk was full.
TEST(LiveRunTest, NamesFullDiskWhenResultIsMissing) {
  EXPECT_EQ(EndWithoutResult(std::uint64_t{1} << 40), "it was killed");
  EXPECT_NE(EndWithoutResult(12 << 10).find("the disk is full (12 KiB free)"), std::string::npos);
}

}  // namespace
}  // namespace troop
