#include "net/wire/frame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "core/storage/crc32c.h"
#include "net/wire/archive.h"
#include "tests/net/net_testing.h"

namespace troop {
namespace {

using testing::HasSubstr;

using Frame = std::vector<std::byte>;
constexpr WireLimits kLimits;
constexpr Envelope kEnvelope{.flags = kFlagCall | kFlagPartsChecked, .channel = 77, .session = 99};

Message SampleMessage() {
  Message message = TestMessage("body", {TestBytes(5), TestBytes(kBigPartBytes), TestBytes(100)});
  message.origin = {.role = Role::kLearner,
                    .index = -1,
                    .incarnation = 2,
                    .epoch = 3,
                    .sequence = 5,
                    .oldest_open = 4};
  return message;
}

Frame Encode(const Message& message, const Envelope& envelope = kEnvelope) {
  Frame frame(FirstFrameBytes(message));
  EncodeFirstFrame(envelope, message, frame);
  return frame;
}

template <class T>
Frame With(Frame frame, std::size_t offset, T value) {
  std::memcpy(frame.data() + offset, &value, sizeof value);
  const std::uint32_t crc = Crc32c(std::span<const std::byte>(frame).subspan(8));
  std::memcpy(frame.data() + 4, &crc, sizeof crc);
  return frame;
}

Status Check(const Frame& frame, const WireLimits& limits = kLimits) {
  return CheckFirstFrame(frame, limits).status();
}

std::vector<Buffer> BigParts(const Message& message) {
  std::vector<Buffer> big;
  for (const Buffer& part : message.parts) {
    if (IsBigPart(part.size())) big.push_back(part);
  }
  return big;
}

TEST(WireTest, RoundTripsMessage) {
  const Message message = SampleMessage();
  const Frame frame = Encode(message);
  const auto header = CheckFirstFrame(frame, kLimits);
  ASSERT_TRUE(header.ok()) << header.status().ToString();
  EXPECT_EQ(header->envelope.flags, kEnvelope.flags);
  EXPECT_EQ(header->envelope.channel, 77u);
  EXPECT_EQ(header->envelope.session, 99u);
  EXPECT_EQ(header->big_parts, 1);
  const auto decoded = DecodeMessage(*header, frame, BigParts(message));
  ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
  EXPECT_EQ(decoded->type, MessageType::kTest);
  EXPECT_EQ(decoded->origin.role, Role::kLearner);
  EXPECT_EQ(decoded->origin.index, -1);
  EXPECT_EQ(decoded->origin.incarnation, 2u);
  EXPECT_EQ(decoded->origin.epoch, 3u);
  EXPECT_EQ(decoded->origin.sequence, 5u);
  EXPECT_EQ(decoded->origin.oldest_open, 4u);
  EXPECT_EQ(decoded->body, "body");
  ASSERT_EQ(decoded->parts.size(), 3u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(decoded->parts[i].text(), message.parts[i].text());
  EXPECT_EQ(decoded->parts[1].data(), message.parts[1].data()) << "big parts are not copied";
}

TEST(WireTest, AlignsSmallParts) {
  const Message message = TestMessage("odd", {TestBytes(1), TestBytes(7), TestBytes(65)});
  const Frame frame = Encode(message);
  const auto decoded = DecodeMessage(*CheckFirstFrame(frame, kLimits), frame, {});
  for (const Buffer& part : decoded->parts) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(part.data()) % kAlignment, 0u);
  }
}

// The header's layout is a promise to every other release: these bytes never change.
TEST(WireTest, HeaderMatchesDocumentedLayout) {
  Message message = TestMessage("B");
  message.origin = {Role::kActor, 0x01020304, 0x11, 0x12, 0x13, 0x14};
  const Frame frame = Encode(message, {.flags = kFlagReply, .channel = 0x15, .session = 0x16});
  ASSERT_EQ(frame.size(), kHeaderBytes + 1);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(frame.data()), 4), "$TRP");
  const auto at = [&](std::size_t i) { return std::to_integer<int>(frame[i]); };
  EXPECT_EQ(at(8), kWireVersion);
  EXPECT_EQ(at(10) + 256 * at(11), 1000);
  EXPECT_EQ(at(12), 2);
  EXPECT_EQ(at(14), 2);
  EXPECT_EQ(at(16), 4);
  EXPECT_EQ(at(19), 1);
  EXPECT_EQ(at(24), 0x11);
  EXPECT_EQ(at(32), 0x12);
  EXPECT_EQ(at(40), 0x13);
  EXPECT_EQ(at(48), 0x14);
  EXPECT_EQ(at(56), 0x15);
  EXPECT_EQ(at(64), 0x16);
  EXPECT_EQ(at(72), 1);
  EXPECT_EQ(at(80), 'B');
}

TEST(WireTest, RejectsEveryTruncatedFrame) {
  const Frame frame = Encode(SampleMessage());
  for (std::size_t size = 0; size < frame.size(); ++size) {
    EXPECT_EQ(Check(Frame(frame.begin(), frame.begin() + size)).code(), Code::kDataLoss) << size;
  }
}

