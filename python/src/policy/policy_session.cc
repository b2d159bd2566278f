// Implements sessions of libtroop_policy with exceptions in place of result codes.
#include "python/src/policy/policy_session.h"

#include <stdexcept>
#include <utility>

namespace troop {

SharedPolicy LoadSharedPolicy(const std::string& path) {
  char message[512] = "";
  const troop_policy_source source{.size = sizeof source,
                                   .abi = TROOP_POLICY_ABI,
                                   .path = path.c_str(),
                                   .message = message,
                                   .message_bytes = sizeof message};
  troop_policy* policy = nullptr;
  if (troop_policy_load(&source, &policy) != TROOP_POLICY_OK) throw std::invalid_argument(message);
  return {policy, troop_policy_unload};
}

PolicySession::PolicySession(SharedPolicy policy, std::int64_t streams)
    : policy_(std::move(policy)), streams_(streams) {
  if (streams < 1 || streams > kStreamsMax) {
    throw std::invalid_argument("there are " + std::to_string(streams) +
                                " observations, must be 1 to " + std::to_string(kStreamsMax) +
                                "; divide them among several calls");
  }
  // The arguments are valid, so only memory can lack.
  if (troop_policy_session_create(policy_.get(), streams, &session_) != TROOP_POLICY_OK)
    throw std::bad_alloc();
}

PolicySession::~PolicySession() { troop_policy_session_destroy(session_); }

// The library keeps the old frames until the next observation arrives.
void PolicySession::Reset(std::int64_t stream) {
  if (troop_policy_reset(session_, stream) != TROOP_POLICY_OK)
    throw std::invalid_argument(troop_policy_session_message(session_));
}

// The library has one part of an observation and one head of an action.
void PolicySession::Act(const Call& call) {
  void* const actions[] = {call.actions};
  const troop_policy_call all{.size = sizeof all,
                              .first = call.first,
                              .count = call.count,
                              .observations = &call.observations,
                              .actions = actions,
                              .values = call.values};
  if (troop_policy_act(session_, &all) != TROOP_POLICY_OK)
    throw std::invalid_argument(troop_policy_session_message(session_));
}

}  // namespace troop
