// Implements the measurement and the prediction of a stage's idle time and memory.

#include "learners/images/pipeline_clock.h"

#include <algorithm>
#include <optional>

namespace troop {
namespace {

// Kinds of measured passes, whose mean times differ. A recomputation costs a forward pass.
constexpr std::size_t kKinds = 3;

// Index of the pass in the times of a chunk; nullopt: not a pass.
std::optional<std::size_t> KindOf(const StageOp& op) {
  switch (op.kind) {
    case StageOpKind::kForward:
    case StageOpKind::kRecompute:
      return 0;
    case StageOpKind::kBackward:
    case StageOpKind::kBackwardInput:
      return 1;
    case StageOpKind::kBackwardWeight:
      return 2;
    case StageOpKind::kSend:
    case StageOpKind::kReceive:
    case StageOpKind::kUpdate:
      break;
  }
  return std::nullopt;
}

}  // namespace

// Times are zero until the first run.
PipelineClock::PipelineClock(const ImagePipeline* pipeline)
    : pipeline_(pipeline), times_(kKinds * pipeline->chunks.size()) {}

// Sizes are those of the first micro-batch, which is a largest one.
Status PipelineClock::Plan(const PipelineSchedule& schedule,
                           const std::vector<std::int64_t>& rows) {
  schedule_ = schedule;
  costs_ = {};
  for (const std::int64_t count : rows)
    costs_.micro_batch_share.push_back(double(count) / double(rows[0]));
  for (const PipelineChunk& chunk : pipeline_->chunks) {
    const TensorSpec in{DType::kF32, chunk.input.Prepend(rows[0])};
    TROOP_ASSIGN_OR_RETURN(const ::troop::Plan plan, chunk.module->MakePlan({&in, 1}));
    const auto input = double(in.bytes());
    costs_.chunks.push_back({.activation_bytes = input + double(plan.cache_bytes),
                             .input_bytes = input,
                             .output_bytes = double(plan.out[0].bytes())});
  }
  return Status::Ok();
}

// Waiting for messages is not busy time; making the images of a micro-batch is part of its pass.
void PipelineClock::Count(std::span<const StageOp> operations, const StageRunner& runner) {
  std::vector<double> passes(times_.size());
  std::ranges::fill(times_, 0.0);
  busy_s_ = 0;
  const std::vector<OpInterval>& intervals = runner.intervals();
  for (std::size_t i = 0; i < intervals.size(); ++i) {
    const std::optional<std::size_t> kind = KindOf(operations[i]);
    if (!kind) continue;
    const double seconds = intervals[i].end_s - intervals[i].start_s;
    const std::size_t at = kKinds * std::size_t(operations[i].chunk) + *kind;
    times_[at] += seconds;
    passes[at] += 1;
    busy_s_ += seconds;
  }
  for (std::size_t i = 0; i < passes.size(); ++i) times_[i] /= std::max(1.0, passes[i]);
  // The last operation of every list is the update, after all messages.
  run_s_ = intervals.empty() ? 0 : intervals.back().end_s;
  held_bytes_ = double(runner.held_bytes_max());
}

// The sum of the ranks' numbers has the times of all chunks.
std::vector<double> PipelineClock::Times() const {
  std::vector<double> times{run_s_};
  times.insert(times.end(), times_.begin(), times_.end());
  return times;
}

// The stages begin a run together, so the longest run is the time of the schedule.
void PipelineClock::Exchanged(std::span<const double> all, const Place& place, UpdateCost* cost) {
  if (costs_.chunks.empty() || runs_++ % kEvery != 0) return;
  double seconds = 0;
  std::vector<double> times(times_.size());
  for (std::size_t rank = 0; rank < std::size_t(place.rank.ranks); ++rank) {
    const auto theirs = all.subspan(rank * place.stride);
    seconds = std::max(seconds, theirs[0]);
    for (std::size_t i = 0; i < times.size(); ++i) times[i] += theirs[1 + i];
  }
  // kBackward takes the sum of the last two; without zero_bubble the third is 0.
  for (std::size_t c = 0; c < costs_.chunks.size(); ++c) {
    costs_.chunks[c].forward_s = times[kKinds * c];
    costs_.chunks[c].backward_input_s = times[kKinds * c + 1];
    costs_.chunks[c].backward_weight_s = times[kKinds * c + 2];
  }
  const Result<PipelineForecast> forecast = SimulateSchedule(schedule_, costs_);
  if (!forecast.ok()) return;  // a clock that went back
  const StageForecast& mine = forecast->stages[std::size_t(place.rank.rank)];
  // Measured.
  cost->stage = place.rank.rank;
  cost->stage_runs += 1;
  cost->stage_s += seconds;
  cost->stage_idle_s += seconds - busy_s_;
  cost->stage_bytes += held_bytes_;
  // Predicted.
  cost->planned_stage_s += forecast->seconds;
  cost->planned_idle_s += mine.bubble * forecast->seconds;
  cost->planned_stage_bytes += mine.peak_bytes;
}

}  // namespace troop
