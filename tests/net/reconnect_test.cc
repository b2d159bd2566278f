// Connections that break at any byte: each call is still handled once and answered once.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tests/net/net_testing.h"

namespace troop {
namespace {

int TcpSocket() { return socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); }

sockaddr_in Local(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// Carries bytes between the clients that connect to it and a server, until Break.
class Relay {
 public:
  explicit Relay(const std::string& server)
      : server_port_(std::stoi(server.substr(server.rfind(':') + 1))), listener_(TcpSocket()) {
    sockaddr_in address = Local(0);
    socklen_t size = sizeof address;
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    TROOP_CHECK(bind(listener_, generic, size) == 0 && listen(listener_, 8) == 0 &&
                    getsockname(listener_, generic, &size) == 0,
                "no relay");
    endpoint_ = "tcp://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  }
  Relay(const Relay&) = delete;
  ~Relay() {
    Break();
    close(listener_);
  }
  const std::string& endpoint() const { return endpoint_; }

  // At most `limit` bytes in each direction.
  void Carry(std::size_t limit) {
    const int client = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (client >= 0) {
      const int server = TcpSocket();
      const sockaddr_in address = Local(server_port_);
      connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof address);
      pairs_.push_back({client, server});
    }
    for (Pair& pair : pairs_) {
      Move(pair.client, pair.server, pair.to_server, limit);
      Move(pair.server, pair.client, pair.to_client, limit);
    }
  }
  // All connections end; bytes on their way are lost.
  void Break() {
    for (const Pair& pair : pairs_) {
      close(pair.client);
      close(pair.server);
    }
    pairs_.clear();
  }

 private:
  struct Pair {
    int client;
    int server;
    std::string to_server, to_client;  // read, not yet written
  };
  static void Move(int from, int to, std::string& held, std::size_t limit) {
    char chunk[4096];
    if (held.empty()) {
      const ssize_t n = recv(from, chunk, std::min(limit, sizeof chunk), 0);
      if (n > 0) held.assign(chunk, static_cast<std::size_t>(n));
    }
    const ssize_t n = send(to, held.data(), held.size(), MSG_NOSIGNAL);
    if (n > 0) held.erase(0, static_cast<std::size_t>(n));
  }

  int server_port_;
  int listener_;
  std::string endpoint_;
  std::vector<Pair> pairs_;
};

TEST(ReconnectTest, HandlesAndAnswersEachCallOnceAcrossBreaks) {
  const SystemClock clock;
  const auto network = *MakeZmqNetwork();
  EchoService echo;
  const auto listener = *network->Listen("tcp://127.0.0.1:0", &echo);
  Relay relay(listener->endpoint());
  const auto channel = *network->Connect(relay.endpoint(), ActorOptions());

  constexpr int kCalls = 300;
  constexpr int kCallsPerBreak = 75;
  const Buffer part = TestBytes(1000);
  std::set<Ticket> open;
  int sent = 0;
  int answered = 0;
  int next_break = kCallsPerBreak;
  std::uint32_t seed = 1;
  const Time end = clock.Now() + Seconds(30);
  while (answered < kCalls && clock.Now() < end) {
    while (sent < kCalls && channel->CanSend()) {
      Message message = TestMessage(std::to_string(sent++), {part});
      open.insert(*channel->Send(message, kForever));
    }
    for (auto ticket = open.begin(); ticket != open.end();) {
      const auto answer = channel->Poll(*ticket);
      if (answer) {
        EXPECT_TRUE(answer->ok());
        ++answered;
      }
      ticket = answer ? open.erase(ticket) : std::next(ticket);
    }
    // Small and odd steps, so that breaks fall into the middle of messages and answers.
    seed = seed * 1664525 + 1013904223;
    relay.Carry(1 + (seed >> 22));
    if (answered >= next_break) {
      relay.Break();
      next_break += kCallsPerBreak;
    }
    if (!network->Pump(clock.Now())) network->Wait(clock.Now(), clock.Now() + Milliseconds(1));
  }
  EXPECT_EQ(answered, kCalls);
  EXPECT_EQ(echo.handled.size(), static_cast<std::size_t>(kCalls));
  EXPECT_EQ(std::set(echo.bodies.begin(), echo.bodies.end()).size(),
            static_cast<std::size_t>(kCalls));
  EXPECT_TRUE(echo.Saw(0, PeerState::kDown)) << "nothing broke: the test tests nothing";
}

TEST(ReconnectTest, ParkedCallSurvivesBreak) {
  const SystemClock clock;
  const auto network = *MakeZmqNetwork();
  EchoService echo;
  echo.park = true;
  const auto listener = *network->Listen("tcp://127.0.0.1:0", &echo);
  Relay relay(listener->endpoint());
  const auto channel = *network->Connect(relay.endpoint(), ActorOptions());
  Message message = TestMessage("parked");
  const Ticket ticket = *channel->Send(message, kForever);
  const auto run_until = [&](const std::function<bool()>& done) {
    const Time end = clock.Now() + Seconds(20);
    while (!done() && clock.Now() < end) {
      relay.Carry(4096);
      if (!network->Pump(clock.Now())) network->Wait(clock.Now(), clock.Now() + Milliseconds(1));
    }
    return done();
  };
  ASSERT_TRUE(run_until([&] { return echo.parked.size() == 1; }));
  relay.Break();
  ASSERT_TRUE(run_until([&] { return channel->peer() == PeerState::kDown; }));
  echo.parked[0].second.Send(TestMessage("answer"));  // into a broken connection
  std::optional<Result<Message>> answer;
  ASSERT_TRUE(run_until([&] {
    if (!answer) answer = channel->Poll(ticket);
    return answer.has_value();
  }));
  EXPECT_EQ((*answer)->body, "answer");
  EXPECT_EQ(echo.handled.size(), 1u);
}

// The restart of a role on another machine.
TEST(ReconnectTest, RedirectMovesOpenCallsToNewEndpoint) {
  const SystemClock clock;
  const auto network = *MakeZmqNetwork();
  EchoService old_place, new_place, bystander;
  const auto old_listener = *network->Listen("tcp://127.0.0.1:0", &old_place);
  const auto new_listener = *network->Listen("tcp://127.0.0.1:0", &new_place);
  const auto other_listener = *network->Listen("tcp://127.0.0.1:0", &bystander);
  const auto channel = *network->Connect(old_listener->endpoint(), ActorOptions());
  const auto other = *network->Connect(other_listener->endpoint(), ActorOptions());
  const auto answer_to = [&](Channel& to, const std::string& body) {
    Message message = TestMessage(body);
    const Ticket ticket = *to.Send(message, clock.Now() + Seconds(20));
    for (;;) {
      if (auto answer = to.Poll(ticket)) return std::move(*answer);
      if (!network->Pump(clock.Now())) network->Wait(clock.Now(), clock.Now() + Milliseconds(1));
    }
  };
  EXPECT_EQ(answer_to(*channel, "before")->body, "before");
  // A call that is open while the service moves is sent again to the new endpoint, as after a
  // restart.
  old_place.park = true;
  Message open = TestMessage("open");
  const Ticket ticket = *channel->Send(open, clock.Now() + Seconds(20));
  while (old_place.parked.empty()) network->Pump(clock.Now());
  ASSERT_TRUE(network->Redirect(old_listener->endpoint(), new_listener->endpoint()).ok());
  EXPECT_EQ(answer_to(*channel, "after")->body, "after");
  EXPECT_EQ(new_place.bodies, (std::vector<std::string>{"open", "after"}));
  std::optional<Result<Message>> lost;
  while (!lost) {
    network->Pump(clock.Now());
    lost = channel->Poll(ticket);
  }
  ASSERT_TRUE(lost->ok()) << lost->status().message();
  EXPECT_EQ((*lost)->body, "open");
  EXPECT_EQ(answer_to(*other, "elsewhere")->body, "elsewhere");
  EXPECT_EQ(bystander.bodies, (std::vector<std::string>{"elsewhere"}));
  EXPECT_FALSE(network->Redirect(new_listener->endpoint(), "nowhere").ok());
}

}  // namespace
}  // namespace troop
