// Implements CheckAccess: the message types that each role may send.
#include "net/security/access_control.h"

#include <algorithm>
#include <span>

namespace troop {
namespace {

using enum MessageType;

// Message types that a registered role may send.
constexpr MessageType kActorSays[] = {kMemberHeartbeat, kInsert, kDescribe, kDictionary, kPull,
                                      kShardPull,       kInfer};
constexpr MessageType kEvaluatorSays[] = {kMemberHeartbeat, kPull, kShardPull};
constexpr MessageType kInferenceSays[] = {kMemberHeartbeat, kPull, kShardPull};
constexpr MessageType kLearnerSays[] = {kMemberHeartbeat,  kSample,     kUpdatePriorities,
                                        kDescribe,         kDictionary, kReplayStats,
                                        kReplayCheckpoint, kPublish,    kPull,
                                        kShardPush,        kShardPull,  kTableDelta};
constexpr MessageType kReplaySays[] = {kMemberHeartbeat};
constexpr MessageType kParamServerSays[] = {kMemberHeartbeat, kShardState, kShardUpdate,
                                            kShardFetch};
constexpr MessageType kToolSays[] = {
    kStatus,           kScale,       kDescribe,    kDictionary,      kInsert, kSample,
    kUpdatePriorities, kReconfigure, kReplayStats, kReplayCheckpoint};
// Message types of a role before registration, when it sends as a tool.
constexpr MessageType kNewcomerSays[] = {kRegister, kJoin};

// Low bits of a newcomer's index that hold its number; the role is above them.
constexpr int kNumberBits = 24;

// Returns the message types of a registered role; none for the coordinator, which calls no other
// role.
std::span<const MessageType> SaidBy(Role role) {
  switch (role) {
    case Role::kActor:
      return kActorSays;
    case Role::kEvaluator:
      return kEvaluatorSays;
    case Role::kInference:
      return kInferenceSays;
    case Role::kLearner:
      return kLearnerSays;
    case Role::kReplay:
      return kReplaySays;
    case Role::kParamServer:
      return kParamServerSays;
    case Role::kTool:
      return kToolSays;
    default:
      return {};
  }
}

}  // namespace

std::int32_t NewcomerIndex(Role role, std::int32_t number) {
  return std::int32_t(int(role) << kNumberBits) | (number & ((1 << kNumberBits) - 1));
}

Status CheckAccess(Role key, const Message& message) {
  if (key == Role::kNone)
    return FailedPrecondition("connections without a key are not accepted here");
  const bool connects = message.type == kHeartbeat;  // Hello, heartbeat and Goodbye of net/
  // A process without an assigned role acts as a tool, with an index from NewcomerIndex.
  const bool newcomer = message.origin.role == Role::kTool && key != Role::kTool;
  if (message.origin.role != key && !newcomer) {
    return FailedPrecondition("a key of the role {} can't act as {}; use the key of that role",
                              RoleName(key), RoleName(message.origin.role));
  }
  if (newcomer && message.origin.index != NewcomerIndex(key, message.origin.index)) {
    return FailedPrecondition(
        "a key of the role {} can't register another role; use the key of that role",
        RoleName(key));
  }
  const std::span<const MessageType> says =
      newcomer ? std::span<const MessageType>(kNewcomerSays) : SaidBy(key);
  if (connects || std::ranges::find(says, message.type) != says.end()) return Status::Ok();
  return FailedPrecondition("a key of the role {} does not permit messages of type {}{}",
                            RoleName(key), int(message.type),
                            newcomer ? " before it has registered" : "");
}

}  // namespace troop
