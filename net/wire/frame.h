#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/buffer.h"
#include "core/base/status.h"
#include "core/base/version.h"
#include "net/message.h"

namespace troop {

// The encoding of a Message. The first frame, little endian:
//    0 u32 magic            4 u32 CRC-32C of everything in this frame after it
//    8 u16 wire version    10 u16 message type   12 u16 flags   14 u8 role   15 u8 zero
//   16 i32 index           20 u32 number of parts
//   24 u64 incarnation     32 u64 epoch          40 u64 sequence   48 u64 oldest_open
//   56 u64 channel         64 u64 session        72 u64 bytes of the body
//   80 one entry per part: u64 bytes, u32 CRC-32C (big parts with kFlagPartsChecked, else 0), u32 0
//   then the body, then all small parts, without gaps
// Each big part follows as a separate frame. Magic, CRC and version keep their positions in every
// future version, so that another version can be distinguished from damage.
inline constexpr std::uint32_t kWireMagic = 0x50525424;  // "$TRP"
inline constexpr std::size_t kHeaderBytes = 80;
inline constexpr std::size_t kPartEntryBytes = 16;
// Size from which a part is sent as a separate frame without a copy. Below it, a copy costs less
// than another frame and its reference count.
inline constexpr std::size_t kBigPartBytes = std::size_t{256} << 10;

// Kinds of messages (exactly one of the first six flags is set), and options.
enum WireFlag : std::uint16_t {
  kFlagCall = 1,
  kFlagReply = 2,       // also kError with sequence 0, which rejects the whole channel
  kFlagHello = 4,       // client, on each new connection: requests a session
  kFlagWelcome = 8,     // server: accepts, and names the session
  kFlagHeartbeat = 16,  // both: heartbeat; the node makes progress
  kFlagGoodbye = 32,    // client: drop my state
  // Big parts have checksums, which are omitted within one machine. A reply has them if its call
  // had.
  kFlagPartsChecked = 64,
  // In Hello and Welcome within one machine: the sender accepts big parts as tickets of
  // net/wire/shared_memory.h, each a frame of sizeof(BufferHandle) instead of the bytes.
  kFlagShares = 128,
};

// The part of a header that is internal to net/. `channel` is a random number of each Channel,
// because the channels of one origin count their sequences separately. `session` identifies the
// state of the server: a server chooses a random session at each start and handles only calls that
// carry it. So a restarted server can't mistake a repeated call for a new one.
struct Envelope {
  std::uint16_t flags = 0;
  std::uint64_t channel = 0;
  std::uint64_t session = 0;
};

struct WireLimits {
  std::size_t message_bytes_max = kMessageBytesMax;  // body and all parts
  int parts_max = 4096;
};

// Result of sending a message.
enum class SendResult {
  kSent,
  kFull,  // the queue of this peer is full: retry
  kGone,  // no such peer
};

inline bool IsBigPart(std::size_t bytes) { return bytes >= kBigPartBytes; }
// Returns the size of the body and all parts.
std::size_t PayloadBytes(const Message& message);
// Checks the limits that the receiver enforces. Errors: kInvalidArgument.
Status CheckSendable(const Message& message, const WireLimits& limits);

std::size_t FirstFrameBytes(const Message& message);
// Encodes the first frame. REQUIRES: out.size() == FirstFrameBytes(message).
void EncodeFirstFrame(const Envelope& envelope, const Message& message, std::span<std::byte> out);

// The decoded header of a first frame.
struct WireHeader {
  Envelope envelope;
  MessageType type = MessageType::kNone;
  Origin origin;
  std::size_t body_bytes = 0;
  int parts = 0;
  int big_parts = 0;  // number of frames that must follow
};

// Checks every length, bound and reserved bit, and the checksum of a first frame. Allocates only on
// failure. Errors: kDataLoss: malformed or damaged; kFailedPrecondition: another wire version.
Result<WireHeader> CheckFirstFrame(std::span<const std::byte> frame, const WireLimits& limits);

// Decodes a message. REQUIRES: `header` is from CheckFirstFrame(frame). The body and small parts
// are copied (parts 64-byte aligned); big frames are moved. Errors: kDataLoss: the big frames do
// not match.
Result<Message> DecodeMessage(const WireHeader& header, std::span<const std::byte> frame,
                              std::vector<Buffer> big_frames);

}  // namespace troop
