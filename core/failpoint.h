#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/rng.h"
#include "core/status.h"

namespace troop {

// Places where a test lets this process die or hang, slows it down, or gives it a bad number, to
// see what comes of that. The environment variable
//   TROOP_FAILPOINT=<name>[:<n>[+][:<act>[:<file>]]][;...]
// arms one or, with semicolons, several:
//   kill, hang   whoever reaches the place for the n-th time (default: the first) gets a SIGKILL,
//                or waits for ever;
//   nan, inf     gets this instead of a good number, with a + at each later time, too;
//   fail         is told that what it works with has failed;
//   slow         takes n times as long, each time;
//   wild, sly    spoils one gradient in n, drawn by chance; wild: its loss, too.
// With a file, only the first process to get there is hit: it makes the file. Compiled in always;
// unset, a call costs a load and a branch. Any thread may call.
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
  // Of numbers:
  kActorReward,       // that the first environment of an actor gave
  kActorObservation,  // one of its observation, where that is f32
  kEvaluatorReward,   // that the first environment of an evaluation gave
  kLearnerGradient,   // of the first parameter
  kLearnerWeight,     // the same's value, after the optimizer's step
  kLearnerDevice,     // an update that a GPU has made: the GPU is of no use from there on
  // Of pace and of chance, in learners with parameter shards:
  kLearnerPace,  // a gradient, from asking for the parameters to pushing it
  kLearnerPush,  // what is pushed
};

// In the order of the enum.
std::span<const std::string_view> FailpointNames();

void Reach(Failpoint here);
// At a place of numbers: what is to be there instead of the good one.
std::optional<float> SpoiledNumber(Failpoint here);
// Where something that is worked with may fail: whether it does now.
bool Fails(Failpoint here);
// At a place of pace: how many times as long it is to take; mostly 1.
std::int64_t SlowedBy(Failpoint here);
// At a place of chance: whether the time of that key is spoilt. Same key, same answer.
enum class Spoilt : std::uint8_t { kNo, kGradient, kGradientAndLoss };
Spoilt DrawSpoilt(Failpoint here, const RngKey& key);
// Reads the variable anew, which is otherwise read once: for a test's forked child. No other thread
// may be in Reach.
void RearmFailpoint();

struct FailpointOrder {
  Failpoint at{};
  std::int64_t n = 1;
  bool on = false;  // at each later time, too
  enum Act : std::uint8_t { kKill, kHang, kNan, kInf, kFail, kSlow, kWild, kSly } act = kKill;
  std::string file;  // empty: every process
};
// One of them. Errors: kInvalidArgument with all names that there are.
Result<FailpointOrder> ParseFailpoint(std::string_view text);

}  // namespace troop
