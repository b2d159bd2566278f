#include "fleet/launcher/health_file.h"

#include <gtest/gtest.h>

namespace troop {
namespace {

constexpr char kWell[] = R"({"clock_s": 100.5, "desired": 3, "running": 2})";

TEST(HealthTest, HealthExpiresAfterTenSeconds) {
  EXPECT_TRUE(CheckHealth(kWell, false, Time(Seconds(100.5))).ok());
  EXPECT_TRUE(CheckHealth(kWell, false, Time(Seconds(110.4))).ok());
  const Status old = CheckHealth(kWell, false, Time(Seconds(110.6)));
  EXPECT_EQ(old.code(), Code::kUnavailable);
  EXPECT_NE(old.message().find("hangs or has exited"), std::string::npos) << old.message();
}

TEST(HealthTest, HealthyIsNotNecessarilyReady) {
  const Status ready = CheckHealth(kWell, true, Time(Seconds(101)));
  EXPECT_EQ(ready.code(), Code::kUnavailable);
  EXPECT_EQ(ready.message(), "2 of its 3 roles have joined");
  EXPECT_TRUE(
      CheckHealth(R"({"clock_s": 1, "desired": 3, "running": 3})", true, Time(Seconds(1))).ok());
}

TEST(HealthTest, MalformedHealthFileIsUnhealthy) {
  for (const char* const text :
       {"", "{", "{}", "[]", R"({"clock_s": "1", "desired": 1, "running": 1})",
        R"({"clock_s": null, "desired": 1, "running": 1})", R"({"clock_s": 1, "desired": 1})"}) {
    EXPECT_FALSE(CheckHealth(text, false, Time(Seconds(1))).ok()) << text;
  }
}

}  // namespace
}  // namespace troop
