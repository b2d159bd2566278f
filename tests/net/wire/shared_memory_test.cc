#include "net/wire/shared_memory.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <set>
#include <utility>

#include "tests/core/temp_folder.h"
#include "tests/net/net_testing.h"

namespace troop {
namespace {

constexpr std::size_t kPart = 300'000;  // big, and takes a block of 512 KiB
constexpr std::size_t kBlock = 512 << 10;

Buffer Made(SharedBufferPool& memory, std::uint32_t seed, std::size_t bytes = kPart) {
  MutableBuffer part = *memory.Make(bytes);
  const Buffer text = TestBytes(bytes, seed);
  std::memcpy(part.data(), text.data(), bytes);
  return std::move(part).Freeze();
}
bool Equal(const Buffer& a, const Buffer& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

TEST(PartMemoryTest, ReadsPartInPlace) {
  SharedBufferPool memory({});
  SharedBufferReader reader;
  MutableBuffer writable = *memory.Make(kPart);
  std::byte* const bytes = writable.data();
  std::memset(bytes, 7, kPart);
  const Buffer part = std::move(writable).Freeze();
  const BufferHandle ticket = *memory.Share(part.Slice(64, 1000));
  const Result<Buffer> seen = reader.Open(ticket);
  ASSERT_TRUE(seen.ok()) << seen.status().ToString();
  EXPECT_EQ(seen->size(), 1000u);
  EXPECT_NE(seen->data(), part.data() + 64);  // another mapping
  EXPECT_EQ(seen->data()[999], std::byte{7});
  bytes[64] = std::byte{9};  // of the same memory
  EXPECT_EQ(seen->data()[0], std::byte{9});
  EXPECT_EQ(memory.bytes(), kBlock);
}

TEST(PartMemoryTest, CopiesForeignBytesOnce) {
  SharedBufferPool memory({});
  SharedBufferReader reader;
  const Buffer text = TestBytes(kPart + 5);
  // A slice of a part that was made here, misaligned, so that readers need a copy.
  const Buffer made = Made(memory, 3);
  for (const Buffer& part : {text, made.Slice(3, 270'000)}) {
    const Result<Buffer> seen = reader.Open(*memory.Share(part));
    ASSERT_TRUE(seen.ok()) << seen.status().ToString();
    EXPECT_TRUE(Equal(*seen, part));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(seen->data()) % 64, 0u);
  }
}

TEST(PartMemoryTest, ReusesBlockAfterAllHoldersReleaseIt) {
  SharedBufferPool memory({});
  SharedBufferReader reader;
  std::optional<Buffer> part = Made(memory, 1);
  const std::byte* const first = part->data();
  std::optional<Buffer> seen = *reader.Open(*memory.Share(*part));
  EXPECT_NE(Made(memory, 2).data(), first);  // it is held here
  EXPECT_TRUE(memory.IsShared(first + 100));
  const Buffer copy = *part;
  part.reset();
  EXPECT_NE(Made(memory, 2).data(), first);  // by a copy
  part = copy;
  const std::optional<BufferHandle> unopened = memory.Share(*part);
  part.reset();
  const_cast<Buffer&>(copy) = Buffer();
  EXPECT_NE(Made(memory, 2).data(), first);  // by two readers
  seen.reset();
  EXPECT_NE(Made(memory, 2).data(), first);  // by a reader that has not opened it yet
  EXPECT_TRUE(memory.IsShared(first));
  memory.RevokeHandle(*unopened);
  EXPECT_FALSE(memory.IsShared(first));
  std::set<const std::byte*> places;
  const Buffer a = Made(memory, 3), b = Made(memory, 4);
  EXPECT_TRUE(a.data() == first || b.data() == first);
  EXPECT_EQ(memory.bytes(), 2 * kBlock);
  EXPECT_FALSE(memory.IsShared(&places));
}

TEST(PartMemoryTest, LimitsSize) {
  SharedBufferPool memory({.bytes_max = 2 * kBlock});
  std::optional<Buffer> a = Made(memory, 1), b = Made(memory, 2);
  EXPECT_FALSE(memory.Make(kPart).has_value());
  EXPECT_FALSE(memory.Share(TestBytes(kPart)).has_value());
  EXPECT_TRUE(memory.Share(*a).has_value());  // takes nothing
  b.reset();
  EXPECT_FALSE(memory.Make(2 * kBlock).has_value());
  const Buffer small = Made(memory, 3, kBlock / 2);  // of another size: the unused one makes room
  EXPECT_EQ(memory.bytes(), kBlock + kBlock / 2);
}

TEST(PartMemoryTest, LimitsDescriptors) {
  SharedBufferPool memory({.blocks_max = 3});
  std::vector<Buffer> parts;
  for (std::uint32_t i = 0; i < 3; ++i) parts.push_back(Made(memory, i));
  EXPECT_FALSE(memory.Make(kPart).has_value());
  parts.pop_back();
  EXPECT_TRUE(memory.Make(4 * kPart).has_value());
}

TEST(PartMemoryTest, ReclaimsBlocksOfLostReaders) {
  ManualClock clock;
  SharedBufferPool memory(
      {.lost_after = Seconds(60), .idle_after = Seconds(1000), .clock = &clock});
  SharedBufferReader slow;
  std::optional<Buffer> part = Made(memory, 1);
  const Buffer text = Buffer::Copy(part->bytes());
  const Buffer seen = *slow.Open(*memory.Share(*part));  // a slow reader
  ASSERT_TRUE(memory.Share(*part).has_value());          // a reader that never opens it
  part.reset();
  const std::byte* const first = Made(memory, 2).data();
  EXPECT_EQ(memory.bytes(), 2 * kBlock);
  clock.Advance(Seconds(59));
  Made(memory, 2);
  EXPECT_EQ(memory.bytes(), 2 * kBlock);
  clock.Advance(Seconds(2));
  std::vector<Buffer> later;
  for (std::uint32_t i = 0; i < 4; ++i) later.push_back(Made(memory, 10 + i));
  EXPECT_EQ(later[0].data(), first);
  EXPECT_EQ(memory.bytes(), 4 * kBlock);  // the lost one is gone
  EXPECT_TRUE(Equal(seen, text));         // and its reader has it all the same
}

TEST(PartMemoryTest, FreesIdleBlocks) {
  ManualClock clock;
  SharedBufferPool memory({.clock = &clock});
  for (const std::uint32_t seed : {1, 2}) Made(memory, seed, seed * kPart);
  EXPECT_EQ(memory.bytes(), 3 * kBlock);
  clock.Advance(Seconds(31));
  Made(memory, 3, 4 * kPart);
  EXPECT_EQ(memory.bytes(), 4 * kBlock);
}

// ---- Bytes that are none of ours.

TEST(PartReaderTest, RejectsForgedTickets) {
  SharedBufferPool memory({});
  const Buffer part = Made(memory, 1);
  const BufferHandle good = *memory.Share(part);
  const auto refused = [&](const std::function<void(BufferHandle&)>& spoil, bool known) {
    SharedBufferReader reader;
    if (known) {
      EXPECT_TRUE(reader.Open(good).ok());
    }
    BufferHandle bad = good;
    spoil(bad);
    return reader.Open(bad).status().code();
  };
  for (const bool known : {false, true}) {
    EXPECT_EQ(refused([](BufferHandle& t) { t.id ^= 1; }, known), Code::kUnavailable);
    EXPECT_EQ(refused([](BufferHandle& t) { t.process = 0; }, known), Code::kUnavailable);
    EXPECT_EQ(refused([](BufferHandle& t) { t.descriptor = -1; }, known), Code::kUnavailable);
    EXPECT_EQ(refused([](BufferHandle& t) { t.descriptor = 1 << 30; }, known), Code::kUnavailable);
    EXPECT_EQ(refused([](BufferHandle& t) { t.bytes = kBlock + 8; }, known), Code::kDataLoss);
    EXPECT_EQ(refused([](BufferHandle& t) { t.bytes = ~0ull; }, known), Code::kDataLoss);
    EXPECT_EQ(refused([](BufferHandle& t) { t.offset = ~0ull - 7; }, known), Code::kDataLoss);
    EXPECT_EQ(refused([](BufferHandle& t) { t.offset = 4; }, known), Code::kDataLoss);
  }
}

// Files that are not blocks, and one that could shrink, so that a read past its end would crash.
TEST(PartReaderTest, RejectsFilesThatAreNotBlocks) {
  SharedBufferPool memory({});
  const Buffer part = Made(memory, 1);
  BufferHandle ticket = *memory.Share(part);
  const std::string real = "/proc/self/fd/" + std::to_string(ticket.descriptor);
  char head[4096];
  const int block = open(real.c_str(), O_RDONLY);
  ASSERT_EQ(read(block, head, sizeof head), ssize_t(sizeof head));
  close(block);
  const int unsealed = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(write(unsealed, head, sizeof head), ssize_t(sizeof head));
  ASSERT_EQ(ftruncate(unsealed, 4096 + kBlock), 0);
  TempFolder folder;
  const int plain = open((folder.path() + "/file").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(write(plain, head, sizeof head), ssize_t(sizeof head));
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  SharedBufferReader reader;
  for (const int fd : {unsealed, plain, ends[0], ends[1]}) {
    ticket.descriptor = fd;
    EXPECT_EQ(reader.Open(ticket).status().code(), Code::kUnavailable) << fd;
    close(fd);
  }
}

TEST(PartReaderTest, IgnoresFramesThatAreNotTickets) {
  SharedBufferPool memory({});
  BufferHandle ticket = *memory.Share(Made(memory, 1));
  const auto bytes = std::as_bytes(std::span(&ticket, 1));
  EXPECT_TRUE(SharedBufferReader::ParseHandle(bytes).has_value());
  EXPECT_FALSE(SharedBufferReader::ParseHandle(bytes.first(39)).has_value());
  ticket.magic ^= 1;
  EXPECT_FALSE(SharedBufferReader::ParseHandle(bytes).has_value());
}

// ---- Between processes.

TEST(PartMemoryTest, OpenedPartOutlivesItsProcess) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const SharedBufferPool* const ours = &SharedBufferPool::Get();
  const pid_t child = fork();
  if (child == 0) {
    if (&SharedBufferPool::Get() == ours) _exit(1);
    const Buffer part = CopyToSharedBuffer(TestBytes(kPart, 5).bytes());
    const BufferHandle ticket = *SharedBufferPool::Get().Share(part);
    if (write(ends[1], &ticket, sizeof ticket) != ssize_t(sizeof ticket)) _exit(2);
    for (;;) pause();
  }
  BufferHandle ticket;
  ASSERT_EQ(read(ends[0], &ticket, sizeof ticket), ssize_t(sizeof ticket));
  SharedBufferReader reader;
  const Result<Buffer> seen = reader.Open(ticket);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  ASSERT_TRUE(seen.ok()) << seen.status().ToString();
  EXPECT_TRUE(Equal(*seen, TestBytes(kPart, 5)));
  SharedBufferReader late;
  EXPECT_EQ(late.Open(ticket).status().code(), Code::kUnavailable);
  close(ends[0]);
  close(ends[1]);
}

// ---- Over a network.

// Descriptors of this process that hold blocks.
std::vector<int> Blocks() {
  std::vector<int> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code none;
    const std::string target = std::filesystem::read_symlink(entry, none);
    if (target.find("memfd:troop_part") != std::string::npos) {
      found.push_back(std::stoi(entry.path().filename()));
    }
  }
  return found;
}

class SharedPartsTest : public testing::Test {
 protected:
  Result<Message> Call(Channel& channel, Message message) {
    const Result<Ticket> ticket = channel.Send(message, kForever);
    EXPECT_TRUE(ticket.ok()) << ticket.status().ToString();
    const Time end = SystemClock().Now() + Seconds(20);
    std::optional<Result<Message>> answer;
    while (!(answer = channel.Poll(*ticket)) && SystemClock().Now() < end) {
      const Time now = SystemClock().Now();
      bool busy = server_net_->Pump(now);
      busy = client_net_->Pump(now) || busy;
      if (!busy) client_net_->Wait(now, now + Milliseconds(1));
    }
    return answer ? *std::move(answer) : Result<Message>(Internal("no answer within 20 s"));
  }
  std::unique_ptr<Channel> Connect(const std::string& endpoint) {
    listener_ = *server_net_->Listen(endpoint, &echo_);
    return *client_net_->Connect(listener_->endpoint(), ActorOptions());
  }

  TempFolder folder_;
  EchoService echo_;
  std::unique_ptr<Network> server_net_ = *MakeZmqNetwork(), client_net_ = *MakeZmqNetwork();
  std::unique_ptr<Listener> listener_;
};

TEST_F(SharedPartsTest, SendsBigLocalPartsAsTickets) {
  const auto channel = Connect("ipc://" + folder_.path() + "/s");
  const Buffer part = CopyToSharedBuffer(TestBytes(3'000'000, 8).bytes());
  const Result<Message> answer =
      Call(*channel, TestMessage("x", {part, TestBytes(10), TestBytes(kPart, 2)}));
  ASSERT_TRUE(answer.ok()) << answer.status().ToString();
  EXPECT_TRUE(Equal(answer->parts[0], part));
  EXPECT_TRUE(Equal(answer->parts[1], TestBytes(10)));
  EXPECT_TRUE(Equal(answer->parts[2], TestBytes(kPart, 2)));
  // The one that was made, a copy of the other, and copies of both in the answer.
  EXPECT_GE(SharedBufferPool::Get().bytes(), 2 * (std::size_t{4} << 20) + 2 * kBlock);
}

TEST_F(SharedPartsTest, SendsBytesOverTcp) {
  const auto channel = Connect("tcp://127.0.0.1:0");
  const std::size_t before = SharedBufferPool::Get().bytes();
  const Result<Message> answer = Call(*channel, TestMessage("x", {TestBytes(kPart, 2)}));
  ASSERT_TRUE(answer.ok()) << answer.status().ToString();
  EXPECT_TRUE(Equal(answer->parts[0], TestBytes(kPart, 2)));
  EXPECT_EQ(SharedBufferPool::Get().bytes(), before);
}

// Parts that cannot be mapped are sent over the socket, in both directions, and no call is lost.
TEST_F(SharedPartsTest, FallsBackToBytesWhenMemoryIsUnreadable) {
  const auto channel = Connect("ipc://" + folder_.path() + "/s");
  ASSERT_TRUE(Call(*channel, TestMessage("hello")).ok());
  const auto spoil = [](const std::vector<int>& but) {
    for (const int fd : Blocks()) {
      if (std::ranges::find(but, fd) != but.end()) continue;
      const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
      dup2(null, fd);
      close(null);
    }
  };
  const std::vector<int> old = Blocks();
  const Buffer unreadable = CopyToSharedBuffer(TestBytes(5'000'000, 4).bytes());
  spoil(old);  // the server can't open what it is sent
  const Result<Message> first = Call(*channel, TestMessage("first", {unreadable}));
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  EXPECT_TRUE(Equal(first->parts[0], unreadable));

  echo_.park = true;  // and now the client what it is answered
  const Result<Ticket> asked = [&] {
    Message message = TestMessage("second");
    return channel->Send(message, kForever);
  }();
  while (echo_.parked.empty()) {
    client_net_->Pump(SystemClock().Now());
    server_net_->Pump(SystemClock().Now());
  }
  const std::vector<int> known = Blocks();
  const Buffer answer = CopyToSharedBuffer(TestBytes(9'000'000, 6).bytes());
  spoil(known);
  echo_.parked[0].second.Send(
      {.type = MessageType::kTestReply, .body = "second", .parts = {answer}});
  std::optional<Result<Message>> second;
  const Time end = SystemClock().Now() + Seconds(20);
  while (!(second = channel->Poll(*asked)) && SystemClock().Now() < end) {
    client_net_->Pump(SystemClock().Now());
    server_net_->Pump(SystemClock().Now());
  }
  ASSERT_TRUE(second && second->ok());
  EXPECT_TRUE(Equal((*second)->parts[0], answer));
  EXPECT_EQ(echo_.bodies, (std::vector<std::string>{"hello", "first", "second"}));
}

}  // namespace
}  // namespace troop
