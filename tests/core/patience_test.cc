#include "tests/testing/patience.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace troop {
namespace {

TEST(PatienceTest, DoesNotEndBeforeItsSeconds) {
  const auto begin = std::chrono::steady_clock::now();
  Patience patience(0.2);
  while (!patience.Ended()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(waited.count(), 0.2);
}

TEST(PatienceTest, EndsWithinTenTimesItsSeconds) {
  Patience patience(0.01);
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  EXPECT_TRUE(patience.Ended());
}

TEST(PatienceTest, MachineFactorStaysBetweenOneAndTen) {
  for (int i = 0; i < 3; ++i) {
    const double slowness = Slowness();
    EXPECT_GE(slowness, 1);
    EXPECT_LE(slowness, 10);
  }
}

}  // namespace
}  // namespace troop
