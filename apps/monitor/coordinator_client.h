#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/base/status.h"
#include "core/base/time.h"
#include "net/message.h"
#include "net/security/keys.h"

namespace troop {

// Access to a live run, for commands that query it by its folder or its coordinator's address.

// The process that holds the lock of a run folder.
struct RunOwner {
  bool alive = false;
  long process = 0;      // 0: unknown
  bool stopped = false;  // by SIGSTOP: alive but suspended
};
// Reads the holder without taking the lock. `root`: path of the run folder.
RunOwner FindOwner(const std::string& root);
// How a run without a result ended, given the free space of its disk.
std::string EndWithoutResult(std::uint64_t bytes_free);
// Why a run without a result does not answer. `given`: the run folder as the user wrote it.
Status ExplainNoResponse(const std::string& root, const RunOwner& holder, const std::string& given);
// Identity of a client that is not a member. It is random, because the coordinator would treat two
// clients of one identity as restarts of each other. role: the role of its key.
Origin GuestOrigin(Role role);
// Sends one request to a coordinator as a non-member and returns the reply. Blocks for at most
// `patience`. Errors: kDeadlineExceeded: no reply; kFailedPrecondition: the keys do not match; or
// the coordinator's error.
Result<Message> Ask(const std::string& endpoint, Message question, Duration patience,
                    std::shared_ptr<const KeyRing> keys);
// Like Ask, for a coordinator that may not be up yet: retries for `patience` while its name does
// not resolve or it does not answer. Prints that once to standard error.
Result<Message> CallWithRetry(const std::string& endpoint, const Message& question,
                              Duration patience, std::shared_ptr<const KeyRing> keys);
// Sends a request to the coordinator of the run at `root`. Blocks for at most `patience`. Errors:
// kUnavailable: no answer, with the reason; or the coordinator's error.
Result<Message> CallCoordinator(const std::string& root, const std::string& given, Message question,
                                Duration patience);

}  // namespace troop
