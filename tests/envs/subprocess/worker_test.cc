#include "envs/subprocess/worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace troop {
namespace {

using testing::HasSubstr;
using Event = EnvWorker::Event;

// A program that reads no request, and a memory.
class EnvWorkerTest : public testing::Test {
 protected:
  ~EnvWorkerTest() override { close(memory_); }
  EnvWorker::Options Options() const {
    return {.program = sleeper_,
            .id = "Sleeper-v0",
            .request = "{}",
            .memory = memory_,
            .start_timeout = Seconds(60),
            .step_timeout = Seconds(10)};
  }

  const WorkerProgram sleeper_{"/bin/sleep", {"sleep", "1000"}, {}};
  const int memory_ = memfd_create("test", MFD_CLOEXEC);
  const Time now_ = Time{} + Seconds(1e6);
};

TEST_F(EnvWorkerTest, SpareProcessGetsFullStartTimeoutOnceTaken) {
  auto spare = WorkerProcess::Start(sleeper_, memory_);
  ASSERT_TRUE(spare.ok()) << spare.status().ToString();
  const pid_t process = spare->process();
  EnvWorker worker(Options());
  worker.Start(now_, std::move(*spare));
  EXPECT_EQ(worker.Poll(now_ + Seconds(59)), Event::kNothing);
  EXPECT_EQ(kill(process, 0), 0);
  EXPECT_EQ(worker.Poll(now_ + Seconds(61)), Event::kDied);
  EXPECT_THAT(worker.death().what, HasSubstr("env.start_timeout_s = 60 s"));
  EXPECT_TRUE(worker.death().starting);
  EXPECT_TRUE(worker.death().final.ok());
  EXPECT_EQ(kill(process, 0), -1);
  EXPECT_EQ(errno, ESRCH);
}

TEST_F(EnvWorkerTest, ReplacesSpareProcessThatExited) {
  auto spare = WorkerProcess::Start({"/bin/sleep", {"sleep", "0"}, {}}, memory_);
  ASSERT_TRUE(spare.ok()) << spare.status().ToString();
  while (!spare->ended()) usleep(1000);
  const pid_t process = spare->process();
  EnvWorker worker(Options());
  worker.Start(now_, std::move(*spare));
  EXPECT_EQ(kill(process, 0), -1) << "reaped";
  EXPECT_EQ(worker.Poll(now_ + Seconds(59)), Event::kNothing);
}

// A worker that exits before it has read the request: the socket reports a reset once, then the
// message.
TEST_F(EnvWorkerTest, ReadsLastMessageOfWorkerThatReadNothing) {
  EnvWorker::Options options = Options();
  options.program = {"/bin/sh", {"sh", "-c", R"(printf '{"error": "no display"}' >&3)"}, {}};
  EnvWorker worker(options);
  worker.Start(now_);
  Event event = Event::kNothing;
  for (int i = 0; i < 20'000 && event == Event::kNothing; ++i) {
    usleep(1000);
    event = worker.Poll(now_);
  }
  EXPECT_EQ(event, Event::kDied);
  EXPECT_THAT(worker.death().what, HasSubstr("no display"));
}

}  // namespace
}  // namespace troop
