#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/base/status.h"
#include "core/base/time.h"

namespace troop {

// The frame stacks and recurrent states of clients that send one frame per request. One owner
// thread. Invariants: at most `sessions_max` sessions; the list is ordered by the time of the last
// use. Each call is O(1) besides the copy of a stack.
class SessionTable {
 public:
  struct Options {
    std::size_t sessions_max = 1024;
    Duration idle = Seconds(300);  // a session that is unused for this time ends
    std::size_t frame_bytes = 0;
    std::size_t stack_bytes = 0;  // a multiple of frame_bytes
    std::size_t state_size = 0;   // elements of a recurrent state
  };
  explicit SessionTable(const Options& options) : options_(options) {}

  // Identifies the session, and whether the frame is the first of an episode.
  struct Use {
    std::string id;
    bool reset = false;
  };
  // Appends a frame to the stack of a session, and copies the stack to `stacked` [stack_bytes].
  // Zeros precede an episode's first frame. Returns the number of frames since the reset. Errors:
  // kFailedPrecondition: the session is unknown and `reset` is not set, because frames before this
  // one may be missing; kResourceExhausted: the table is full.
  Result<std::int64_t> Append(const Use& use, std::span<const std::byte> frame, Time now,
                              std::span<std::byte> stacked);
  // The recurrent state of a session, [state_size], zeros at the start of an episode; the caller
  // replaces it after a step. Empty for an unknown session. Valid until the next Append.
  std::span<float> StateOf(const std::string& id);
  std::size_t size() const { return sessions_.size(); }

 private:
  struct Session {
    std::string id;
    std::vector<std::byte> stack;
    std::vector<float> state;
    std::int64_t frames = 0;
    Time used{};
  };
  void Expire(Time now);

  const Options options_;
  std::list<Session> sessions_;  // least recently used first
  std::unordered_map<std::string, std::list<Session>::iterator> by_id_;
};

}  // namespace troop
