#include "collective/group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "collective/socket/handshake.h"
#include "collective/socket/socket.h"
#include "core/base/philox.h"
#include "tests/collective/ranks.h"

namespace troop {
namespace {

using testing::HasSubstr;

GroupEntry Listen(const GroupOptions& options) {
  auto entry = GroupEntry::Listen(options);
  TROOP_CHECK(entry.ok(), "{}", entry.status().ToString());
  return std::move(*entry);
}

GroupOptions Two(int rank) {
  return {.group = "two",
          .epoch = 4,
          .token = 9,
          .rank = rank,
          .size = 2,
          .connect_timeout = Seconds(10)};
}

// A connection that is not of the group.
class StrangerConnection {
 public:
  explicit StrangerConnection(const std::string& address) : socket_(BeginConnect(address)) {
    TROOP_CHECK(socket_.ok(), "{}", socket_.status().ToString());
    pollfd polled{socket_->fd(), POLLOUT, 0};
    poll(&polled, 1, 10'000);
  }
  void Send(std::span<const std::byte> bytes) {
    send(socket_->fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  // Receives until the other side closes the connection, or `bytes_max` bytes.
  std::string Receive(std::size_t bytes_max = std::size_t(-1)) {
    std::string received;
    char part[256];
    pollfd polled{socket_->fd(), POLLIN, 0};
    while (received.size() < bytes_max && poll(&polled, 1, 10'000) == 1) {
      const std::size_t room = std::min(sizeof part, bytes_max - received.size());
      const ssize_t n = recv(socket_->fd(), part, room, 0);
      if (n <= 0) break;
      received.append(part, std::size_t(n));
    }
    return received;
  }

 private:
  Result<Socket> socket_;
};

// Sends these bytes and returns the whole reply.
std::string Talk(const std::string& address, std::span<const std::byte> bytes) {
  StrangerConnection connection(address);
  connection.Send(bytes);
  return connection.Receive();
}

TEST(GroupTest, SendsNoMoreBytesThanRingAllReduceNeeds) {
  for (const int size : {2, 3, 4}) {
    Ranks ranks = MakeSocketRanks(size, {.path = GroupOptions::Path::kTcp});
    const std::int64_t n = 16 * 1024 * size;
    RunRanks(size, [&](int r) {
      const Tensor x(DType::kF32, {n});
      EXPECT_TRUE(RunOp(*ranks[std::size_t(r)], {.kind = OpKind::kAllReduce}, x, x).ok());
      const std::uint64_t want = std::uint64_t(2 * (size - 1) * n * 4 / size);
      EXPECT_EQ(ranks[std::size_t(r)]->counters().bytes_sent, want);
      EXPECT_EQ(ranks[std::size_t(r)]->counters().bytes_received, want);
    });
  }
}

TEST(GroupTest, SharedMemoryPathSendsNothingOverSockets) {
  Ranks ranks = MakeSocketRanks(3, {.path = GroupOptions::Path::kAuto});
  RunRanks(3, [&](int r) {
    const Tensor x(DType::kF32, {100'000});
    EXPECT_TRUE(RunOp(*ranks[std::size_t(r)], {.kind = OpKind::kAllReduce}, x, x).ok());
    EXPECT_EQ(ranks[std::size_t(r)]->counters().bytes_sent, 0u);
  });
}

// Sums between hosts are of whole hosts: only one rank of each sends.
TEST(GroupTest, OnlyOneRankPerHostSendsToOtherHosts) {
  Ranks ranks = MakeSocketRanks(4, {}, {"a", "b", "a", "b"});
  RunRanks(4, [&](int r) {
    const Tensor x(DType::kF32, {100'000});
    EXPECT_TRUE(RunOp(*ranks[std::size_t(r)], {.kind = OpKind::kAllReduce}, x, x).ok());
    EXPECT_EQ(ranks[std::size_t(r)]->counters().bytes_sent, r < 2 ? 400'000u : 0u);
  });
}

TEST(GroupTest, RejectsStrangersAndStillFormsGroup) {
  GroupEntry first = Listen(Two(0)), second = Listen(Two(1));
  const std::vector<Member> members{first.self(), second.self()};
  std::thread joining([&] {
    auto group = std::move(first).Join(members);
    ASSERT_TRUE(group.ok()) << group.status().ToString();
    EXPECT_TRUE(RunOp(**group, {.kind = OpKind::kBarrier}, {}, {}).ok());
  });
  Rng rng({.run_seed = 1});
  for (int i = 0; i < 20; ++i) {
    std::vector<std::byte> noise(kHelloBytes + rng.Below(100));
    for (std::byte& b : noise) b = std::byte(rng.NextU32());
    EXPECT_EQ(Talk(members[0].address, noise), "") << "a stranger is answered";
  }
  const auto refusal = [&](const Hello& hello) {
    const std::string answer = Talk(members[0].address, EncodeHello(hello));
    HelloBytes bytes{};
    if (answer.size() != bytes.size()) return Hello::Refusal::kNone;
    std::memcpy(bytes.data(), answer.data(), bytes.size());
    const auto decoded = DecodeHello(bytes);
    EXPECT_TRUE(decoded.ok());
    EXPECT_EQ(decoded->token, 0u) << "the token must not be sent to an unauthenticated peer";
    return decoded->refusal;
  };
  const Hello good{.group = "two", .epoch = 4, .token = 9, .rank = 1, .size = 2};
  Hello other = good;
  other.epoch = 3;
  EXPECT_EQ(refusal(other), Hello::Refusal::kEpoch);
  other = good;
  other.token = 8;
  EXPECT_EQ(refusal(other), Hello::Refusal::kToken);
  other = good;
  other.group = "three";
  EXPECT_EQ(refusal(other), Hello::Refusal::kGroup);
  other = good;
  other.rank = 2;
  EXPECT_EQ(refusal(other), Hello::Refusal::kRank);
  other = good;
  other.size = 3;
  EXPECT_EQ(refusal(other), Hello::Refusal::kSize);
  other = good;
  other.secret = true;
  EXPECT_EQ(refusal(other), Hello::Refusal::kSecret);
  other = good;
  other.version = 1;
  EXPECT_EQ(refusal(other), Hello::Refusal::kVersion);
  auto group = std::move(second).Join(members);
  ASSERT_TRUE(group.ok()) << group.status().ToString();
  EXPECT_TRUE(RunOp(**group, {.kind = OpKind::kBarrier}, {}, {}).ok());
  joining.join();
}

TEST(GroupTest, RejectsRankOfOtherEpoch) {
  GroupOptions late = Two(1);
  late.epoch = 3;
  GroupOptions here = Two(0);
  here.connect_timeout = Milliseconds(300);
  GroupEntry first = Listen(here), second = Listen(late);
  const std::vector<Member> members{first.self(), second.self()};
  std::thread joining([&] {
    const auto group = std::move(first).Join(members);
    EXPECT_EQ(group.status().code(), Code::kDeadlineExceeded);
    EXPECT_THAT(group.status().message(), HasSubstr("rank 1"));
  });
  const auto group = std::move(second).Join(members);
  EXPECT_EQ(group.status().code(), Code::kAborted);
  EXPECT_THAT(group.status().message(), HasSubstr("another epoch"));
  joining.join();
}

TEST(GroupTest, NamesAbsentRank) {
  GroupOptions options = Two(1);
  GroupEntry entry = Listen(options);
  std::vector<Member> members{{.rank = 0, .host = "x", .address = "127.0.0.1:1"}, entry.self()};
  const auto group = std::move(entry).Join(members);
  EXPECT_EQ(group.status().code(), Code::kUnavailable);
  EXPECT_THAT(group.status().message(), HasSubstr("rank 0 at 127.0.0.1:1"));
}

TEST(GroupTest, RejectsInvalidOptionsAndMemberLists) {
  const auto code = [](const GroupOptions& options) {
    return GroupEntry::Listen(options).status().code();
  };
  EXPECT_EQ(code({.group = ""}), Code::kInvalidArgument);
  EXPECT_EQ(code({.group = std::string(64, 'x')}), Code::kInvalidArgument);
  EXPECT_EQ(code({.group = "g", .rank = 2, .size = 2}), Code::kInvalidArgument);
  EXPECT_EQ(code({.group = "g", .size = kRanksMax + 1}), Code::kInvalidArgument);
  EXPECT_EQ(code({.group = "g", .listen = "nonsense"}), Code::kInvalidArgument);
  // getaddrinfo takes it for 34463.
  EXPECT_EQ(code({.group = "g", .listen = "127.0.0.1:99999"}), Code::kInvalidArgument);
  EXPECT_EQ(code({.group = "g", .listen = "127.0.0.1:1x"}), Code::kInvalidArgument);
  EXPECT_EQ(code({.group = "g", .listen = "192.0.2.1:0"}), Code::kUnavailable);
  GroupEntry entry = Listen(Two(0));
  const std::vector<Member> one{entry.self()};
  EXPECT_EQ(std::move(entry).Join(one).status().code(), Code::kInvalidArgument);
  GroupOptions shm = Two(0);
  shm.path = GroupOptions::Path::kShm;
}

TEST(GroupTest, RejectsSharedMemoryBetweenHosts) {
  std::vector<GroupEntry> entries;
  std::vector<Member> members;
  for (int rank = 0; rank < 2; ++rank) {
    GroupOptions options = Two(rank);
    options.path = GroupOptions::Path::kShm;
    options.host = rank == 0 ? "here" : "there";
    entries.push_back(Listen(options));
    members.push_back(entries.back().self());
  }
  RunRanks(2, [&](int rank) {
    const auto group = std::move(entries[std::size_t(rank)]).Join(members);
    EXPECT_FALSE(group.ok());
  });
}

GroupOptions Secretly(int rank, int size, std::byte secret) {
  GroupOptions options = Two(rank);
  options.size = size;
  options.secret.emplace().fill(secret);
  options.path = GroupOptions::Path::kTcp;
  options.connect_timeout = Seconds(1);
  return options;
}

// Sends a hello, then `proof`, and returns the whole reply.
std::string SendProof(const Hello& hello, const std::string& address, std::string_view proof) {
  const HelloBytes bytes = EncodeHello(hello);
  std::vector<std::byte> all(bytes.begin(), bytes.end());
  for (const char c : proof) all.push_back(std::byte(c));
  return Talk(address, all);
}

// Sends a hello, then the proof of the other side of this connection; returns the reply to it.
std::string ReflectProof(const Hello& hello, const std::string& address) {
  StrangerConnection connection(address);
  connection.Send(EncodeHello(hello));
  const std::string reply = connection.Receive(kHelloBytes + kProofBytes);
  EXPECT_EQ(reply.size(), kHelloBytes + kProofBytes);
  connection.Send(std::as_bytes(std::span(reply).subspan(kHelloBytes)));
  return connection.Receive();
}

TEST(GroupSecretTest, AdmitsRanksWithSecretDespiteStrangers) {
  std::vector<GroupEntry> entries;
  std::vector<Member> members;
  for (int rank = 0; rank < 3; ++rank) {
    GroupOptions options = Secretly(rank, 3, std::byte(7));
    options.connect_timeout = Seconds(10);
    entries.push_back(Listen(options));
    members.push_back(entries.back().self());
    members.back().rank = rank;
  }
  // Rank 0 waits for the other ranks before they connect, and receives forged messages meanwhile.
  std::thread first([&] {
    const auto group = std::move(entries[0]).Join(members);
    ASSERT_TRUE(group.ok()) << group.status().ToString();
    EXPECT_TRUE(RunOp(**group, {.kind = OpKind::kBarrier}, {}, {}).ok());
  });
  const Hello stranger{
      .group = "two", .epoch = 4, .token = 9, .rank = 1, .size = 3, .secret = true};
  std::string reply;
  for (int i = 0; i < 5; ++i) {
    reply = SendProof(stranger, members[0].address, std::string(kProofBytes, char(i)));
    ASSERT_EQ(reply.size(), kHelloBytes + kProofBytes);
  }
  // A proof of another connection, and that of the same one.
  SendProof(stranger, members[0].address, reply.substr(kHelloBytes));
  EXPECT_EQ(ReflectProof(stranger, members[0].address), "");
  RunRanks(2, [&](int i) {
    const auto group = std::move(entries[std::size_t(i + 1)]).Join(members);
    ASSERT_TRUE(group.ok()) << group.status().ToString();
    EXPECT_TRUE(RunOp(**group, {.kind = OpKind::kBarrier}, {}, {}).ok());
  });
  first.join();
}

TEST(GroupSecretTest, RejectsWrongOrMissingSecret) {
  for (const bool none : {false, true}) {
    GroupOptions other = Secretly(1, 2, std::byte(8));
    if (none) other.secret.reset();
    GroupEntry entries[] = {Listen(Secretly(0, 2, std::byte(7))), Listen(other)};
    const std::vector<Member> members{entries[0].self(), entries[1].self()};
    RunRanks(2, [&](int rank) {
      const auto group = std::move(entries[rank]).Join(members);
      ASSERT_FALSE(group.ok());
      // Rank 0 keeps waiting for the right peer.
      EXPECT_EQ(group.status().code(), rank == 0 ? Code::kDeadlineExceeded : Code::kAborted);
      if (rank == 1) {
        EXPECT_THAT(std::string(group.status().message()),
                    HasSubstr(none ? "a secret on only one side" : "this run's secret"));
      }
    });
  }
}

// A proof recorded from one handshake is not accepted in another.
TEST(GroupSecretTest, RejectsReplayedHandshake) {
  GroupEntry victim = Listen(Secretly(0, 2, std::byte(7)));
  const std::vector<Member> members{victim.self(), {.rank = 1, .address = "127.0.0.1:1"}};
  std::thread joining(
      [&] { EXPECT_EQ(std::move(victim).Join(members).status().code(), Code::kDeadlineExceeded); });
  GroupSecret secret;
  secret.fill(std::byte(7));
  Hello hello{.group = "two", .epoch = 4, .token = 9, .rank = 1, .size = 2, .secret = true};
  hello.nonce.fill(std::byte(3));
  // The proof that the right peer would send to a listener with a different nonce.
  Hello listener = hello;
  listener.rank = 0;
  const ProofBytes proof =
      MakeProof(secret, Side::kConnects, EncodeHello(hello), EncodeHello(listener));
  const std::string answer =
      SendProof(hello, members[0].address,
                std::string_view(reinterpret_cast<const char*>(proof.data()), proof.size()));
  EXPECT_EQ(answer.size(), kHelloBytes + kProofBytes);  // and then it was closed
  joining.join();
}

// Python: hmac.new(bytes(range(32)), bytes([2]) + a + b, "sha512").digest()[:32]
TEST(HandshakeTest, ProofIsHmac) {
  GroupSecret secret;
  HelloBytes a, b;
  for (std::size_t i = 0; i < secret.size(); ++i) secret[i] = std::byte(i);
  a.fill(std::byte(1));
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = std::byte(i * 7 % 256);
  std::string text;
  for (const std::byte byte : MakeProof(secret, Side::kAccepts, a, b)) {
    text += fmt::format("{:02x}", std::uint8_t(byte));
  }
  EXPECT_EQ(text, "a82a6b6f6c4414cc397a59c313936a27fba987a8635bbbbd397df504b967543f");
  EXPECT_NE(MakeProof(secret, Side::kAccepts, a, b), MakeProof(secret, Side::kConnects, a, b));
  EXPECT_NE(MakeNonce(), MakeNonce());
}

TEST(HandshakeTest, RoundTripsAndRejectsAnyFlippedBit) {
  const HelloBytes hello =
      EncodeHello({.group = "g", .epoch = 1, .token = 2, .rank = 3, .size = 4});
  EXPECT_EQ(DecodeHello(hello)->rank, 3);
  const ControlBytes word = EncodeControl({.type = ControlWord::Type::kAbort,
                                           .code = Code::kUnavailable,
                                           .suspect = 2,
                                           .numbers = {1, 2, 3, 4},
                                           .text = std::string(1000, 'x')});
  EXPECT_EQ(DecodeControl(word)->text.size(), kControlTextMax);
  EXPECT_EQ(DecodeControl(word)->numbers[3], 4u);
  for (std::size_t bit = 0; bit < 8 * kHelloBytes; ++bit) {
    HelloBytes damaged = hello;
    damaged[bit / 8] ^= std::byte(1 << bit % 8);
    EXPECT_FALSE(DecodeHello(damaged).ok()) << bit;
  }
  for (std::size_t bit = 0; bit < 8 * kControlBytes; ++bit) {
    ControlBytes damaged = word;
    damaged[bit / 8] ^= std::byte(1 << bit % 8);
    EXPECT_FALSE(DecodeControl(damaged).ok()) << bit;
  }
}

}  // namespace
}  // namespace troop
