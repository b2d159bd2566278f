#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/buffer.h"

namespace troop {

// Default limit of a message: the weights of 500 million parameters. Memory is taken as the bytes
// arrive, and a connection without a valid first message is cut off much earlier
// (net/security/tcp_guard.h).
inline constexpr std::size_t kMessageBytesMax = std::size_t{2} << 30;

// Roles. The values are part of the wire format; add at the end.
enum class Role : std::uint8_t {
  kNone = 0,
  kCoordinator = 1,
  kActor = 2,
  kReplay = 3,
  kLearner = 4,
  kParamServer = 5,
  kEvaluator = 6,
  kInference = 7,
  kTool = 8
};
std::string_view RoleName(Role role);  // "actor", …
// True if processes of this role listen for other roles besides the coordinator.
constexpr bool Serves(Role role) {
  return role == Role::kReplay || role == Role::kParamServer || role == Role::kInference;
}

// Message types, grouped by owner. The values are part of the wire format.
// clang-format off
enum class MessageType : std::uint16_t {
  kNone = 0,
  kHeartbeat = 1,  // internal to net/, in both directions
  kError = 2,  // reply with code and text in the body
  // replay/
  kInsert = 16, kInsertReply = 17, kSample = 18, kSampleReply = 19, kUpdatePriorities = 20,
  kUpdatePrioritiesReply = 21, kReplayStats = 22, kReplayStatsReply = 23, kDescribe = 24,
  kDescribeReply = 25, kDictionary = 26, kDictionaryReply = 27, kReconfigure = 28,
  kReconfigureReply = 29, kReplayCheckpoint = 30, kReplayCheckpointReply = 31,
  // paramserver/
  kPublish = 32, kPublishReply = 33, kPull = 34, kPullReply = 35,
  kShardPush = 36, kShardPushReply = 37, kShardPull = 38, kShardPullReply = 39,
  kShardState = 40, kShardStateReply = 41, kShardUpdate = 42, kShardUpdateReply = 43,
  kShardFetch = 44, kShardFetchReply = 45,
  // replay/ again
  kTableDelta = 46, kTableDeltaReply = 47,
  // coordinator (fleet/)
  kRegister = 48, kRegisterReply = 49, kMemberHeartbeat = 50, kMemberHeartbeatReply = 51,
  kLease = 52, kLeaseReply = 53,
  kStatus = 54, kStatusReply = 55, kScale = 56, kScaleReply = 57, kJoin = 58,
  kJoinReply = 59,
  // actors/
  kInfer = 64, kInferReply = 65,
  kTest = 1000, kTestReply = 1001,
};
// clang-format on

// Identity of the sender and of the call: what exactly-once handling needs with bounded memory. A
// server keeps the answers of calls in [oldest_open, sequence] and drops older ones.
struct Origin {
  Role role = Role::kNone;
  std::int32_t index = 0;
  std::uint64_t incarnation = 0;  // increases with each restart; older ones are fenced
  std::uint64_t epoch = 0;        // membership epoch
  std::uint64_t sequence = 0;     // set by the channel; starts at 1
  std::uint64_t oldest_open = 0;  // set by the channel; calls below were answered
};

// A small body (encoded by net/wire/codec.h) and payload parts. Parts of 256 KiB and more are sent
// without copies; smaller ones are gathered once. Received parts are aligned: small ones to 64
// bytes, big ones at least to 8.
struct Message {
  MessageType type = MessageType::kNone;
  Origin origin;
  std::string body;
  std::vector<Buffer> parts;
  // For a received call: the role of the connection's key; kNone without keys. Not transmitted.
  Role key = Role::kNone;
};

}  // namespace troop