TEST(WireTest, RejectsEveryFlippedBit) {
  const Frame frame = Encode(SampleMessage());
  for (std::size_t bit = 0; bit < 8 * frame.size(); ++bit) {
    Frame flipped = frame;
    flipped[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    EXPECT_EQ(Check(flipped).code(), Code::kDataLoss) << bit;
  }
}

TEST(WireTest, RejectsFlippedBitInBigPart) {
  const Message message = SampleMessage();
  const Frame frame = Encode(message);
  const auto header = CheckFirstFrame(frame, kLimits);
  MutableBuffer damaged(kBigPartBytes);
  std::memcpy(damaged.data(), message.parts[1].data(), kBigPartBytes);
  damaged.data()[100'000] ^= std::byte{4};
  EXPECT_EQ(DecodeMessage(*header, frame, {std::move(damaged).Freeze()}).status().code(),
            Code::kDataLoss);
}

TEST(WireTest, RejectsMismatchedFrames) {
  const Message message = SampleMessage();
  const Frame frame = Encode(message);
  const auto header = CheckFirstFrame(frame, kLimits);
  EXPECT_FALSE(DecodeMessage(*header, frame, {}).ok());
  EXPECT_FALSE(DecodeMessage(*header, frame, {TestBytes(kBigPartBytes - 1)}).ok());
  EXPECT_FALSE(DecodeMessage(*header, frame, {message.parts[1], message.parts[1]}).ok());
}

// From here on the checksum is right: a hostile peer can compute it too.

TEST(WireTest, RejectsSizesBeyondFrame) {
  const Frame frame = Encode(SampleMessage());
  for (const std::uint32_t parts : {0u, 2u, 4u, 4096u, 4097u, 0x7fffffffu, 0xffffffffu}) {
    EXPECT_EQ(Check(With(frame, 20, parts)).code(), Code::kDataLoss) << parts;
  }
  for (const std::uint64_t body :
       {std::uint64_t{0}, std::uint64_t{5}, std::uint64_t{kBodyBytesMax + 1}, ~std::uint64_t{0},
        ~std::uint64_t{0} - kHeaderBytes}) {
    EXPECT_EQ(Check(With(frame, 72, body)).code(), Code::kDataLoss) << body;
  }
  for (const std::uint64_t part :
       {std::uint64_t{0}, std::uint64_t{6}, std::uint64_t{kBigPartBytes - 1},
        std::uint64_t{1} << 30, ~std::uint64_t{0}, ~std::uint64_t{0} - 200}) {
    EXPECT_EQ(Check(With(frame, 80, part)).code(), Code::kDataLoss) << part;
  }
}

TEST(WireTest, EnforcesReceiverLimits) {
  const Frame frame = Encode(TestMessage("", {TestBytes(600), TestBytes(600)}));
  EXPECT_TRUE(Check(frame, {.message_bytes_max = 1200, .parts_max = 2}).ok());
  EXPECT_FALSE(Check(frame, {.message_bytes_max = 1199, .parts_max = 2}).ok());
  EXPECT_FALSE(Check(frame, {.message_bytes_max = 1200, .parts_max = 1}).ok());
}

TEST(WireTest, RejectsUnknownFlagsRolesAndReservedBytes) {
  const Frame frame = Encode(SampleMessage());
  for (const std::uint16_t flags : {0, 3, 64, 128 | 1, 0x8001}) {
    EXPECT_FALSE(Check(With(frame, 12, flags)).ok()) << flags;
  }
  EXPECT_FALSE(Check(With(frame, 14, std::uint8_t{9})).ok());
  EXPECT_FALSE(Check(With(frame, 15, std::uint8_t{1})).ok());
  EXPECT_FALSE(Check(With(frame, 80 + 12, std::uint32_t{1})).ok());
  EXPECT_FALSE(Check(With(frame, 80 + 8, std::uint32_t{1})).ok()) << "a small part's checksum";
}

TEST(WireTest, RejectsOtherVersionNamingIt) {
  for (const int version : {0, int(kWireVersion) - 1, kWireVersion + 1, 700}) {
    const Status status = Check(With(Encode(SampleMessage()), 8, std::uint16_t(version)));
    EXPECT_EQ(status.code(), Code::kFailedPrecondition);
    EXPECT_THAT(status.message(), HasSubstr(fmt::format("wire version {},", version)));
  }
}

TEST(WireTest, RejectsSendingBeyondReceiverLimits) {
  EXPECT_TRUE(CheckSendable(TestMessage("x", {TestBytes(9)}), {10, 1}).ok());
  EXPECT_FALSE(CheckSendable(TestMessage("x", {TestBytes(10)}), {10, 1}).ok());
  EXPECT_FALSE(CheckSendable(TestMessage("", {TestBytes(1), TestBytes(1)}), {10, 1}).ok());
  EXPECT_FALSE(CheckSendable(TestMessage(std::string(kBodyBytesMax + 1, 'x')), {}).ok());
}

}  // namespace
}  // namespace troop
