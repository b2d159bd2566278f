#include "apps/launch/run_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "fleet/launcher/exit_code.h"
#include "tests/core/temp_folder.h"

namespace troop {
namespace {

namespace fs = std::filesystem;
using testing::EndsWith;
using testing::HasSubstr;

class RunSessionTest : public testing::Test {
 protected:
  RunSessionTest() {
    config_.log.dir = temp_.path();
    config_.name = "run";
  }
  std::unique_ptr<RunSession> Open(FolderUse use = FolderUse::kFresh) const {
    auto session = RunSession::Open(config_, {.use = use});
    EXPECT_TRUE(session.ok()) << session.status().ToString();
    return session.ok() ? std::move(*session) : nullptr;
  }
  bool Has(const std::string& name) const { return fs::exists(temp_.path() + "/run/" + name); }
  // Ends a new run in this way and keeps its messages.
  int End(const RunView& view, const Status& outcome, bool interrupted) {
    const auto session = Open();
    EXPECT_TRUE(session->Begin({}).ok());
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int code = session->Conclude(Time{} + Seconds(1), view, outcome, interrupted);
    out_ = testing::internal::GetCapturedStdout();
    err_ = testing::internal::GetCapturedStderr();
    return code;
  }

  TempFolder temp_;
  Config config_;
  std::string out_, err_;
};

TEST_F(RunSessionTest, AbandonedStartLeavesNoFolder) {
  const auto session = Open();
  ASSERT_NE(session, nullptr);
  EXPECT_EQ(session->monitor(), nullptr);
  session->Abandon();
  EXPECT_FALSE(Has(""));
}

TEST_F(RunSessionTest, BeginWritesConfigAndKeepsFolderLocked) {
  const auto session = Open();
  ASSERT_TRUE(session->Begin({}).ok());
  EXPECT_TRUE(Has("config.toml"));
  EXPECT_TRUE(Has("logs/launcher.log"));
  EXPECT_EQ(RunSession::Open(config_, {.use = FolderUse::kOverwrite}).status().code(),
            Code::kAlreadyExists);
}

TEST_F(RunSessionTest, ProvenanceThatCannotBeWrittenIsReportedAndRunBegins) {
  fs::create_directories(temp_.path() + "/run/provenance.jsonl/in_the_way");
  const auto session = Open();
  testing::internal::CaptureStderr();
  const Status begun = session->Begin({});
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(begun.ok()) << begun.ToString();
  EXPECT_THAT(said, HasSubstr("troop: " + RunPath(config_) + "/provenance.jsonl was not written"));
}

TEST_F(RunSessionTest, RunWithoutCheckpointCannotBeResumed) {
  {
    const auto session = Open();
    ASSERT_TRUE(session->Begin({}).ok());
  }
  const Status status = RunSession::Open(config_, {.use = FolderUse::kResume}).status();
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_TRUE(Has("config.toml"));
}

TEST_F(RunSessionTest, FinishedRunHasResultAndNamesItsFolder) {
  EXPECT_EQ(End({}, Status::Ok(), false), kExitOk);
  EXPECT_TRUE(Has("result.json"));
  EXPECT_THAT(out_, EndsWith("run folder: " + RunPath(config_) + "\n"));
}

TEST_F(RunSessionTest, FailedRunNamesReasonAndLogs) {
  EXPECT_EQ(End({}, Aborted("learner-0 failed"), false), kExitFailed);
  EXPECT_THAT(err_, HasSubstr("troop: the run failed: learner-0 failed\n  logs: "));
}

TEST_F(RunSessionTest, InterruptedRunSaysHowFarItCame) {
  RunView view;
  view.steps = 12;
  EXPECT_EQ(End(view, Status::Ok(), true), kExitInterrupted);
  EXPECT_THAT(out_, HasSubstr("stopped after 12 "));
  EXPECT_EQ(out_.find("run folder: "), std::string::npos);
}

// Lost checkpoints are reported also when the run succeeded.
TEST_F(RunSessionTest, ReportsCheckpointsThatWereNotWritten) {
  RunView view;
  view.metrics["learner/checkpoint_failures"].value = 2;
  EXPECT_EQ(End(view, Status::Ok(), false), kExitOk);
  EXPECT_THAT(err_, HasSubstr("troop: 2 checkpoints were not written"));
}

TEST_F(RunSessionTest, MonitorReadsTheFleetAtMostFourTimesASecond) {
  const auto session = Open();
  ASSERT_TRUE(session->Begin({}).ok());
  RunView view;
  int reads = 0;
  const RunSource source{.view = [&] { return ++reads, view; }, .roles = {}, .phase = {}};
  const auto observe = [&](std::int64_t at_ms) {
    session->monitor()->Observe(Time{} + Seconds(10) + Milliseconds(at_ms), source);
    return reads;
  };
  testing::internal::CaptureStdout();
  EXPECT_EQ(observe(0), 1);
  EXPECT_EQ(observe(249), 1);
  view.members.resize(500);  // a large fleet: once a second
  EXPECT_EQ(observe(250), 2);
  EXPECT_EQ(observe(1249), 2);
  EXPECT_EQ(observe(1250), 3);
  testing::internal::GetCapturedStdout();
}

}  // namespace
}  // namespace troop
