#include "apps/experiments/network_sandbox.h"

#include <gtest/gtest.h>

namespace troop {
namespace {

TEST(ShapedLinksTest, ParsesRateWithUnit) {
  EXPECT_EQ(*ParseLinkRate("1gbit"), 1e9);
  EXPECT_EQ(*ParseLinkRate("2.5mbit"), 2.5e6);
  EXPECT_EQ(*ParseLinkRate("64kbit"), 64e3);
}

TEST(ShapedLinksTest, RejectsInvalidRateWithExample) {
  for (const char* const text : {"", "1", "gbit", "1 gbit", "1GB", "-1gbit", "nangbit", "63kbit",
                                 "101gbit", "infmbit", "1gbit; reboot"}) {
    const Result<double> rate = ParseLinkRate(text);
    ASSERT_FALSE(rate.ok()) << text;
    EXPECT_EQ(rate.status().code(), Code::kInvalidArgument);
    EXPECT_NE(rate.status().message().find("such as 1gbit"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace troop
