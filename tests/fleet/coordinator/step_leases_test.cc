#include "fleet/coordinator/step_leases.h"

#include <gtest/gtest.h>

namespace troop {
namespace {

TEST(StepLeasesTest, GrantsAtMostBudget) {
  StepLeases leases(100, 0);
  StepLease a, b;
  leases.Grant(&a, 70);
  leases.Grant(&b, 70);
  EXPECT_EQ(a.granted, 70);
  EXPECT_EQ(b.granted, 30);
  EXPECT_TRUE(leases.exhausted());
}

TEST(StepLeasesTest, WantedIsCumulative) {
  StepLeases leases(100, 0);
  StepLease a;
  leases.Grant(&a, 40);
  leases.Grant(&a, 40);
  EXPECT_EQ(a.granted, 40);
  leases.Grant(&a, 10);  // never lowers the lease
  EXPECT_EQ(a.granted, 40);
}

TEST(StepLeasesTest, ReportsStayWithinLeaseAndNeverDecrease) {
  StepLeases leases(100, 0);
  StepLease a;
  leases.Grant(&a, 40);
  leases.Report(&a, 60);
  EXPECT_EQ(leases.done(), 40);
  leases.Report(&a, 10);
  EXPECT_EQ(leases.done(), 40);
}

TEST(StepLeasesTest, ReturnedStepsAreLeasedAgain) {
  StepLeases leases(100, 0);
  StepLease a, b;
  leases.Grant(&a, 100);
  leases.Report(&a, 30);
  leases.Return(&a);
  EXPECT_FALSE(leases.exhausted());
  leases.Report(&a, 90);  // a late report
  EXPECT_EQ(leases.done(), 30);
  leases.Grant(&b, 100);
  EXPECT_EQ(b.granted, 70);
}

TEST(StepLeasesTest, RetiredIncarnationsKeepTheirSteps) {
  StepLeases leases(100, 20);  // resumed at 20
  StepLease a;
  leases.Grant(&a, 50);
  leases.Report(&a, 10);
  leases.Retire(&a);
  EXPECT_EQ(a.granted, 0);
  EXPECT_EQ(leases.done(), 30);
  leases.Grant(&a, 1000);
  EXPECT_EQ(a.granted, 70);
}

TEST(StepLeasesTest, ResumeBeyondBudgetLeasesNothing) {
  StepLeases leases(100, 120);
  StepLease a;
  leases.Grant(&a, 10);
  EXPECT_EQ(a.granted, 0);
  EXPECT_TRUE(leases.exhausted());
}

}  // namespace
}  // namespace troop
