// Implements the proof of a schedule: the shape, each stage's list, the channels, a run, the
// memory.
#include "learners/pipeline/schedule_checker.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "learners/pipeline/schedule_run.h"
#include "learners/pipeline/stage_checker.h"

namespace troop {
namespace {

// Checks a limit: low <= value <= high.
Status CheckRange(std::string_view name, std::int64_t value, std::int64_t low, std::int64_t high) {
  if (value >= low && value <= high) return Status::Ok();
  return InvalidArgument("schedule: {} is {}, must be from {} to {}", name, value, low, high);
}

// Bounds everything that the later checks allocate.
Status CheckSizes(const PipelineSchedule& schedule) {
  const auto stages = std::int64_t(schedule.stages.size());
  TROOP_RETURN_IF_ERROR(CheckRange("the number of stages", stages, 1, kStagesMax));
  TROOP_RETURN_IF_ERROR(CheckRange("the number of chunks", schedule.chunks(), 1, kChunksMax));
  TROOP_RETURN_IF_ERROR(CheckRange("micro_batches", schedule.micro_batches, 1, kMicroBatchesMax));
  TROOP_RETURN_IF_ERROR(CheckRange("send_slots", schedule.send_slots, 0, kMicroBatchesMax));
  TROOP_RETURN_IF_ERROR(CheckRange("the size of memory_max",
                                   std::int64_t(schedule.memory_max.size()), stages, stages));
  std::int64_t operations = 0;
  for (const auto& ops : schedule.stages) operations += std::int64_t(ops.size());
  // At least one pass for each pair, so that the tables of the checker are no larger than the
  // lists.
  return CheckRange("the number of operations", operations,
                    schedule.chunks() * schedule.micro_batches, kStageOpsMax);
}

// Properties that exclude each other.
Status CheckProperties(const PipelineSchedule& schedule) {
  const auto policy = std::int64_t(schedule.weights);
  const auto policies = std::int64_t(EnumNames(WeightPolicy{}).size());
  TROOP_RETURN_IF_ERROR(CheckRange("the weight policy", policy, 0, policies - 1));
  const bool synchronous = schedule.weights == WeightPolicy::kCurrent;
  if (schedule.forward_only && (schedule.recompute || !synchronous)) {
    return InvalidArgument(
        "schedule: forward_only has no backward pass; leave recompute and {} out",
        EnumName(schedule.weights));
  }
  if (schedule.recurrent && !synchronous) {
    return InvalidArgument(
        "schedule: recurrent needs the weights current, not {}, because all time "
        "steps read one version",
        EnumName(schedule.weights));
  }
  if (schedule.bidirectional_first && !schedule.recurrent) {
    return InvalidArgument("schedule: bidirectional_first needs recurrent");
  }
  return Status::Ok();
}

// Replicas hold the same chunks, so that they can make their updates together.
Status CheckPlacement(const PipelineSchedule& schedule) {
  const auto stages = std::int64_t(schedule.stages.size());
  const bool single = schedule.recurrent || schedule.weights == WeightPolicy::kVerticalSync;
  std::vector<const std::vector<std::int64_t>*> group(schedule.stages.size(), nullptr);
  for (std::size_t chunk = 0; chunk < schedule.placement.size(); ++chunk) {
    const auto& replicas = schedule.placement[chunk];
    if (replicas.empty()) return InvalidArgument("schedule: chunk {} is on no stage", chunk);
    if (replicas.size() > 1 && single) {
      return InvalidArgument(
          "schedule: chunk {} has {} replicas, must have 1 in a recurrent schedule and with "
          "vertical_sync",
          chunk, replicas.size());
    }
    TROOP_RETURN_IF_ERROR(CheckRange("a stage of the placement", replicas[0], 0, stages - 1));
    const auto* known = group[std::size_t(replicas[0])];
    if (known != nullptr && *known == replicas) continue;
    for (const std::int64_t stage : replicas) {
      TROOP_RETURN_IF_ERROR(CheckRange("a stage of the placement", stage, 0, stages - 1));
      if (group[std::size_t(stage)] != nullptr) {
        return InvalidArgument(
            "schedule: stage {} occurs twice in chunk {}, or with other replicas in another chunk",
            stage, chunk);
      }
      group[std::size_t(stage)] = &replicas;
    }
  }
  // A stage without a chunk would have an empty list.
  const auto unused = std::find(group.begin(), group.end(), nullptr);
  if (unused == group.end()) return Status::Ok();
  return InvalidArgument("schedule: stage {} has no chunk", unused - group.begin());
}

// One side of a channel: where each message is in the list of its stage.
struct ChannelSides {
  std::vector<std::size_t> sends, receives;
};

// Both sides of a channel must have the same order of messages.
Status CheckChannels(const PipelineSchedule& schedule) {
  std::map<std::tuple<std::int64_t, std::int64_t, Payload>, ChannelSides> channels;
  for (std::size_t s = 0; s < schedule.stages.size(); ++s) {
    const auto stage = std::int64_t(s);
    for (std::size_t i = 0; i < schedule.stages[s].size(); ++i) {
      const StageOp& op = schedule.stages[s][i];
      if (op.kind == StageOpKind::kSend) channels[{stage, op.peer, op.payload}].sends.push_back(i);
      if (op.kind != StageOpKind::kReceive) continue;
      channels[{op.peer, stage, op.payload}].receives.push_back(i);
    }
  }
  for (const auto& [key, sides] : channels) {
    const auto& [from, to, payload] = key;
    // Completeness of both stages gives equal numbers of sends and receives.
    for (std::size_t i = 0; i < sides.sends.size(); ++i) {
      const StageOp& send = schedule.stages[std::size_t(from)][sides.sends[i]];
      const StageOp& receive = schedule.stages[std::size_t(to)][sides.receives[i]];
      const std::int64_t step = payload == Payload::kActivation ? 1 : -1;
      if (send.micro_batch != receive.micro_batch || send.chunk + step != receive.chunk) {
        return InvalidArgument(
            "stage {}, operation {} ({}): stage {} sends at this place, in "
            "operation {}, the {} of micro-batch {}, chunk {}",
            to, sides.receives[i], ToString(receive), from, sides.sends[i], EnumName(payload),
            send.micro_batch, send.chunk);
      }
    }
  }
  return Status::Ok();
}

// A count of StageMemory and its name in messages.
struct MemoryLimit {
  std::int64_t StageMemory::*count;
  std::string_view name;
};
constexpr MemoryLimit kMemoryLimits[] = {{&StageMemory::activations, "activations"},
                                         {&StageMemory::inputs, "inputs"},
                                         {&StageMemory::messages, "messages"},
                                         {&StageMemory::versions, "versions"}};

// Names the first operation at which a count exceeds its declared limit.
Status CheckMemory(const PipelineSchedule& schedule, std::int64_t stage) {
  const StageMemory& most = schedule.memory_max[std::size_t(stage)];
  const auto& ops = schedule.stages[std::size_t(stage)];
  const std::vector<StageMemory> changes = MemoryChanges(schedule, stage);
  StageMemory now{.versions = 1};
  for (std::size_t i = 0; i < ops.size(); ++i) {
    for (const auto& [count, name] : kMemoryLimits) {
      now.*count += changes[i].*count;
      if (now.*count <= most.*count) continue;
      return InvalidArgument(
          "stage {}, operation {} ({}): {} {} are held, the schedule declares at "
          "most {}",
          stage, i, ToString(ops[i]), now.*count, name, most.*count);
    }
  }
  return Status::Ok();
}

}  // namespace

// The later steps rely on what the earlier ones have proved.
Status CheckSchedule(const PipelineSchedule& schedule) {
  TROOP_RETURN_IF_ERROR(CheckSizes(schedule));
  TROOP_RETURN_IF_ERROR(CheckProperties(schedule));
  TROOP_RETURN_IF_ERROR(CheckPlacement(schedule));
  // Each list alone; then between stages.
  TROOP_RETURN_IF_ERROR(CheckStages(schedule));
  TROOP_RETURN_IF_ERROR(CheckChannels(schedule));
  const auto no_time = [](std::int64_t, const StageOp&) { return 0.0; };
  TROOP_RETURN_IF_ERROR(RunSchedule(schedule, no_time).status());
  for (std::size_t stage = 0; stage < schedule.stages.size(); ++stage) {
    TROOP_RETURN_IF_ERROR(CheckMemory(schedule, std::int64_t(stage)));
  }
  return Status::Ok();
}

}  // namespace troop
