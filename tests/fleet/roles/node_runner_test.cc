#include "fleet/roles/node_runner.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

namespace troop {
namespace {

// `timeout -s INT` signals the process and its group: the drain was cut off by its own request.
TEST(SignalWatchTest, CoalescesSignalsCloseTogether) {
  const SignalWatch signals(nullptr, false);
  const auto start = std::chrono::steady_clock::now();
  raise(SIGINT);
  raise(SIGTERM);
  raise(SIGINT);
  const bool together = std::chrono::steady_clock::now() - start < std::chrono::milliseconds(400);
  if (together) {
    EXPECT_EQ(signals.count(), 1);
  }
  const auto end = start + std::chrono::seconds(20);
  while (signals.count() < 2 && std::chrono::steady_clock::now() < end) {
    raise(SIGINT);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(signals.count(), 2);
}

TEST(SignalWatchTest, ClosedTerminalRequestsStop) {
  signal(SIGHUP, SIG_DFL);  // ignored where the tests were started by nohup
  const SignalWatch signals(nullptr, false);
  raise(SIGHUP);
  EXPECT_EQ(signals.count(), 1);
}

TEST(SignalWatchTest, RolesIgnoreTerminalSignals) {
  const SignalWatch signals(nullptr, true);
  raise(SIGHUP);
  raise(SIGINT);
  EXPECT_EQ(signals.count(), 0);
}

// Under Slurm a learner that had written its last checkpoint was killed by the second SIGTERM, and
// the run counted as failed.
TEST(SignalWatchTest, RoleKeepsExitCodeWhenSignaledAtExit) {
  for (const bool is_role : {true, false}) {
    EXPECT_EXIT(
        {
          { const SignalWatch signals(nullptr, is_role); }
          raise(SIGTERM);
          _exit(3);
        },
        [&](int status) {
          return is_role ? WIFEXITED(status) && WEXITSTATUS(status) == 3
                         : WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM;
        },
        "");
  }
}

TEST(SignalWatchTest, IgnoresClosedTerminalUnderNohup) {
  signal(SIGHUP, SIG_IGN);
  {
    const SignalWatch signals(nullptr, false);
    raise(SIGHUP);
    EXPECT_EQ(signals.count(), 0);
  }
  raise(SIGHUP);
  signal(SIGHUP, SIG_DFL);
}

}  // namespace
}  // namespace troop
