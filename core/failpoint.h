#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/status.h"

namespace troop {

// Places where a test lets this process die or hang, to see what that leaves behind. The
// environment variable
//   TROOP_FAILPOINT=<name>[:<n>[:<kill|hang>[:<file>]]]
// arms one: whoever reaches it for the n-th time (default: the first) gets a SIGKILL, or waits for
// ever. With a file, only the first process to get there does: it makes the file. Compiled in
// always; unset, a call costs a load and a branch. Any thread may call.
enum class Failpoint : int {
  kCheckpointBegin,      // nothing of the new one is on the disk
  kCheckpointFile,       // one more of its files is
  kCheckpointManifest,   // the manifest, too; it still has its temporary name
  kCheckpointAside,      // the old one of its name is moved aside, the new one not yet in place
  kCheckpointInstalled,  // in place; the old one of its name is still there
  kCheckpointTrim,       // before one that is too many is removed
  kDiskCreated,          // WriteAtomic: the temporary file is empty
  kDiskHalf,             // half of its bytes are written
  kDiskWritten,          // all of them, not synced
  kDiskSynced,           // synced, not renamed
  kDiskRenamed,          // renamed, its folder not synced
  kActorStep,            // before the environments of an actor step
  kEvaluatorStep,        // before those of the evaluator
};

// In the order of the enum.
std::span<const std::string_view> FailpointNames();

void Reach(Failpoint here);
// Reads the variable anew, which is otherwise read once: for a test's forked child. No other thread
// may be in Reach.
void RearmFailpoint();

struct FailpointOrder {
  Failpoint at{};
  std::int64_t n = 1;
  bool hang = false;
  std::string file;  // empty: every process
};
// Errors: kInvalidArgument with all names that there are.
Result<FailpointOrder> ParseFailpoint(std::string_view text);

}  // namespace troop
