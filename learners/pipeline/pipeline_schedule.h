#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/config/enum_names.h"

namespace troop {

// The language of pipeline schedules. A model is cut into **chunks**, numbered 0, 1, ... in the
// order of the forward pass. A **stage** is a process with one or more chunks and a list of
// operations that it executes in order. A batch is cut into **micro-batches**; in a recurrent
// schedule they are the time steps of one batch. A schedule describes one step of a synchronous
// method, or all micro-batches of an asynchronous run. Generators (schedule_generators.h) make
// schedules, CheckSchedule (schedule_checker.h) proves them valid, and SimulateSchedule
// (schedule_simulator.h) predicts their time and memory.

enum class StageOpKind {
  kForward,         // reads the chunk's input, makes its output and what backward needs
  kRecompute,       // a second forward pass from the stored input, before the backward pass
  kBackward,        // gradients of the input and of the weights
  kBackwardInput,   // gradient of the input only
  kBackwardWeight,  // gradient of the weights, after kBackwardInput of the same micro-batch
  kSend,            // a result of the chunk to the stage of the neighboring chunk; asynchronous
  kReceive,         // the message of the stage of the neighboring chunk
  kUpdate,          // optimizer step of all chunks of the stage from the gradients added up so far
};
constexpr auto EnumNames(StageOpKind) {
  return std::array<std::string_view, 8>{"forward",        "recompute",       "backward",
                                         "backward_input", "backward_weight", "send",
                                         "receive",        "update"};
}

// Contents of a message: activations flow to the next chunk, gradients to the previous chunk.
enum class Payload { kActivation, kGradient };
constexpr auto EnumNames(Payload) {
  return std::array<std::string_view, 2>{"activation", "gradient"};
}

// One operation of a stage.
struct StageOp {
  StageOpKind kind = StageOpKind::kForward;
  Payload payload = Payload::kActivation;  // kSend and kReceive only
  std::int64_t micro_batch = 0;            // kUpdate: not used, 0
  std::int64_t chunk = 0;  // kSend: whose result; kReceive: whose input; kUpdate: not used, 0
  std::int64_t peer = 0;   // kSend, kReceive: stage on the other side; else 0
  // Weight version that a pass reads, or that kUpdate makes; 0 for messages. A stage starts with
  // version 0, and its n-th update makes version n.
  std::int64_t version = 0;
  bool operator==(const StageOp&) const = default;
};
// Returns "backward of micro-batch 3, chunk 1, version 2", for messages.
std::string ToString(const StageOp& op);

// Which weight version the passes of a micro-batch read.
enum class WeightPolicy {
  kCurrent,       // forward and backward read the newest: no update in between (synchronous)
  kStashed,       // forward reads the newest; backward the same one, which is kept (PipeDream,
                  // Narayanan et al. 2019, sec. 3.3)
  kVerticalSync,  // all chunks read the version that was newest when the micro-batch entered
  kPredicted,  // forward reads a prediction of the version that is newest at backward (SpecTrain,
               // Chen et al. 2018); nothing is kept
};
constexpr auto EnumNames(WeightPolicy) {
  return std::array<std::string_view, 4>{"current", "stashed", "vertical_sync", "predicted"};
}

// Counts of what a stage holds at one time.
struct StageMemory {
  // (chunk, micro-batch) pairs whose complete activations are held: from kForward, or from
  // kRecompute if the schedule recomputes, to kBackward or kBackwardWeight.
  std::int64_t activations = 0;
  // Pairs of which only the input is held between kForward and kRecompute.
  std::int64_t inputs = 0;
  std::int64_t messages = 0;  // received, but not yet read by a pass
  std::int64_t versions = 0;  // weight versions: the newest, and older ones that will be read
  bool operator==(const StageMemory&) const = default;
};

// A schedule. Plain data: any values can be stored, and CheckSchedule decides whether they are one.
struct PipelineSchedule {
  WeightPolicy weights = WeightPolicy::kCurrent;
  bool forward_only = false;  // inference: no backward passes and no updates
  bool recompute = false;     // each backward pass follows a kRecompute
  // Micro-batches are time steps: each chunk runs them in order, and backward in reverse order.
  bool recurrent = false;
  // Chunk 0 of a recurrent schedule reads both directions: its pass i computes step i of one
  // direction and step T-1-i of the other, so that its outputs are complete after T passes.
  bool bidirectional_first = false;
  std::int64_t micro_batches = 0;
  // Messages of a channel (from one stage to another, of one payload, first in first out) that can
  // be sent before they are received; the next kSend waits. 0: a kSend waits for its kReceive.
  std::int64_t send_slots = 0;
  // [chunk]: stages that hold the chunk. Micro-batch m runs on entry m % size: replicas of a stage
  // divide the micro-batches, and make their updates together.
  std::vector<std::vector<std::int64_t>> placement;
  std::vector<StageMemory> memory_max;       // [stage]: limits that the schedule promises to keep
  std::vector<std::vector<StageOp>> stages;  // [stage]: operations in order

  std::int64_t chunks() const { return std::int64_t(placement.size()); }
  // Stage that runs a micro-batch of a chunk. REQUIRES: a valid chunk with a placement.
  std::int64_t StageOf(std::int64_t chunk, std::int64_t micro_batch) const {
    const auto& replicas = placement[std::size_t(chunk)];
    return replicas[std::size_t(micro_batch) % replicas.size()];
  }
};

// Net changes that a stage's operations make in the counts of what it holds: [operation]. Increases
// apply when an operation begins, decreases when it ends. Version v is held from the update that
// makes it to its last reader or the next update, whichever is later. The newest version before the
// first update is not an increase. O(operations). REQUIRES: a schedule that CheckSchedule accepts,
// except for its memory limits.
std::vector<StageMemory> MemoryChanges(const PipelineSchedule& schedule, std::int64_t stage);
// Maxima over a stage's list of what it holds. Cost and requirements are those of MemoryChanges.
StageMemory PeakMemory(const PipelineSchedule& schedule, std::int64_t stage);

// Limits of a schedule, so that counters and tables stay small.
inline constexpr std::int64_t kStagesMax = 1024;
inline constexpr std::int64_t kChunksMax = 1 << 16;
inline constexpr std::int64_t kMicroBatchesMax = 1 << 24;
inline constexpr std::int64_t kStageOpsMax = 1 << 24;  // sum over all stages

}  // namespace troop
