#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/status.h"
#include "core/time.h"
#include "net/keys.h"
#include "net/message.h"

namespace troop {

// A run's folder while somebody works in it, for commands that ask what goes on there.

// The process that holds it.
struct RunHolder {
  bool alive = false;
  long process = 0;      // 0: unknown
  bool stopped = false;  // by a signal: it lives and does nothing
};
// Asks without taking the lock or changing its file. `root`: the folder's path.
RunHolder HolderOf(const std::string& root);
// How a run ended that left no result, on a disk with so much space.
std::string EndWithoutResult(std::uint64_t bytes_free);
// Why a run without a result says nothing. `given`: how the user called the folder.
Status SilenceOf(const std::string& root, const RunHolder& holder, const std::string& given);
// Who asks a coordinator without being a member: of another name than all others who do, on any
// machine, as equal ones would take each other for an older self. role: what its key stands for.
Origin StrangersOrigin(Role role);
// What a coordinator answers to one who is no member. Errors: kDeadlineExceeded: nothing, for
// `patience`; kFailedPrecondition: the keys don't fit; or what it answered.
Result<Message> Ask(const std::string& endpoint, Message question, Duration patience,
                    std::shared_ptr<const KeyRing> keys);
// The same of a coordinator that may not be there yet: its name has no address, or nobody answers.
// Tries until `patience` is over, and says so once on standard error.
Result<Message> AskPatiently(const std::string& endpoint, const Message& question,
                             Duration patience, std::shared_ptr<const KeyRing> keys);
// The coordinator's answer; blocks for `patience` at most. Errors: kUnavailable: it does not
// answer, and why; or what it answered.
Result<Message> AskRun(const std::string& root, const std::string& given, Message question,
                       Duration patience);

}  // namespace troop
