#include "net/access.h"

#include <algorithm>
#include <span>

namespace troop {
namespace {

using enum MessageType;

// What each role says as itself. One line for each that calls anybody.
constexpr MessageType kActorSays[] = {kBeat, kInsert,    kDescribe, kDictionary,
                                      kPull, kShardPull, kInfer};
constexpr MessageType kEvaluatorSays[] = {kBeat, kPull, kShardPull};
constexpr MessageType kInferenceSays[] = {kBeat, kPull, kShardPull};
constexpr MessageType kLearnerSays[] = {kBeat,       kSample,      kUpdatePriorities, kDescribe,
                                        kDictionary, kReplayStats, kReplayCheckpoint, kPublish,
                                        kPull,       kShardPush,   kShardPull,        kFeed};
constexpr MessageType kReplaySays[] = {kBeat};
constexpr MessageType kParamServerSays[] = {kBeat, kShardState, kShardUpdate, kShardFetch};
constexpr MessageType kToolSays[] = {
    kStatus,           kScale,       kDescribe,    kDictionary,      kInsert, kSample,
    kUpdatePriorities, kReconfigure, kReplayStats, kReplayCheckpoint};
// Before the coordinator has said who it is, a role speaks as a tool.
constexpr MessageType kNewcomerSays[] = {kRegister, kJoin};

constexpr int kNumberBits = 24;

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
  if (key == Role::kNone) return FailedPrecondition("nobody comes in without a key here");
  const bool connects = message.type == kHeartbeat;  // Hello, beats and Goodbye of net/
  const bool newcomer = message.origin.role == Role::kTool && key != Role::kTool;
  if (message.origin.role != key && !newcomer) {
    return FailedPrecondition("a key of the role {} does not speak as {}; use that role's key",
                              RoleName(key), RoleName(message.origin.role));
  }
  if (newcomer && message.origin.index != NewcomerIndex(key, message.origin.index)) {
    return FailedPrecondition("a key of the role {} does not ask for another role; use that role's",
                              RoleName(key));
  }
  const std::span<const MessageType> says =
      newcomer ? std::span<const MessageType>(kNewcomerSays) : SaidBy(key);
  if (connects || std::ranges::find(says, message.type) != says.end()) return Status::Ok();
  return FailedPrecondition("a key of the role {} does not allow messages of type {}{}",
                            RoleName(key), int(message.type),
                            newcomer ? " before it has registered" : "");
}

}  // namespace troop
