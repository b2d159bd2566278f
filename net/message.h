#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/buffer.h"

namespace troop {

// Default limit of a message: the weights of 500 million parameters. Memory is taken as the bytes
// arrive, and a connection without a valid first message is cut off much earlier (net/tcp_guard.h).
inline constexpr std::size_t kMessageBytesMax = std::size_t{2} << 30;

// Fixed numbers: they travel. Add at the end.
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
// Whether its processes listen for others of the fleet, beside the coordinator.
constexpr bool Serves(Role role) {
  return role == Role::kReplay || role == Role::kParamServer || role == Role::kInference;
}

// clang-format off
enum class MessageType : std::uint16_t {
  kNone = 0,
  kHeartbeat = 1,       // net/ itself, both ways
  kError = 2,           // a reply: body holds code and text
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
  kFeed = 46, kFeedReply = 47,
  // coordinator (apps/)
  kRegister = 48, kRegisterReply = 49, kBeat = 50, kBeatReply = 51, kLease = 52, kLeaseReply = 53,
  kStatus = 54, kStatusReply = 55, kScale = 56, kScaleReply = 57, kJoin = 58,
  kJoinReply = 59,
  // actors/
  kInfer = 64, kInferReply = 65,
  kTest = 1000, kTestReply = 1001,
};
// clang-format on

// Who sends, and which of its calls this is: what exactly-once needs, in bounded memory. A server
// remembers the replies of calls in [oldest_open, sequence] and forgets older ones.
struct Origin {
  Role role = Role::kNone;
  std::int32_t index = 0;
  std::uint64_t incarnation = 0;  // grows with each restart; an older one is fenced
  std::uint64_t epoch = 0;        // of membership
  std::uint64_t sequence = 0;     // set by the channel; from 1
  std::uint64_t oldest_open = 0;  // set by the channel; calls below were answered
};

// A small body (a codec's bytes) and payload parts. Parts of 256 KiB and more travel without
// copies; smaller ones are gathered once. Received parts are aligned: small ones to 64 bytes, big
// ones at least to 8.
struct Message {
  MessageType type = MessageType::kNone;
  Origin origin;
  std::string body;
  std::vector<Buffer> parts;
  // Of a received call: the role that its connection's key stands for; kNone: there are no keys
  // here. It does not travel.
  Role key = Role::kNone;
};

}  // namespace troop
