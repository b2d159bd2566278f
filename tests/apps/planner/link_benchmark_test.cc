#include "apps/planner/link_benchmark.h"

#include <gtest/gtest.h>

namespace troop {
namespace {

TEST(LinkSpeedTest, FitsLineThroughMedians) {
  const LinkSpeed link = LinkOf({1e-3, 9e-3, 2e-3}, {1, 4e-3, 3e-3}, 2e6);
  EXPECT_DOUBLE_EQ(link.latency_s, 2e-3);
  EXPECT_DOUBLE_EQ(link.s_per_byte, 1e-9);
}

// Small all-reduces that waited for a processor took longer than large ones: `troop plan` measured
// "1000000000.00 GB/s".
TEST(LinkSpeedTest, StaysFiniteOnBusyProcessors) {
  const LinkSpeed link = LinkOf({9e-3, 9e-3, 1e-3}, {4e-3, 3e-3, 2e-3}, 1e6);
  EXPECT_DOUBLE_EQ(link.latency_s, 1e-3);
  EXPECT_DOUBLE_EQ(link.s_per_byte, 1e-9);
  const LinkSpeed slowest = LinkOf({9e-3}, {2e-3}, 1e6);
  EXPECT_DOUBLE_EQ(slowest.latency_s, 0);
  EXPECT_DOUBLE_EQ(slowest.s_per_byte, 2e-9);
}

}  // namespace
}  // namespace troop
