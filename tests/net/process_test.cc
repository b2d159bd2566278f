// Tests that need real processes and real time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>

#include "tests/core/temp_folder.h"
#include "tests/net/net_testing.h"

namespace troop {
namespace {

Time SystemNow() { return SystemClock().Now(); }

// A forked process that serves an endpoint, which it receives through a pipe. Its node stops
// pumping (and spins) after a call "hang". Fork it before this process has threads: create it
// before any network.
class ServerProcess {
 public:
  ServerProcess() {
    int start[2];
    int ready[2];
    TROOP_CHECK(pipe(start) == 0 && pipe(ready) == 0, "no pipe");
    pid_ = fork();
    if (pid_ == 0) {
      close(start[1]);
      char endpoint[256] = {};
      if (read(start[0], endpoint, sizeof endpoint - 1) <= 0) _exit(0);
      Serve(endpoint, ready[1]);
    }
    close(start[0]);
    close(ready[1]);
    start_ = start[1];
    ready_ = ready[0];
  }
  ServerProcess(const ServerProcess&) = delete;
  ~ServerProcess() {
    Kill();
    close(start_);
    close(ready_);
  }
  void Start(const std::string& endpoint) {
    char text[256] = {};
    TROOP_CHECK(write(start_, endpoint.data(), endpoint.size()) > 0 &&
                    read(ready_, text, sizeof text - 1) > 0,
                "the server did not start");
    endpoint_ = text;
  }
  void Signal(int signal) { kill(pid_, signal); }
  void Kill() {
    if (pid_ == 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  pid_t pid() const { return pid_; }
  const std::string& endpoint() const { return endpoint_; }

 private:
  class Hanging final : public Service {
   public:
    void Handle(Message message, Reply reply) override {
      hang |= message.body == "hang";
      reply.Send(std::move(message));
    }
    bool hang = false;
  };
  [[noreturn]] static void Serve(const std::string& endpoint, int ready) {
    auto network = *MakeZmqNetwork();
    Hanging service;
    const auto listener = network->Listen(endpoint, &service);
    if (!listener.ok()) _exit(1);
    const std::string& real = (*listener)->endpoint();
    if (write(ready, real.data(), real.size()) < 0) _exit(1);
    const volatile bool& hang = service.hang;
    for (;;) {
      if (!network->Pump(SystemNow())) network->Wait(SystemNow(), SystemNow() + Seconds(1));
      while (hang) {
      }
    }
  }
  pid_t pid_ = 0;
  int start_ = -1;
  int ready_ = -1;
  std::string endpoint_;
};

class ProcessTest : public testing::TestWithParam<const char*> {
 protected:
  std::string Wanted() const {
    return std::string(GetParam()) == "ipc" ? "ipc://" + folder_.path() + "/s"
                                            : std::string("tcp://127.0.0.1:0");
  }
  void Connect(const ServerProcess& server) {
    network_ = *MakeZmqNetwork();
    channel_ = *network_->Connect(server.endpoint(), ActorOptions());
  }
  bool RunUntil(const std::function<bool()>& done, double seconds = 20) {
    const Time end = SystemNow() + Seconds(seconds);
    while (!done()) {
      if (!network_->Pump(SystemNow())) network_->Wait(SystemNow(), SystemNow() + Milliseconds(5));
      if (SystemNow() > end) return false;
    }
    return true;
  }
  Result<Message> Call(const std::string& body) {
    Message message = TestMessage(body);
    const Ticket ticket = *channel_->Send(message, kForever);
    std::optional<Result<Message>> answer;
    if (!RunUntil([&] { return (answer = channel_->Poll(ticket)).has_value(); })) {
      return Internal("no answer");
    }
    return std::move(*answer);
  }

  TempFolder folder_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<Channel> channel_;
};

INSTANTIATE_TEST_SUITE_P(Transports, ProcessTest, testing::Values("ipc", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

// Promised: 2 s. The bound leaves room for a machine that is busy.
TEST_P(ProcessTest, DetectsStoppedServerWithinTwoSeconds) {
  ServerProcess server;
  server.Start(Wanted());
  Connect(server);
  ASSERT_TRUE(Call("x").ok());
  server.Signal(SIGSTOP);
  const Time stopped = SystemNow();
  EXPECT_TRUE(RunUntil([&] {
    return channel_->peer() == PeerState::kHung || channel_->peer() == PeerState::kDown;
  }));
  EXPECT_LT(ToSeconds(SystemNow() - stopped), 3.0);
  server.Signal(SIGCONT);
  EXPECT_TRUE(Call("y").ok());
  EXPECT_EQ(channel_->peer(), PeerState::kUp);
}

TEST_P(ProcessTest, ReportsHungNodeThoughSocketsRespond) {
  ServerProcess server;
  server.Start(Wanted());
  Connect(server);
  ASSERT_TRUE(Call("hang").ok());
  const Time hung = SystemNow();
  EXPECT_TRUE(RunUntil([&] { return channel_->peer() != PeerState::kUp; }));
  EXPECT_EQ(channel_->peer(), PeerState::kHung);
  EXPECT_LT(ToSeconds(SystemNow() - hung), 3.0);
  EXPECT_FALSE(RunUntil([&] { return channel_->peer() != PeerState::kHung; }, 0.7));
}

TEST_P(ProcessTest, DetectsKilledServerAndReachesSuccessor) {
  ServerProcess server;
  ServerProcess successor;
  server.Start(Wanted());
  Connect(server);
  ASSERT_TRUE(Call("x").ok());
  const Time killed = SystemNow();
  server.Kill();
  EXPECT_TRUE(RunUntil([&] { return channel_->peer() == PeerState::kDown; }));
  EXPECT_LT(ToSeconds(SystemNow() - killed), 1.0);
  successor.Start(server.endpoint());
  EXPECT_TRUE(Call("y").ok());
}

TEST_P(ProcessTest, NamesProcessThatHoldsEndpoint) {
  ServerProcess server;
  server.Start(Wanted());
  Connect(server);
  EchoService echo;
  const Status status = network_->Listen(server.endpoint(), &echo).status();
  EXPECT_EQ(status.code(), Code::kAlreadyExists);
  EXPECT_THAT(status.message(), testing::HasSubstr("process " + std::to_string(server.pid())));
  EXPECT_TRUE(Call("still served").ok());
}

// Two nodes of one process exchange parts between their threads, which also free them.
TEST(ThreadsTest, ExchangesPartsBetweenThreadsOverInproc) {
  std::atomic<bool> serving = true;
  const std::string endpoint = "inproc://threads-test";
  std::thread server([&] {
    auto network = *MakeZmqNetwork();
    EchoService echo;
    const auto listener = *network->Listen(endpoint, &echo);
    while (serving) {
      if (!network->Pump(SystemNow())) network->Wait(SystemNow(), SystemNow() + Milliseconds(5));
    }
  });
  {
    auto network = *MakeZmqNetwork();
    const auto channel = *network->Connect(endpoint, ActorOptions());
    for (int i = 0; i < 20; ++i) {
      Message message = TestMessage("x", {TestBytes(300'000, i), TestBytes(1000, i)});
      const Ticket ticket = *channel->Send(message, kForever);
      std::optional<Result<Message>> answer;
      const Time end = SystemNow() + Seconds(20);
      while (!(answer = channel->Poll(ticket)) && SystemNow() < end) {
        if (!network->Pump(SystemNow())) network->Wait(SystemNow(), SystemNow() + Milliseconds(5));
      }
      ASSERT_TRUE(answer && answer->ok());
      EXPECT_EQ((*answer)->parts.at(0).text(), TestBytes(300'000, i).text());
      EXPECT_EQ((*answer)->parts.at(1).text(), TestBytes(1000, i).text());
    }
  }
  serving = false;
  server.join();
}

TEST(WakeTest, WakeEndsWaitFromAnyThread) {
  auto network = *MakeZmqNetwork();
  std::atomic<bool> waking = true;
  std::thread waker([&] {
    while (waking) network->Wake();
  });
  network->Wait(SystemNow(), SystemNow() + Seconds(60));
  waking = false;
  waker.join();
}

TEST(WaitTest, WaitEndsAtDeadline) {
  auto network = *MakeZmqNetwork();
  const Time start = SystemNow();
  network->Wait(start, start + Milliseconds(5));
  EXPECT_GE(SystemNow() - start, Milliseconds(5));
  network->Wait(start, start);  // in the past: returns
}

}  // namespace
}  // namespace troop
