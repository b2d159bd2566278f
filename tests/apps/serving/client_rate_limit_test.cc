#include "apps/serving/client_rate_limit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace troop {
namespace {

TEST(ClientRateLimitTest, AdmitsBurstOfOneSecondThenTheRate) {
  ClientRateLimit limit(4);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(limit.Admit("a", Time{}), Duration(0)) << i;
  EXPECT_EQ(limit.Admit("a", Time{}), Milliseconds(250));
  EXPECT_EQ(limit.Admit("b", Time{}), Duration(0));  // clients do not share a bucket
  EXPECT_EQ(limit.Admit("a", Time(Milliseconds(125))), Milliseconds(125));
  EXPECT_EQ(limit.Admit("a", Time(Milliseconds(250))), Duration(0));
  EXPECT_GT(limit.Admit("a", Time(Milliseconds(250))), Duration(0));
}

// Any window of time has at most one bucket and the rate.
TEST(ClientRateLimitTest, NoWindowExceedsBucketAndRate) {
  ClientRateLimit limit(10);
  std::mt19937 random(3);
  std::vector<double> admitted;
  double t = 0;
  for (int i = 0; i < 5000; ++i) {
    t += double(random() % 1000) / 20000;  // 40 per second on average
    if (limit.Admit("a", Time(Seconds(t))) == Duration(0)) admitted.push_back(t);
  }
  for (std::size_t i = 0; i < admitted.size(); ++i) {
    for (std::size_t j = i; j < std::min(i + 200, admitted.size()); ++j) {
      ASSERT_LE(double(j - i + 1), 10 + 10 * (admitted[j] - admitted[i]) + 1e-3);
    }
  }
  EXPECT_GT(double(admitted.size()), 0.95 * 10 * t);  // the rate is also reached
}

TEST(ClientRateLimitTest, RatesBelowOneAdmitARequest) {
  ClientRateLimit limit(0.5);
  EXPECT_EQ(limit.Admit("a", Time{}), Duration(0));
  EXPECT_EQ(limit.Admit("a", Time{}), Seconds(2));
}

TEST(ClientRateLimitTest, ZeroIsNoLimit) {
  ClientRateLimit limit(0);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(limit.Admit("a", Time{}), Duration(0));
  EXPECT_EQ(limit.clients(), 0u);
}

TEST(ClientRateLimitTest, ManyAddressesDoNotGrowMemory) {
  ClientRateLimit limit(1, 100);
  for (int i = 0; i < 10000; ++i) limit.Admit(std::to_string(i), Time{});
  EXPECT_EQ(limit.clients(), 100u);
  EXPECT_GT(limit.Admit("9999", Time{}), Duration(0));  // the newest ones are remembered
}

}  // namespace
}  // namespace troop
