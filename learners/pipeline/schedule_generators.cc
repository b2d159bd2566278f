// Implements the generators in two steps: the order of each stage's passes, which is the method;
// and the lowering, which adds messages, recomputation, weight versions and limits.
#include "learners/pipeline/schedule_generators.h"

#include <algorithm>
#include <numeric>

#include "learners/pipeline/schedule_run.h"

namespace troop {
namespace {

using Passes = std::vector<StageOp>;  // of one stage, with chunk and micro-batch only

void Add(StageOpKind kind, std::int64_t micro_batch, std::int64_t chunk, Passes* passes) {
  passes->push_back({.kind = kind, .micro_batch = micro_batch, .chunk = chunk});
}
void AddUpdate(Passes* passes) { passes->push_back({.kind = StageOpKind::kUpdate}); }

// Each micro-batch forward and backward before the next one.
Passes SequentialPasses(const ScheduleOptions& options, std::int64_t stage) {
  Passes passes;
  for (std::int64_t m = 0; m < options.micro_batches; ++m) {
    Add(StageOpKind::kForward, m, stage, &passes);
    Add(StageOpKind::kBackward, m, stage, &passes);
  }
  AddUpdate(&passes);
  return passes;
}

// All forward passes first. Backward passes of a recurrent model run against time.
Passes PhasedPasses(const ScheduleOptions& options, std::int64_t stage) {
  Passes passes;
  const std::int64_t count = options.micro_batches;
  for (std::int64_t m = 0; m < count; ++m) Add(StageOpKind::kForward, m, stage, &passes);
  const bool against_time = options.kind == ScheduleKind::kWavefront;
  for (std::int64_t m = 0; m < count; ++m) {
    Add(StageOpKind::kBackward, against_time ? count - 1 - m : m, stage, &passes);
  }
  AddUpdate(&passes);
  return passes;
}

// The fewest micro-batches in flight that keep all stages busy: a stage begins backward passes as
// soon as the last stage has sent the first gradient.
Passes OneForwardOneBackward(const ScheduleOptions& options, std::int64_t stage) {
  Passes passes;
  const std::int64_t count = options.micro_batches;
  const std::int64_t warm_up = std::min(options.stages - 1 - stage, count);
  for (std::int64_t m = 0; m < warm_up; ++m) Add(StageOpKind::kForward, m, stage, &passes);
  for (std::int64_t m = 0; m < count; ++m) {
    if (warm_up + m < count) Add(StageOpKind::kForward, warm_up + m, stage, &passes);
    Add(StageOpKind::kBackward, m, stage, &passes);
  }
  AddUpdate(&passes);
  return passes;
}

// 1F1B, in which stage k computes the weights' gradients k micro-batches later. So the gradient of
// the input leaves each stage earlier, and the weights' gradients fill the idle time at the end.
Passes ZeroBubblePasses(const ScheduleOptions& options, std::int64_t stage) {
  Passes passes;
  const std::int64_t count = options.micro_batches;
  const std::int64_t warm_up = std::min(options.stages - 1 - stage, count);
  const std::int64_t delay = std::min(stage, count);
  for (std::int64_t m = 0; m < warm_up; ++m) Add(StageOpKind::kForward, m, stage, &passes);
  for (std::int64_t m = 0; m < count; ++m) {
    if (warm_up + m < count) Add(StageOpKind::kForward, warm_up + m, stage, &passes);
    Add(StageOpKind::kBackwardInput, m, stage, &passes);
    if (m >= delay) Add(StageOpKind::kBackwardWeight, m - delay, stage, &passes);
  }
  for (std::int64_t m = count - delay; m < count; ++m) {
    Add(StageOpKind::kBackwardWeight, m, stage, &passes);
  }
  AddUpdate(&passes);
  return passes;
}

// Groups of micro-batches pass the stage's chunks in turn, backward in reverse order of chunks. The
// groups have K micro-batches, or a few more if K does not divide M: a group of fewer than K would
// wait for passes of the group before it that wait for its own.
Passes InterleavedPasses(const ScheduleOptions& options, std::int64_t stage) {
  const std::int64_t stages = options.stages, parts = options.chunks_per_stage;
  const std::int64_t count = options.micro_batches;
  const std::int64_t groups = std::max(count / stages, std::int64_t(1));
  Passes forward, backward, passes;
  for (std::int64_t group = 0; group < groups; ++group) {
    // Larger groups come first, because the warm-up covers them.
    const std::int64_t size = count / groups + (group < count % groups ? 1 : 0);
    const std::int64_t first = group * (count / groups) + std::min(group, count % groups);
    for (std::int64_t part = 0; part < parts; ++part) {
      for (std::int64_t m = first; m < first + size; ++m) {
        Add(StageOpKind::kForward, m, part * stages + stage, &forward);
        Add(StageOpKind::kBackward, m, (parts - 1 - part) * stages + stage, &backward);
      }
    }
  }
  // Narayanan et al. 2021: the first backward pass of a stage follows this many forward passes.
  const std::int64_t largest = (count + groups - 1) / groups;
  const std::size_t warm_up =
      std::min(std::size_t((stages - 1 - stage) * 2 + (parts - 1) * largest), forward.size());
  passes.assign(forward.begin(), forward.begin() + std::ptrdiff_t(warm_up));
  for (std::size_t i = 0; i < backward.size(); ++i) {
    if (warm_up + i < forward.size()) passes.push_back(forward[warm_up + i]);
    passes.push_back(backward[i]);
  }
  AddUpdate(&passes);
  return passes;
}

// 1F1B without a flush. A replica has the micro-batches replica, replica + R, ...; all replicas
// make the update of a round, also those without a micro-batch in the last one.
Passes AsynchronousPasses(const ScheduleOptions& options, std::int64_t stage,
                          std::int64_t replica) {
  const auto& replicas = options.replicas;
  const std::int64_t here = replicas.empty() ? 1 : replicas[std::size_t(stage)];
  const std::int64_t from_here =
      replicas.empty() ? options.stages - stage
                       : std::accumulate(replicas.begin() + stage, replicas.end(), std::int64_t(0));
  const std::int64_t rounds = (options.micro_batches + here - 1) / here;
  const std::int64_t own = (options.micro_batches - replica + here - 1) / here;
  // Processes from this stage to the last one per replica: micro-batches in flight.
  const std::int64_t warm_up = std::min((from_here + here - 1) / here - 1, own);
  Passes passes;
  const auto add = [&](StageOpKind kind, std::int64_t i) {
    if (i < own) Add(kind, i * here + replica, stage, &passes);
  };
  for (std::int64_t i = 0; i < warm_up; ++i) add(StageOpKind::kForward, i);
  for (std::int64_t i = 0; i < rounds; ++i) {
    add(StageOpKind::kForward, warm_up + i);
    add(StageOpKind::kBackward, i);
    AddUpdate(&passes);
  }
  return passes;
}

// The table of the kinds.
Passes PassesOf(const ScheduleOptions& options, std::int64_t stage, std::int64_t replica) {
  switch (options.kind) {
    case ScheduleKind::kNone:
      return SequentialPasses(options, stage);
    case ScheduleKind::kGpipe:
    case ScheduleKind::kWavefront:
      return PhasedPasses(options, stage);
    case ScheduleKind::k1f1b:
      return OneForwardOneBackward(options, stage);
    case ScheduleKind::kInterleaved:
      return InterleavedPasses(options, stage);
    case ScheduleKind::kZeroBubble:
      return ZeroBubblePasses(options, stage);
    case ScheduleKind::kPipedream:
    case ScheduleKind::kSpectrain:
      return AsynchronousPasses(options, stage, replica);
  }
  return {};
}

// Turns the passes of a stage into its list.
class Lowering {
 public:
  // `entry`: [micro-batch] versions of chunk 0, which its stage writes and later stages read.
  Lowering(PipelineSchedule* schedule, std::int64_t stage, std::vector<std::int64_t>* entry)
      : schedule_(*schedule),
        stage_(stage),
        ops_(schedule->stages[std::size_t(stage)]),
        entry_(*entry),
        version_(entry->size(), 0) {}

