#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "nn/policy_library/troop_policy.h"

namespace troop {

// A policy that its sessions keep loaded.
using SharedPolicy = std::shared_ptr<troop_policy>;

// Loads a policy file. Throws std::invalid_argument with the library's one line: no such file, a
// damaged file, or a file without the description of a policy.
SharedPolicy LoadSharedPolicy(const std::string& path);

// A session of libtroop_policy. One thread at a time. Its errors are std::invalid_argument, because
// each has its cause in an argument of the caller.
class PolicySession {
 public:
  // streams: 1 to kStreamsMax. Allocates all memory of later calls.
  static constexpr std::int64_t kStreamsMax = 65536;
  PolicySession(SharedPolicy policy, std::int64_t streams);
  ~PolicySession();
  PolicySession(const PolicySession&) = delete;
  PolicySession& operator=(const PolicySession&) = delete;

  const SharedPolicy& policy() const { return policy_; }
  std::int64_t streams() const { return streams_; }
  // The next observation of this stream (-1: of every one) begins an episode.
  void Reset(std::int64_t stream);

  // One call for the streams first .. first + count - 1.
  struct Call {
    std::int64_t first = 0, count = 1;
    const void* observations = nullptr;  // [count, ...shape]
    void* actions = nullptr;             // i32 [count], or f32 [count, size]
    float* values = nullptr;             // q [count, actions]; nullptr: not requested
  };
  void Act(const Call& call);

 private:
  const SharedPolicy policy_;
  const std::int64_t streams_;
  troop_policy_session* session_ = nullptr;
};

}  // namespace troop
