// Implements the wire format: encoding of the first frame, validation, and decoding.
#include "net/wire/frame.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/base/check.h"
#include "core/storage/crc32c.h"
#include "net/wire/archive.h"

namespace troop {
namespace {

static_assert(std::endian::native == std::endian::little, "headers are encoded as in memory");

constexpr std::size_t kCrcEnd = 8;  // start of the bytes that the checksum covers
// Exactly one of these flags must be set.
constexpr std::uint16_t kKindFlags =
    kFlagCall | kFlagReply | kFlagHello | kFlagWelcome | kFlagHeartbeat | kFlagGoodbye;
constexpr std::uint8_t kRoleMax = static_cast<std::uint8_t>(Role::kTool);

// Fields are copied with memcpy, because frames need not be aligned.
template <class T>
void Put(std::byte* frame, std::size_t offset, T value) {
  std::memcpy(frame + offset, &value, sizeof value);
}

template <class T>
T Get(std::span<const std::byte> frame, std::size_t offset) {
  T value;
  std::memcpy(&value, frame.data() + offset, sizeof value);
  return value;
}

// Size and checksum in the entry of a part.
std::size_t PartBytes(std::span<const std::byte> frame, int part) {
  return Get<std::uint64_t>(frame, kHeaderBytes + kPartEntryBytes * static_cast<std::size_t>(part));
}

std::uint32_t PartCrc(std::span<const std::byte> frame, int part) {
  return Get<std::uint32_t>(frame,
                            kHeaderBytes + kPartEntryBytes * static_cast<std::size_t>(part) + 8);
}

// Validates all lengths and sets the counts of `header`. Sums can't overflow: each term is compared
// with the rest of the limit before it is added.
Status CheckLengths(std::span<const std::byte> frame, const WireLimits& limits,
                    WireHeader& header) {
  const auto parts = Get<std::uint32_t>(frame, 20);
  const auto body = Get<std::uint64_t>(frame, 72);
  // The table of parts must lie within the frame before one of its entries is read.
  if (parts > static_cast<std::uint32_t>(limits.parts_max) ||
      parts > (frame.size() - kHeaderBytes) / kPartEntryBytes) {
    return DataLoss("a message claims {} parts in {} bytes (limit {})", parts, frame.size(),
                    limits.parts_max);
  }
  if (body > kBodyBytesMax || body > limits.message_bytes_max) {
    return DataLoss("a message claims a body of {} bytes (limit {})", body,
                    std::min(kBodyBytesMax, limits.message_bytes_max));
  }
  header.parts = static_cast<int>(parts);
  header.body_bytes = body;
  const bool checked = (header.envelope.flags & kFlagPartsChecked) != 0;
  // `total` counts the payload of all frames, `here` the bytes that this frame must have.
  std::size_t total = body;
  std::size_t here = kHeaderBytes + kPartEntryBytes * parts + body;
  for (int i = 0; i < header.parts; ++i) {
    // Small parts are in this frame; big ones follow as frames.
    const std::size_t bytes = PartBytes(frame, i);
    if (bytes > limits.message_bytes_max - total) {
      return DataLoss("a message claims more than {} bytes", limits.message_bytes_max);
    }
    total += bytes;
    if (IsBigPart(bytes)) {
      ++header.big_parts;
    } else {
      here += bytes;
    }
    // Reserved fields must be zero, and only checked big parts have a checksum.
    if (Get<std::uint32_t>(frame, kHeaderBytes + kPartEntryBytes * i + 12) != 0 ||
        (!(checked && IsBigPart(bytes)) && PartCrc(frame, i) != 0)) {
      return DataLoss("a message has an invalid part entry");
    }
  }
  // Surplus bytes are an error too, because no field would account for them.
  if (here != frame.size()) {
    return DataLoss("a message of {} bytes claims {}", frame.size(), here);
  }
  return Status::Ok();
}

}  // namespace

std::size_t PayloadBytes(const Message& message) {
  std::size_t bytes = message.body.size();
  for (const Buffer& part : message.parts) bytes += part.size();
  return bytes;
}

// Checks at the sender, where an oversized message is the caller's error. A receiver would close
// the connection.
Status CheckSendable(const Message& message, const WireLimits& limits) {
  if (message.body.size() > kBodyBytesMax) {
    return InvalidArgument("a body of {} bytes exceeds the limit of {}; send large data as parts",
                           message.body.size(), kBodyBytesMax);
  }
  if (message.parts.size() > static_cast<std::size_t>(limits.parts_max)) {
    return InvalidArgument("{} parts exceed the limit of {} (NetworkOptions::parts_max)",
                           message.parts.size(), limits.parts_max);
  }
  const std::size_t bytes = PayloadBytes(message);
  if (bytes > limits.message_bytes_max) {
    return InvalidArgument(
        "a message of {} bytes exceeds the limit of {} (NetworkOptions::message_bytes_max); "
        "send it in pieces",
        bytes, limits.message_bytes_max);
  }
  return Status::Ok();
}

std::size_t FirstFrameBytes(const Message& message) {
  std::size_t bytes = kHeaderBytes + kPartEntryBytes * message.parts.size() + message.body.size();
  for (const Buffer& part : message.parts) {
    if (!IsBigPart(part.size())) bytes += part.size();
  }
  return bytes;
}

// Order in the frame: header, entries of the parts, body, small parts.
void EncodeFirstFrame(const Envelope& envelope, const Message& message, std::span<std::byte> out) {
  std::byte* const frame = out.data();
  const Origin& origin = message.origin;
  // Header, in the layout of wire.h; the checksum at offset 4 is computed last.
  Put(frame, 0, kWireMagic);
  Put(frame, 8, kWireVersion);
  Put(frame, 10, static_cast<std::uint16_t>(message.type));
  Put(frame, 12, envelope.flags);
  Put(frame, 14, static_cast<std::uint8_t>(origin.role));
  Put(frame, 15, std::uint8_t{0});
  Put(frame, 16, origin.index);
  Put(frame, 20, static_cast<std::uint32_t>(message.parts.size()));
  Put(frame, 24, origin.incarnation);
  Put(frame, 32, origin.epoch);
  Put(frame, 40, origin.sequence);
  Put(frame, 48, origin.oldest_open);
  Put(frame, 56, envelope.channel);
  Put(frame, 64, envelope.session);
  Put(frame, 72, static_cast<std::uint64_t>(message.body.size()));
  const bool check_parts = (envelope.flags & kFlagPartsChecked) != 0;
  std::size_t entry = kHeaderBytes;
  for (const Buffer& part : message.parts) {
    const bool checked = check_parts && IsBigPart(part.size());
    Put(frame, entry, static_cast<std::uint64_t>(part.size()));
    Put(frame, entry + 8, checked ? Crc32c(part.bytes()) : std::uint32_t{0});
    Put(frame, entry + 12, std::uint32_t{0});
    entry += kPartEntryBytes;
  }
  // Big parts follow as separate frames.
  std::byte* end = std::copy_n(reinterpret_cast<const std::byte*>(message.body.data()),
                               message.body.size(), frame + entry);
  for (const Buffer& part : message.parts) {
    if (!IsBigPart(part.size())) end = std::copy_n(part.data(), part.size(), end);
  }
  TROOP_CHECK(end == frame + out.size(), "the frame has {} bytes, {} were written", out.size(),
              end - frame);
  Put(frame, 4, Crc32c(out.subspan(kCrcEnd)));
}

Result<WireHeader> CheckFirstFrame(std::span<const std::byte> frame, const WireLimits& limits) {
  if (frame.size() < kHeaderBytes) {
    return DataLoss("a message of {} bytes is shorter than a header ({})", frame.size(),
                    kHeaderBytes);
  }
  // Order of the checks: magic, checksum, version, flags, lengths. Later fields are only trusted
  // after earlier checks.
  if (Get<std::uint32_t>(frame, 0) != kWireMagic) {
    return DataLoss("a message does not start with Troop's magic number");
  }
  if (Get<std::uint32_t>(frame, 4) != Crc32c(frame.subspan(kCrcEnd))) {
    return DataLoss("a message of {} bytes has a wrong checksum", frame.size());
  }
  // Not kDataLoss: the transport replies to a peer with another version instead of closing the
  // connection.
  if (const auto version = Get<std::uint16_t>(frame, 8); version != kWireVersion) {
    return FailedPrecondition(
        "the peer uses wire version {}, this program version {}: run the same release of troop on "
        "both",
        version, kWireVersion);
  }
  WireHeader header;
  const auto flags = Get<std::uint16_t>(frame, 12);
  const auto role = Get<std::uint8_t>(frame, 14);
  if (!std::has_single_bit(static_cast<unsigned>(flags & kKindFlags)) ||
      (flags & ~(kKindFlags | kFlagPartsChecked | kFlagShares)) != 0 || role > kRoleMax ||
      Get<std::uint8_t>(frame, 15) != 0) {
    return DataLoss("a message has unknown flags {:#x} or role {}", flags, role);
  }
  header.envelope = {flags, Get<std::uint64_t>(frame, 56), Get<std::uint64_t>(frame, 64)};
  header.type = static_cast<MessageType>(Get<std::uint16_t>(frame, 10));
  header.origin = {.role = static_cast<Role>(role),
                   .index = Get<std::int32_t>(frame, 16),
                   .incarnation = Get<std::uint64_t>(frame, 24),
                   .epoch = Get<std::uint64_t>(frame, 32),
                   .sequence = Get<std::uint64_t>(frame, 40),
                   .oldest_open = Get<std::uint64_t>(frame, 48)};
  TROOP_RETURN_IF_ERROR(CheckLengths(frame, limits, header));
  return header;
}

// Small parts are copied out of the frame; big frames become parts without a copy.
Result<Message> DecodeMessage(const WireHeader& header, std::span<const std::byte> frame,
                              std::vector<Buffer> big_frames) {
  if (big_frames.size() != static_cast<std::size_t>(header.big_parts)) {
    return DataLoss("{} frames follow a message that requires {}", big_frames.size(),
                    header.big_parts);
  }
  Message message{.type = header.type, .origin = header.origin};
  const std::size_t body = kHeaderBytes + kPartEntryBytes * static_cast<std::size_t>(header.parts);
  message.body.assign(reinterpret_cast<const char*>(frame.data() + body), header.body_bytes);
  if (header.parts == 0) return message;

  // All small parts share one aligned allocation.
  std::size_t padded = 0;
  for (int i = 0; i < header.parts; ++i) {
    const std::size_t bytes = PartBytes(frame, i);
    if (!IsBigPart(bytes)) padded += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  MutableBuffer block(padded);
  // Small parts are padded to the alignment when copied.
  std::size_t from = body + header.body_bytes;
  std::size_t to = 0;
  for (int i = 0; i < header.parts; ++i) {
    const std::size_t bytes = PartBytes(frame, i);
    if (IsBigPart(bytes)) continue;
    if (bytes > 0) std::memcpy(block.data() + to, frame.data() + from, bytes);
    from += bytes;
    to += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  // Slices of the shared block, and the big frames in between, in the order of the parts.
  const Buffer small = std::move(block).Freeze();

  message.parts.reserve(static_cast<std::size_t>(header.parts));
  const bool check_parts = (header.envelope.flags & kFlagPartsChecked) != 0;
  std::size_t big = 0;
  to = 0;
  for (int i = 0; i < header.parts; ++i) {
    const std::size_t bytes = PartBytes(frame, i);
    if (!IsBigPart(bytes)) {
      message.parts.push_back(small.Slice(to, bytes));
      to += (bytes + kAlignment - 1) / kAlignment * kAlignment;
      continue;
    }
    Buffer& part = big_frames[big++];
    if (part.size() != bytes || (check_parts && Crc32c(part.bytes()) != PartCrc(frame, i))) {
      return DataLoss("part {} of {} bytes arrived with {} bytes or a wrong checksum", i, bytes,
                      part.size());
    }
    message.parts.push_back(std::move(part));
  }
  return message;
}

}  // namespace troop
