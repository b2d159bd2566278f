// Implements the text form of a schedule's operations, and the counts of what a stage holds.
#include "learners/pipeline/pipeline_schedule.h"

#include <fmt/core.h>

#include <algorithm>

namespace troop {

// Kinds have different fields, and only those that are used are named.
std::string ToString(const StageOp& op) {
  const std::string_view kind = EnumName(op.kind);
  if (op.kind == StageOpKind::kUpdate) return fmt::format("update to version {}", op.version);
  if (op.kind == StageOpKind::kSend || op.kind == StageOpKind::kReceive) {
    return fmt::format("{} of the {} of micro-batch {}, chunk {}, {} stage {}", kind,
                       EnumName(op.payload), op.micro_batch, op.chunk,
                       op.kind == StageOpKind::kSend ? "to" : "from", op.peer);
  }
  return fmt::format("{} of micro-batch {}, chunk {}, version {}", kind, op.micro_batch, op.chunk,
                     op.version);
}

namespace {

// True for passes of the model, which read weights.
bool ReadsWeights(StageOpKind kind) {
  return kind != StageOpKind::kSend && kind != StageOpKind::kReceive &&
         kind != StageOpKind::kUpdate;
}

// Adds the changes of weight versions. A version without a later reader is updated in place.
void AddVersionChanges(const std::vector<StageOp>& ops, std::vector<StageMemory>* changes) {
  const auto is_update = [](const StageOp& op) { return op.kind == StageOpKind::kUpdate; };
  const auto updates = std::size_t(std::count_if(ops.begin(), ops.end(), is_update));
  std::vector<std::size_t> last_read(updates + 1, 0);  // [version]: index of the operation
  for (std::size_t i = 0; i < ops.size(); ++i) {
    // A prediction of a later version is not kept.
    const auto version = std::size_t(ops[i].version);
    if (ReadsWeights(ops[i].kind) && version <= updates) last_read[version] = i;
  }
  std::size_t newest = 0;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (!is_update(ops[i])) continue;
    // The replaced version stays until its last reader.
    const std::size_t last = last_read[newest++];
    if (last < i) continue;
    ++(*changes)[i].versions;
    --(*changes)[last].versions;
  }
}

// Change that a pass or a message makes in what a stage holds.
StageMemory ChangeOf(const PipelineSchedule& schedule, std::int64_t stage, const StageOp& op) {
  // A pass reads a message unless the neighboring chunk is on the same stage or does not exist.
  const auto takes_message = [&](std::int64_t from) -> std::int64_t {
    return from >= 0 && from < schedule.chunks() && schedule.StageOf(from, op.micro_batch) != stage;
  };
  switch (op.kind) {
    case StageOpKind::kForward: {
      const std::int64_t kept = schedule.forward_only ? 0 : 1;
      return {.activations = schedule.recompute ? 0 : kept,
              .inputs = schedule.recompute ? kept : 0,
              .messages = -takes_message(op.chunk - 1)};
    }
    case StageOpKind::kRecompute:
      return {.activations = 1, .inputs = -1};
    case StageOpKind::kBackward:
      return {.activations = -1, .messages = -takes_message(op.chunk + 1)};
    case StageOpKind::kBackwardInput:
      return {.messages = -takes_message(op.chunk + 1)};
    case StageOpKind::kBackwardWeight:
      return {.activations = -1};
    case StageOpKind::kReceive:
      return {.messages = 1};
    case StageOpKind::kSend:
    case StageOpKind::kUpdate:
      break;
  }
  return {};
}

}  // namespace

// Versions depend on later operations of the list, the other counts on the operation alone.
std::vector<StageMemory> MemoryChanges(const PipelineSchedule& schedule, std::int64_t stage) {
  const auto& ops = schedule.stages[std::size_t(stage)];
  std::vector<StageMemory> changes;
  changes.reserve(ops.size());
  for (const StageOp& op : ops) changes.push_back(ChangeOf(schedule, stage, op));
  AddVersionChanges(ops, &changes);
  return changes;
}

// Each count changes by at most one per operation, so its maximum follows an increase.
StageMemory PeakMemory(const PipelineSchedule& schedule, std::int64_t stage) {
  StageMemory now{.versions = 1};
  StageMemory peak = now;
  for (const StageMemory& change : MemoryChanges(schedule, stage)) {
    for (auto count : {&StageMemory::activations, &StageMemory::inputs, &StageMemory::messages,
                       &StageMemory::versions}) {
      now.*count += change.*count;
      peak.*count = std::max(peak.*count, now.*count);
    }
  }
  return peak;
}

}  // namespace troop
