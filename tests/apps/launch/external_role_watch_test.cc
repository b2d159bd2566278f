#include "apps/launch/external_role_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/core/temp_folder.h"

namespace troop {
namespace {

using testing::HasSubstr;

// A watch of a run whose progress is plain lines; its notices go to standard error.
class ExternalRoleWatchTest : public testing::Test {
 protected:
  void SetUp() override {
    Config config;
    config.log.dir = temp_.path();
    auto folder = OpenRunFolder(config, FolderUse::kFresh);
    ASSERT_TRUE(folder.ok()) << folder.status().ToString();
    folder_ = std::move(*folder);
    auto monitor = RunMonitor::Make(folder_, {});
    ASSERT_TRUE(monitor.ok()) << monitor.status().ToString();
    monitor_ = std::move(*monitor);
  }
  Status Check(double at_s, const std::vector<std::string>& missing) {
    testing::internal::CaptureStderr();
    const Status status = watch_.Check(Time{} + Seconds(at_s), missing, monitor_.get());
    said_ = testing::internal::GetCapturedStderr();
    return status;
  }

  TempFolder temp_;
  RunFolder folder_;
  std::unique_ptr<RunMonitor> monitor_;
  ExternalRoleWatch watch_{"tcp://10.0.0.1:7000", 60};
  std::string said_;
};

TEST_F(ExternalRoleWatchTest, ReportsEachSetOfMissingRolesOnce) {
  EXPECT_TRUE(Check(0, {"replay-0", "actor-1"}).ok());
  EXPECT_THAT(said_, HasSubstr("waiting for replay-0, actor-1 to join tcp://10.0.0.1:7000"));
  EXPECT_TRUE(Check(1, {"replay-0", "actor-1"}).ok());
  EXPECT_EQ(said_, "");
  EXPECT_TRUE(Check(2, {"actor-1"}).ok());
  EXPECT_THAT(said_, HasSubstr("waiting for actor-1 to join"));
}

TEST_F(ExternalRoleWatchTest, FailsAfterTheLimit) {
  EXPECT_TRUE(Check(0, {"replay-0"}).ok());
  EXPECT_TRUE(Check(59, {"replay-0"}).ok());
  const Status status = Check(60, {"replay-0"});
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("troop join tcp://10.0.0.1:7000"));
}

TEST_F(ExternalRoleWatchTest, JoinedRoleRestartsTheLimit) {
  EXPECT_TRUE(Check(0, {"replay-0"}).ok());
  EXPECT_TRUE(Check(50, {}).ok());
  EXPECT_TRUE(Check(61, {"replay-0"}).ok());
  EXPECT_THAT(said_, HasSubstr("waiting for replay-0"));
}

}  // namespace
}  // namespace troop
