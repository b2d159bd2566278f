// Keys on real sockets: which peers are accepted or rejected, and the errors on both sides.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>

#include "net/transport/endpoint.h"
#include "tests/net/key_folder.h"
#include "tests/net/net_testing.h"
#include "tests/net/raw_peer.h"

namespace troop {
namespace {

using testing::HasSubstr;

Time SystemNow() { return SystemClock().Now(); }

class CurveTest : public testing::Test {
 protected:
  void Listen(std::shared_ptr<const KeyRing> keys,
              const std::string& endpoint = "tcp://127.0.0.1:0") {
    server_ = *MakeZmqNetwork({.keys = std::move(keys)});
    auto listener = server_->Listen(endpoint, &echo_);
    TROOP_CHECK(listener.ok(), "{}", listener.status().message());
    listener_ = std::move(*listener);
  }
  // The address alone, as a person types it.
  std::string Address() const {
    return listener_->endpoint().substr(0, listener_->endpoint().find('#'));
  }
  bool RunUntil(const std::function<bool()>& done, double seconds = 20) {
    const Time end = SystemNow() + Seconds(seconds);
    while (!done()) {
      bool busy = server_ != nullptr && server_->Pump(SystemNow());
      if (client_ != nullptr) busy |= client_->Pump(SystemNow());
      if (!busy) client_->Wait(SystemNow(), SystemNow() + Milliseconds(1));
      if (SystemNow() > end) return false;
    }
    return true;
  }
  Result<std::unique_ptr<Channel>> Connect(std::shared_ptr<const KeyRing> keys,
                                           const std::string& endpoint, Role role = Role::kActor) {
    client_ = *MakeZmqNetwork({.keys = std::move(keys)});
    return client_->Connect(endpoint, {.origin = {.role = role, .index = 3, .incarnation = 1}});
  }
  // Returns the result of one call; the deadline is past the specification's limit (3 s).
  Result<Message> Call(Channel* channel, MessageType type = MessageType::kInsert) {
    Message message{.type = type, .body = "hello", .parts = {TestBytes(300'000)}};
    TROOP_ASSIGN_OR_RETURN(const Ticket ticket, channel->Send(message, kForever));
    std::optional<Result<Message>> answer;
    began_ = SystemNow();
    if (!RunUntil([&] { return (answer = channel->Poll(ticket)).has_value(); })) {
      return DeadlineExceeded("nothing");
    }
    return std::move(*answer);
  }
  Result<Message> CallWith(std::shared_ptr<const KeyRing> keys, const std::string& endpoint,
                           MessageType type = MessageType::kInsert, Role role = Role::kActor) {
    TROOP_ASSIGN_OR_RETURN(channel_, Connect(std::move(keys), endpoint, role));
    return Call(channel_.get(), type);
  }
  // Expects a rejection: the client fails in time with a one-line reason, the server's log has one
  // line about it, and the client does not reconnect.
  void ExpectRefused(std::shared_ptr<const KeyRing> keys, const std::string& endpoint,
                     const std::string& client_says, const std::string& server_says) {
    testing::internal::CaptureStderr();
    const Result<Message> answer = CallWith(std::move(keys), endpoint);
    const double seconds = ToSeconds(SystemNow() - began_);
    const std::set<std::string> known = Connections();
    const Time quiet = SystemNow() + Milliseconds(700);
    RunUntil([&] { return SystemNow() > quiet; });
    for (const std::string& connection : Connections()) {
      EXPECT_TRUE(known.contains(connection)) << "it knocks again: " << connection;
    }
    const std::string log = testing::internal::GetCapturedStderr();
    ASSERT_FALSE(answer.ok());
    EXPECT_EQ(answer.status().code(), Code::kFailedPrecondition) << answer.status().ToString();
    EXPECT_THAT(answer.status().message(), HasSubstr(client_says));
    EXPECT_THAT(answer.status().message(), HasSubstr(Address()));
    EXPECT_LT(seconds, 3) << "the specification's limit; some 0.5 s here";
    EXPECT_THAT(log, HasSubstr(server_says));
    EXPECT_TRUE(echo_.handled.empty());
    Message later = TestMessage("later");
    EXPECT_FALSE(channel_->Send(later, kForever).ok());
  }
  // The connections at our port in the table of the kernel, also those that have ended: both ends.
  std::set<std::string> Connections() const {
    const std::string port = Address().substr(Address().rfind(':') + 1);
    char text[8];
    std::snprintf(text, sizeof text, ":%04X", unsigned(std::stoi(port)));
    std::ifstream table("/proc/net/tcp");
    std::set<std::string> found;
    for (std::string line; std::getline(table, line);) {
      std::istringstream fields(line);
      std::string number, local, remote;
      fields >> number >> local >> remote;
      const std::string ends = local < remote ? local + " " + remote : remote + " " + local;
      if (ends.find(text) != std::string::npos) found.insert(ends);
    }
    return found;
  }

  const KeyFolder folder_, other_;
  EchoService echo_;
  std::unique_ptr<Network> server_, client_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<Channel> channel_;
  Time began_{};
};

TEST_F(CurveTest, AdmitsAllowedKeyWithItsRole) {
  Listen(folder_.Load("coordinator"));
  echo_.park = true;
  channel_ = *Connect(folder_.Load("actor"), Address());
  Message message{.type = MessageType::kInsert, .body = "hello", .parts = {TestBytes(300'000)}};
  const Ticket ticket = *channel_->Send(message, kForever);
  ASSERT_TRUE(RunUntil([&] { return !echo_.parked.empty(); }));
  auto& [call, reply] = echo_.parked.front();
  EXPECT_EQ(call.key, Role::kActor);
  EXPECT_TRUE(std::ranges::equal(call.parts[0].bytes(), TestBytes(300'000).bytes()));
  reply.Send(TestMessage("welcome"));
  std::optional<Result<Message>> answer;
  ASSERT_TRUE(RunUntil([&] { return (answer = channel_->Poll(ticket)).has_value(); }));
  EXPECT_EQ((*answer)->body, "welcome");
}

TEST_F(CurveTest, ListenerEndpointContainsServerKey) {
  Listen(folder_.Load("replay"));
  EXPECT_EQ(listener_->endpoint(), Address() + "#" + KeyText(folder_.Load("replay")->public_key));
  EXPECT_TRUE(CallWith(folder_.Load("actor"), listener_->endpoint()).ok());
  // Its own place again, as after a restart.
  const std::string endpoint = listener_->endpoint();
  listener_.reset();
  Listen(folder_.Load("replay"), endpoint);
  EXPECT_EQ(listener_->endpoint(), endpoint);
}

// A service that moved has the key of its new process.
TEST_F(CurveTest, RedirectTrustsKeyOfNewEndpoint) {
  Listen(folder_.Load("replay"));
  const std::string old = listener_->endpoint();
  ASSERT_TRUE(CallWith(folder_.Load("actor"), old).ok());
  listener_.reset();
  Listen(folder_.Load("paramserver"));
  ASSERT_TRUE(client_->Redirect(old, listener_->endpoint()).ok());
  const Result<Message> reply = Call(channel_.get());
  EXPECT_TRUE(reply.ok()) << reply.status().ToString();
}

TEST_F(CurveTest, EncryptsTraffic) {
  // Between the two stands one that only passes bytes on, and reads them.
  Listen(folder_.Load("coordinator"));
  const int middle = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(bind(middle, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(middle, 4), 0);
  getsockname(middle, reinterpret_cast<sockaddr*>(&address), &size);
  fcntl(middle, F_SETFL, O_NONBLOCK);
  channel_ =
      *Connect(folder_.Load("actor"), "tcp://127.0.0.1:" + std::to_string(ntohs(address.sin_port)));
  Message message{.type = MessageType::kInsert, .body = "a very particular body"};
  const Ticket ticket = *channel_->Send(message, kForever);
  RawPeer server(Address());
  int client = -1;
  std::string seen;
  std::size_t passed = 0;
  std::optional<Result<Message>> answer;
  EXPECT_TRUE(RunUntil([&] {
    if (client < 0) client = accept4(middle, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    char chunk[65536];
    for (ssize_t n; client >= 0 && (n = read(client, chunk, sizeof chunk)) > 0;) {
      server.Send(std::string_view(chunk, std::size_t(n)));
      seen.append(chunk, std::size_t(n));
    }
    const std::string& back = server.Received();
    while (client >= 0 && passed < back.size()) {
      const ssize_t n = send(client, back.data() + passed, back.size() - passed, MSG_NOSIGNAL);
      if (n <= 0) break;
      passed += std::size_t(n);
    }
    return (answer = channel_->Poll(ticket)).has_value();
  }));
  ASSERT_TRUE(answer.has_value());
  EXPECT_TRUE((*answer).ok());
  EXPECT_EQ((*answer)->body, "a very particular body");
  seen += server.Received();
  EXPECT_GT(seen.size(), 200u);
  EXPECT_THAT(seen, HasSubstr("CURVE"));
  EXPECT_EQ(seen.find("particular"), std::string::npos);
  EXPECT_EQ(seen.find("$TRP"), std::string::npos);
  close(client);
  close(middle);
}

TEST_F(CurveTest, RejectsUnknownKeyAndLogsOnBothSides) {
  Listen(folder_.Load("coordinator"));
  // Another fleet's actor with the address and the key of our coordinator.
  const std::string endpoint = Address() + "#" + KeyText(folder_.Load("coordinator")->public_key);
  const auto stranger = other_.Load("actor");
  ExpectRefused(stranger, endpoint, "does not allow our public key",
                KeyText(stranger->public_key).substr(0, 16));
}

TEST_F(CurveTest, RejectsWrongServerKeyAndLogsOnBothSides) {
  Listen(folder_.Load("coordinator"));
  ExpectRefused(other_.Load("actor"), Address(), "another key than", "expects another server key");
}

TEST_F(CurveTest, RejectsMissingKeyAndLogsOnBothSides) {
  Listen(folder_.Load("coordinator"));
  // The client's error must not depend on which side closes the connection first.
  ExpectRefused(nullptr, Address(), "requires a key", "has no key");
}

TEST_F(CurveTest, RejectsKeyAtServerWithoutKeysAndLogsOnBothSides) {
  Listen(nullptr);
  ExpectRefused(folder_.Load("actor"), Address(), "has no keys", "has a key");
}

TEST_F(CurveTest, RejectsConnectToKeyedEndpointWithoutKey) {
  Listen(folder_.Load("coordinator"));
  const auto channel = Connect(nullptr, listener_->endpoint());
  ASSERT_FALSE(channel.ok());
  EXPECT_THAT(channel.status().message(), HasSubstr("--key"));
}

TEST_F(CurveTest, RejectsLearnerMessagesFromActorKey) {
  Listen(folder_.Load("paramserver"));
  const auto actor = folder_.Load("actor");
  const std::string endpoint = listener_->endpoint();
  testing::internal::CaptureStderr();
  const auto as_learner = CallWith(actor, endpoint, MessageType::kShardPush, Role::kLearner);
  const auto as_itself = CallWith(actor, endpoint, MessageType::kShardPush, Role::kActor);
  const auto sampling = CallWith(actor, endpoint, MessageType::kSample, Role::kActor);
  const std::string log = testing::internal::GetCapturedStderr();
  for (const auto* answer : {&as_learner, &as_itself, &sampling}) {
    ASSERT_FALSE(answer->ok());
    EXPECT_EQ(answer->status().code(), Code::kFailedPrecondition);
    EXPECT_THAT(answer->status().message(), HasSubstr("a key of the role actor"));
  }
  EXPECT_THAT(log, HasSubstr("without permission"));
  EXPECT_TRUE(echo_.handled.empty());
  EXPECT_TRUE(
      CallWith(folder_.Load("learner"), endpoint, MessageType::kShardPush, Role::kLearner).ok());
}

TEST_F(CurveTest, AdmitsBothKeysOfRotationUntilRemoved) {
  Listen(folder_.Load("coordinator"));
  const auto before = folder_.Load("actor");
  ASSERT_TRUE(MakeKeys(folder_.path(), {{Role::kActor, "actor"}}, true).ok());
  EXPECT_TRUE(CallWith(before, Address()).ok());
  EXPECT_TRUE(CallWith(folder_.Load("actor"), Address()).ok());
  std::ostringstream text;
  text << std::ifstream(folder_.allowed()).rdbuf();
  std::string rest = text.str();
  const std::string line = KeyText(before->public_key) + " actor actor\n";
  rest.erase(rest.find(line), line.size());
  std::ofstream(folder_.allowed()) << rest;
  testing::internal::CaptureStderr();
  EXPECT_FALSE(CallWith(before, Address()).ok());
  testing::internal::GetCapturedStderr();
  EXPECT_TRUE(CallWith(folder_.Load("actor"), Address()).ok());
}

TEST_F(CurveTest, ClientFindsCoordinatorKeyInUseDuringRotation) {
  Listen(folder_.Load("coordinator"));  // keeps using the old key
  ASSERT_TRUE(MakeKeys(folder_.path(), {{Role::kCoordinator, "coordinator"}}, true).ok());
  const auto actor = folder_.Load("actor");
  EXPECT_TRUE(CallWith(actor, Address()).ok());
  listener_.reset();
  Listen(folder_.Load("coordinator"));
  EXPECT_TRUE(CallWith(actor, Address()).ok());
}

// One process may have networks of several fleets, and without keys.
TEST_F(CurveTest, KeepsKeyRingsOfOneProcessSeparate) {
  Listen(folder_.Load("coordinator"));
  auto second = *MakeZmqNetwork({.keys = other_.Load("coordinator")});
  EchoService echo;
  const auto listener = *second->Listen("tcp://127.0.0.1:0", &echo);
  EXPECT_TRUE(CallWith(folder_.Load("actor"), Address()).ok());
  const std::string theirs = Address() + "#" + KeyText(folder_.Load("coordinator")->public_key);
  testing::internal::CaptureStderr();
  EXPECT_FALSE(CallWith(other_.Load("actor"), theirs).ok());
  testing::internal::GetCapturedStderr();
}

TEST_F(CurveTest, LocalSocketsNeedNoKey) {
  Listen(folder_.Load("coordinator"));
  EXPECT_TRUE(CallWith(folder_.Load("actor"), Address()).ok());
  TempFolder temp;
  listener_.reset();
  Listen(folder_.Load("coordinator"), "ipc://" + temp.path() + "/s");
  EXPECT_EQ(listener_->endpoint().find('#'), std::string::npos);
  EXPECT_TRUE(CallWith(nullptr, Address()).ok());
}

TEST_F(CurveTest, AdmitsClientDuringConnectionFlood) {
  Listen(folder_.Load("coordinator"));
  std::vector<std::unique_ptr<RawPeer>> strangers;
  for (int i = 0; i < 50; ++i) {
    strangers.push_back(std::make_unique<RawPeer>(Address()));
    strangers.back()->Send(RawPeer::Handshake(RawPeer::RoutingId(std::uint64_t(i))));
  }
  testing::internal::CaptureStderr();
  EXPECT_TRUE(CallWith(folder_.Load("actor"), Address()).ok());
  EXPECT_TRUE(RunUntil([&] {
    return std::ranges::all_of(strangers, [](const auto& peer) { return peer->Cut(); });
  }));
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_LT(std::ranges::count(log, '\n'), 20) << "a flood does not flood the log";
  EXPECT_EQ(echo_.handled.size(), 1u);
}

TEST(ListenTest, ListensBeyondLoopbackOnlyWithKeysOrInsecure) {
  for (const char* endpoint : {"tcp://0.0.0.0:0", "tcp://*:0", "tcp://10.9.8.7:0", "tcp://[::]:0",
                               "tcp://somewhere.example:7701"}) {
    EchoService echo;
    const auto network = *MakeZmqNetwork();
    const auto listener = network->Listen(endpoint, &echo);
    ASSERT_FALSE(listener.ok()) << endpoint;
    EXPECT_EQ(listener.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(listener.status().message(), HasSubstr(endpoint));
    EXPECT_THAT(listener.status().message(), HasSubstr("troop keygen"));
    EXPECT_THAT(listener.status().message(), HasSubstr("--insecure"));
    EXPECT_TRUE(CheckMayListen(endpoint, true, false).ok());
    EXPECT_TRUE(CheckMayListen(endpoint, false, true).ok());
  }
  EchoService echo;
  const auto insecure = *MakeZmqNetwork({.insecure = true});
  EXPECT_TRUE(insecure->Listen("tcp://0.0.0.0:0", &echo).ok());
  const KeyFolder folder;
  const auto with_keys = *MakeZmqNetwork({.keys = folder.Load("coordinator")});
  EXPECT_TRUE(with_keys->Listen("tcp://0.0.0.0:0", &echo).ok());
  EXPECT_TRUE((*MakeZmqNetwork())->Listen("tcp://127.0.0.1:0", &echo).ok());
}

}  // namespace
}  // namespace troop
