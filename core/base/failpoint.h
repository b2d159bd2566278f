#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/base/philox.h"
#include "core/base/status.h"

namespace troop {

// Named places where a test injects faults: it kills, hangs or slows this process, or injects
// non-finite values. The environment variable
//   TROOP_FAILPOINT=<name>[:<n>[+][:<act>[:<file>]]][;...]
// arms one or, with semicolons, several:
//   kill, hang   at the n-th hit (default: the first) the process gets a SIGKILL, or waits forever;
//   nan, inf     the n-th value is replaced; with a +, all later ones too;
//   fail         the operation at the place reports a failure;
//   slow         the operation takes n times as long, each time;
//   wild, sly    corrupts one random gradient in n; wild: its loss too.
// With a file, only the first process at the place is affected; it creates the file. Always
// compiled in; if unset, a call costs a load and a branch. Any thread may call.
enum class Failpoint : int {
  kCheckpointBegin,      // no file of the new checkpoint is on disk
  kCheckpointFile,       // after each of its files
  kCheckpointManifest,   // after the manifest; it still has its temporary name
  kCheckpointAside,      // the old one with its name is moved aside, the new one not yet in place
  kCheckpointInstalled,  // in place; the old one still exists
  kCheckpointTrim,       // before a surplus checkpoint is removed
  kDiskCreated,          // WriteAtomic: the temporary file is empty
  kDiskHalf,             // half of its bytes are written
  kDiskWritten,          // all of them, not synced
  kDiskSynced,           // synced, not renamed
  kDiskRenamed,          // renamed, its folder not synced
  kActorStep,            // before the environments of an actor step
  kEvaluatorStep,        // before those of the evaluator
  // Places of values:
  kActorReward,       // reward of the first environment of an actor
  kActorObservation,  // one element of its observation, if f32
  kEvaluatorReward,   // reward of the first environment of an evaluation
  kLearnerGradient,   // gradient of the first parameter
  kLearnerWeight,     // value of the first parameter after the optimizer step
  kLearnerDevice,     // an update on a GPU, which is unusable from then on
  // Places of pace and of chance, in learners with parameter shards:
  kLearnerPace,  // duration of a gradient, from the pull to the push
  kLearnerPush,  // the pushed gradient
};

// Returns the names in the order of the enum.
std::span<const std::string_view> FailpointNames();

// At a place of kill or hang: does not return if the fault is injected.
void HitFailpoint(Failpoint here);
// At a place of values: returns the replacement for the correct value, if any.
std::optional<float> InjectedValue(Failpoint here);
// At a place of failures: true if the operation must fail now.
bool ShouldFail(Failpoint here);
// At a place of pace: returns the factor by which the operation must be slowed down; usually 1.
std::int64_t SlowdownFactor(Failpoint here);
// At a place of chance: returns the corruption for this key, which is deterministic.
enum class GradientCorruption : std::uint8_t { kNone, kGradient, kGradientAndLoss };
GradientCorruption DrawGradientCorruption(Failpoint here, const RngKey& key);
// Reads the variable again, which is otherwise read once; for a forked child of a test. REQUIRES:
// no other thread is in HitFailpoint.
void ReloadFailpoint();

// A parsed failpoint.
struct FailpointSpec {
  Failpoint at{};
  std::int64_t n = 1;
  bool on = false;  // inject at all later hits too
  enum Act : std::uint8_t {
    kKill,
    kHang,
    kNan,
    kInf,
    kFail,
    kSlow,
    kCorruptGradientAndLoss,
    kCorruptGradient
  } act = kKill;
  std::string file;  // empty: in every process
};
// Parses one failpoint. Errors: kInvalidArgument with all valid names.
Result<FailpointSpec> ParseFailpoint(std::string_view text);

}  // namespace troop