  void Add(const StageOp& pass);

 private:
  void AddForward(StageOp pass);
  void AddBackward(StageOp pass);
  // Adds a message to or from a chunk, unless it is on this stage or does not exist.
  void AddMessage(StageOpKind kind, const StageOp& pass, std::int64_t neighbor);

  const PipelineSchedule& schedule_;
  const std::int64_t stage_;
  std::vector<StageOp>& ops_;
  std::vector<std::int64_t>& entry_;
  std::vector<std::int64_t> version_;  // [micro-batch]: that forward has read
  std::int64_t updates_ = 0;
  bool backward_began_ = false;
};

// The direction follows from the neighbor: activations go up, gradients down.
void Lowering::AddMessage(StageOpKind kind, const StageOp& pass, std::int64_t neighbor) {
  if (neighbor < 0 || neighbor >= schedule_.chunks()) return;
  const std::int64_t peer = schedule_.StageOf(neighbor, pass.micro_batch);
  if (peer == stage_) return;
  const bool activation = (kind == StageOpKind::kSend) == (neighbor > pass.chunk);
  ops_.push_back({.kind = kind,
                  .payload = activation ? Payload::kActivation : Payload::kGradient,
                  .micro_batch = pass.micro_batch,
                  .chunk = pass.chunk,
                  .peer = peer});
}

// Outputs of a layer that reads both directions leave after its last step, in order of time.
void Lowering::AddForward(StageOp pass) {
  const auto m = std::size_t(pass.micro_batch);
  pass.version = updates_;
  if (schedule_.weights == WeightPolicy::kPredicted) pass.version = pass.micro_batch;
  if (schedule_.weights == WeightPolicy::kVerticalSync && pass.chunk > 0) pass.version = entry_[m];
  if (pass.chunk == 0) entry_[m] = pass.version;
  version_[m] = pass.version;
  AddMessage(StageOpKind::kReceive, pass, pass.chunk - 1);
  ops_.push_back(pass);
  const bool whole = schedule_.bidirectional_first && pass.chunk == 0;
  if (!whole) return AddMessage(StageOpKind::kSend, pass, pass.chunk + 1);
  if (pass.micro_batch + 1 < schedule_.micro_batches) return;
  for (std::int64_t step = 0; step < schedule_.micro_batches; ++step) {
    AddMessage(StageOpKind::kSend, {.micro_batch = step, .chunk = 0}, 1);
  }
}

// Such a layer's backward passes begin when all gradients are there, which come against time.
void Lowering::AddBackward(StageOp pass) {
  pass.version = version_[std::size_t(pass.micro_batch)];
  const bool whole = schedule_.bidirectional_first && pass.chunk == 0;
  if (!whole) AddMessage(StageOpKind::kReceive, pass, pass.chunk + 1);
  if (whole && !std::exchange(backward_began_, true)) {
    for (std::int64_t step = schedule_.micro_batches - 1; step >= 0; --step) {
      AddMessage(StageOpKind::kReceive, {.micro_batch = step, .chunk = 0}, 1);
    }
  }
  if (schedule_.recompute) {
    StageOp again = pass;
    again.kind = StageOpKind::kRecompute;
    ops_.push_back(again);
  }
  ops_.push_back(pass);
  AddMessage(StageOpKind::kSend, pass, pass.chunk - 1);
}

// An inference schedule leaves out all that follows the forward passes.
void Lowering::Add(const StageOp& pass) {
  if (pass.kind == StageOpKind::kForward) return AddForward(pass);
  if (schedule_.forward_only) return;
  if (pass.kind == StageOpKind::kUpdate) {
    ops_.push_back({.kind = StageOpKind::kUpdate, .version = ++updates_});
  } else if (pass.kind == StageOpKind::kBackwardWeight) {
    ops_.push_back(pass);
    ops_.back().version = version_[std::size_t(pass.micro_batch)];
  } else {
    AddBackward(pass);
  }
}

// Refuses values out of range.
Status CheckCounts(const ScheduleOptions& options) {
  // All counts begin at 1.
  const auto range = [](std::string_view name, std::int64_t value, std::int64_t high) {
    if (value >= 1 && value <= high) return Status::Ok();
    return InvalidArgument("{} is {}, must be from 1 to {}", name, value, high);
  };
  TROOP_RETURN_IF_ERROR(range("stages", options.stages, kStagesMax));
  TROOP_RETURN_IF_ERROR(range("micro_batches", options.micro_batches, kMicroBatchesMax));
  TROOP_RETURN_IF_ERROR(
      range("chunks_per_stage", options.chunks_per_stage, kChunksMax / options.stages));
  std::int64_t processes = 0;
  for (const std::int64_t count : options.replicas) {
    TROOP_RETURN_IF_ERROR(range("replicas of a stage", count, kStagesMax));
    processes += count;
    if (processes > kStagesMax) return range("processes of all stages", processes, kStagesMax);
  }
  // A pass of a pair has at most eight operations: two passes, their messages, recomputation …
  constexpr std::int64_t kOpsOfPair = 8;
  return range(
      "passes of all stages (stages * chunks_per_stage * micro_batches)",
      std::max(options.stages * options.chunks_per_stage, processes) * options.micro_batches,
      kStageOpsMax / kOpsOfPair);
}

// Refuses a value that the kind would ignore.
Status CheckUsed(const ScheduleOptions& options) {
  const ScheduleKind kind = options.kind;
  const auto unused = [&](std::string_view name, std::string_view users) {
    return InvalidArgument("{} has no effect with the schedule {}; use {}, or leave it out", name,
                           EnumName(kind), users);
  };
  const bool interleaved = kind == ScheduleKind::kInterleaved;
  if (interleaved && options.chunks_per_stage < 2) {
    return InvalidArgument("chunks_per_stage is {}, must be at least 2 for interleaved; use 1f1b",
                           options.chunks_per_stage);
  }
  if (!interleaved && options.chunks_per_stage != 1) {
    return unused("chunks_per_stage", "interleaved");
  }
  // Other kinds differ only in the order of backward passes.
  const bool infers = kind == ScheduleKind::kNone || kind == ScheduleKind::kGpipe ||
                      kind == ScheduleKind::kWavefront;
  if (options.forward_only && !infers) return unused("forward_only", "none, gpipe or wavefront");
  if (options.recompute && (options.forward_only || kind == ScheduleKind::kZeroBubble)) {
    return unused("recompute", "1f1b, without forward_only");
  }
  const bool pipedream = kind == ScheduleKind::kPipedream;
  if (options.vertical_sync && !pipedream) return unused("vertical_sync", "pipedream");
  if (!options.replicas.empty() && !pipedream) return unused("replicas", "pipedream");
  if (options.bidirectional_first && kind != ScheduleKind::kWavefront) {
    return unused("bidirectional_first", "wavefront");
  }
  if (options.replicas.empty()) return Status::Ok();
  if (std::int64_t(options.replicas.size()) != options.stages) {
    return InvalidArgument("replicas has {} entries, must have one for each of {} stages",
                           options.replicas.size(), options.stages);
  }
  const bool replicated = std::any_of(options.replicas.begin(), options.replicas.end(),
                                      [](std::int64_t count) { return count > 1; });
  if (!options.vertical_sync || !replicated) return Status::Ok();
  return InvalidArgument(
      "vertical_sync needs one replica of each stage, because replicated stages "
      "make fewer versions; leave one of them out");
}

// Asynchronous kinds differ in the versions that their passes read.
WeightPolicy PolicyOf(const ScheduleOptions& options) {
  if (options.kind == ScheduleKind::kSpectrain) return WeightPolicy::kPredicted;
  if (options.kind != ScheduleKind::kPipedream) return WeightPolicy::kCurrent;
  return options.vertical_sync ? WeightPolicy::kVerticalSync : WeightPolicy::kStashed;
}

// A schedule with its properties and placement, without operations. Replicated stages are numbered
// by their processes, stage after stage.
PipelineSchedule Empty(const ScheduleOptions& options) {
  PipelineSchedule schedule;
  schedule.weights = PolicyOf(options);
  schedule.forward_only = options.forward_only;
  schedule.recompute = options.recompute;
  schedule.recurrent = options.kind == ScheduleKind::kWavefront;
  schedule.bidirectional_first = options.bidirectional_first;
  schedule.micro_batches = options.micro_batches;
  std::int64_t processes = 0;
  for (std::int64_t chunk = 0; chunk < options.stages * options.chunks_per_stage; ++chunk) {
    const std::int64_t stage = chunk % options.stages;
    const std::int64_t count = options.replicas.empty() ? 1 : options.replicas[std::size_t(stage)];
    std::vector<std::int64_t> placed;
    for (std::int64_t replica = 0; replica < count; ++replica) {
      placed.push_back(options.replicas.empty() ? stage : processes++);
    }
    schedule.placement.push_back(std::move(placed));
  }
  schedule.stages.resize(std::size_t(options.replicas.empty() ? options.stages : processes));
  return schedule;
}

// Finds the least limits. More slots never block more, so the first number that works is the least.
Status SetLimits(PipelineSchedule* schedule) {
  for (std::size_t stage = 0; stage < schedule->stages.size(); ++stage) {
    schedule->memory_max.push_back(PeakMemory(*schedule, std::int64_t(stage)));
  }
  const auto no_time = [](std::int64_t, const StageOp&) { return 0.0; };
  for (;; ++schedule->send_slots) {
    const Status status = RunSchedule(*schedule, no_time).status();
    if (status.ok()) return status;
    if (schedule->send_slots > schedule->chunks() * schedule->micro_batches) return status;
  }
}

}  // namespace

// Stages in order, because vertical sync takes the versions of chunk 0.
Result<PipelineSchedule> MakeSchedule(const ScheduleOptions& options) {
  TROOP_RETURN_IF_ERROR(CheckCounts(options));
  TROOP_RETURN_IF_ERROR(CheckUsed(options));
  PipelineSchedule schedule = Empty(options);
  std::vector<std::int64_t> entry(std::size_t(options.micro_batches), 0);
  for (std::int64_t stage = 0; stage < options.stages; ++stage) {
    const auto& replicas = schedule.placement[std::size_t(stage)];
    for (std::size_t replica = 0; replica < replicas.size(); ++replica) {
      Lowering lowering(&schedule, replicas[replica], &entry);
      for (const StageOp& pass : PassesOf(options, stage, std::int64_t(replica))) {
        lowering.Add(pass);
      }
    }
  }
  TROOP_RETURN_IF_ERROR(SetLimits(&schedule));
  return schedule;
}

std::vector<std::int64_t> MicroBatchRows(std::int64_t rows, std::int64_t micro_batch_rows) {
  if (rows < 1 || micro_batch_rows < 1) return {};
  const std::int64_t full = rows / micro_batch_rows;
  std::vector<std::int64_t> sizes(std::size_t(full), micro_batch_rows);
  if (rows % micro_batch_rows > 0) sizes.push_back(rows % micro_batch_rows);
  return sizes;
}

}  // namespace troop
