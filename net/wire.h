#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/buffer.h"
#include "core/status.h"
#include "core/version.h"
#include "net/message.h"

namespace troop {

// How a Message lies on the wire. The first frame, little endian:
//    0 u32 magic            4 u32 CRC-32C of everything in this frame after it
//    8 u16 wire version    10 u16 message type   12 u16 flags   14 u8 role   15 u8 zero
//   16 i32 index           20 u32 number of parts
//   24 u64 incarnation     32 u64 epoch          40 u64 sequence   48 u64 oldest_open
//   56 u64 channel         64 u64 session        72 u64 bytes of the body
//   80 one entry per part: u64 bytes, u32 CRC-32C (big parts with kFlagPartsChecked, else 0), u32 0
//   then the body, then all small parts, without gaps
// Each big part follows as a frame of its own. Magic, CRC and version keep their places in every
// future version, so that a stranger is told apart from damage.
inline constexpr std::uint32_t kWireMagic = 0x50525424;  // "$TRP"
inline constexpr std::size_t kHeaderBytes = 80;
inline constexpr std::size_t kPartEntryBytes = 16;
// From here on, a part goes as a frame of its own without a copy; below, one more copy costs less
// than one more frame and its reference count.
inline constexpr std::size_t kBigPartBytes = std::size_t{256} << 10;

// What a frame is; exactly one of the first six.
enum WireFlag : std::uint16_t {
  kFlagCall = 1,
  kFlagReply = 2,     // also kError with sequence 0: the whole channel is refused
  kFlagHello = 4,     // client, on each new connection: may I call?
  kFlagWelcome = 8,   // server: yes, in this session
  kFlagBeat = 16,     // both: my node makes progress
  kFlagGoodbye = 32,  // client: forget me
  // Big parts carry checksums: not needed within one machine. A reply has them where its call had.
  kFlagPartsChecked = 64,
  // Of Hello and Welcome, within one machine: big parts that come here may be tickets of
  // net/part_memory.h, each a frame of sizeof(PartTicket) in the place of its bytes.
  kFlagShares = 128,
};

// The part of a header that is net/'s own. `channel` is drawn at random by each Channel: two
// channels of one origin count their sequences apart. `session` names the server's memory: a server
// draws it anew at each start and handles only calls that carry it, so a call can't be mistaken for
// a first one by a server that has forgotten it.
struct Envelope {
  std::uint16_t flags = 0;
  std::uint64_t channel = 0;
  std::uint64_t session = 0;
};

struct WireLimits {
  std::size_t message_bytes_max = kMessageBytesMax;  // body and parts
  int parts_max = 4096;
};

// What became of a message.
enum class SendResult {
  kSent,
  kFull,  // no room for this peer: later
  kGone,  // no such peer
};

inline bool IsBigPart(std::size_t bytes) { return bytes >= kBigPartBytes; }
// Body and parts.
std::size_t PayloadBytes(const Message& message);
// kInvalidArgument when the other side would refuse it.
Status CheckSendable(const Message& message, const WireLimits& limits);

std::size_t FirstFrameBytes(const Message& message);
// REQUIRES: out.size() == FirstFrameBytes(message).
void EncodeFirstFrame(const Envelope& envelope, const Message& message, std::span<std::byte> out);

struct WireHeader {
  Envelope envelope;
  MessageType type = MessageType::kNone;
  Origin origin;
  std::size_t body_bytes = 0;
  int parts = 0;
  int big_parts = 0;  // frames that must follow
};

// Checks every length, bound, reserved bit and the checksum of a first frame. Allocates nothing
// unless it fails. Errors: kDataLoss: garbage or damage; kFailedPrecondition: another wire version.
Result<WireHeader> CheckFirstFrame(std::span<const std::byte> frame, const WireLimits& limits);

// REQUIRES: `header` came from CheckFirstFrame(frame). The body and small parts are copied (parts
// 64-byte aligned), big frames are kept. Errors: kDataLoss: the wrong frames follow.
Result<Message> DecodeMessage(const WireHeader& header, std::span<const std::byte> frame,
                              std::vector<Buffer> big_frames);

}  // namespace troop
