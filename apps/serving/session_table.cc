// Implements the frame stacks of sessions, with expiry in the order of their use.
#include "apps/serving/session_table.h"

#include <algorithm>
#include <cstring>

namespace troop {

// The list is ordered by use, so the expired sessions are at its front.
void SessionTable::Expire(Time now) {
  while (!sessions_.empty() && now - sessions_.front().used >= options_.idle) {
    by_id_.erase(sessions_.front().id);
    sessions_.pop_front();
  }
}

// An unknown session must begin explicitly: after an expiry or a restart of the server, a stack of
// zeros and one frame would give a wrong action without an error.
Result<std::int64_t> SessionTable::Append(const Use& use, std::span<const std::byte> frame,
                                          Time now, std::span<std::byte> stacked) {
  Expire(now);
  auto found = by_id_.find(use.id);
  if (found == by_id_.end()) {
    if (!use.reset) {
      return FailedPrecondition(
          "session {} is unknown or has expired; begin an episode with reset = true", use.id);
    }
    if (sessions_.size() >= options_.sessions_max) {
      return ResourceExhausted("all {} sessions are in use; retry later, or raise --sessions",
                               options_.sessions_max);
    }
    sessions_.push_back({.id = use.id,
                         .stack = std::vector<std::byte>(options_.stack_bytes),
                         .state = std::vector<float>(options_.state_size)});
    found = by_id_.emplace(use.id, std::prev(sessions_.end())).first;
  }
  // The session exists from here on.
  Session& session = *found->second;
  if (use.reset) {
    std::ranges::fill(session.stack, std::byte{0});
    std::ranges::fill(session.state, 0.0f);
    session.frames = 0;
  }
  // The oldest frame leaves the stack.
  std::ranges::rotate(session.stack, session.stack.begin() + std::ptrdiff_t(frame.size()));
  std::ranges::copy(frame, session.stack.end() - std::ptrdiff_t(frame.size()));
  std::ranges::copy(session.stack, stacked.begin());
  session.used = now;
  sessions_.splice(sessions_.end(), sessions_, found->second);
  return ++session.frames;
}

std::span<float> SessionTable::StateOf(const std::string& id) {
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return {};
  return found->second->state;
}

}  // namespace troop
