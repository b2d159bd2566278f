// Implements the prediction of a schedule's time, idle shares and memory from costs of its chunks.
#include "learners/pipeline/schedule_simulator.h"

#include <algorithm>
#include <cmath>

#include "learners/pipeline/schedule_checker.h"

namespace troop {
namespace {

// All members, which have the same limits.
constexpr double ChunkCost::*kCosts[] = {
    &ChunkCost::forward_s,        &ChunkCost::backward_input_s,  &ChunkCost::backward_weight_s,
    &ChunkCost::update_s,         &ChunkCost::send_activation_s, &ChunkCost::send_gradient_s,
    &ChunkCost::activation_bytes, &ChunkCost::input_bytes,       &ChunkCost::output_bytes,
    &ChunkCost::weight_bytes,     &ChunkCost::fixed_bytes};

// Refuses a list whose values are not positive and finite, or that has another number of them.
Status CheckFactors(std::string_view name, const std::vector<double>& values, std::size_t count) {
  if (!values.empty() && values.size() != count) {
    return InvalidArgument("costs: {} has {} entries, must have {} or none", name, values.size(),
                           count);
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i]) && values[i] > 0) continue;
    return InvalidArgument("costs: {}[{}] is {}, must be positive", name, i, values[i]);
  }
  return Status::Ok();
}

// Costs may be 0, since a profile may leave out what is negligible.
Status CheckCosts(const PipelineSchedule& schedule, const PipelineCosts& costs) {
  if (costs.chunks.size() != schedule.placement.size()) {
    return InvalidArgument("costs: there are {} chunks, the schedule has {}", costs.chunks.size(),
                           schedule.chunks());
  }
  for (std::size_t chunk = 0; chunk < costs.chunks.size(); ++chunk) {
    for (const auto member : kCosts) {
      const double value = costs.chunks[chunk].*member;
      if (std::isfinite(value) && value >= 0) continue;
      return InvalidArgument("costs: chunk {} has the value {}, must be at least 0", chunk, value);
    }
  }
  TROOP_RETURN_IF_ERROR(CheckFactors("micro_batch_share", costs.micro_batch_share,
                                     std::size_t(schedule.micro_batches)));
  return CheckFactors("speed", costs.speed, schedule.stages.size());
}

// Costs of one schedule by operation.
class CostModel {
 public:
  CostModel(const PipelineSchedule& schedule, const PipelineCosts& costs)
      : schedule_(schedule), costs_(costs), chunks_of_(schedule.stages.size()) {
    for (std::size_t chunk = 0; chunk < schedule.placement.size(); ++chunk) {
      for (const std::int64_t stage : schedule.placement[chunk]) {
        chunks_of_[std::size_t(stage)].push_back(chunk);
      }
    }
  }

  // Duration of an operation, as RunSchedule requires it.
  double Seconds(std::int64_t stage, const StageOp& op) const;
  // Largest number of bytes that the stage holds.
  double PeakBytes(std::int64_t stage) const;

 private:
  // Relative size of the operation's micro-batch.
  double Share(const StageOp& op) const {
    const auto& shares = costs_.micro_batch_share;
    return shares.empty() ? 1 : shares[std::size_t(op.micro_batch)];
  }
  double StandingBytes(std::int64_t stage) const;

  const PipelineSchedule& schedule_;
  const PipelineCosts& costs_;
  std::vector<std::vector<std::size_t>> chunks_of_;  // [stage]
};

// A pass depends on the size of its micro-batch and the speed of its stage, a transfer only on the
// size, and an update only on the speed.
double CostModel::Seconds(std::int64_t stage, const StageOp& op) const {
  const ChunkCost& cost = costs_.chunks[std::size_t(op.chunk)];
  const double speed = costs_.speed.empty() ? 1 : costs_.speed[std::size_t(stage)];
  double update_s = 0;
  switch (op.kind) {
    case StageOpKind::kForward:
    case StageOpKind::kRecompute:
      return Share(op) * cost.forward_s / speed;
    case StageOpKind::kBackward:
      return Share(op) * (cost.backward_input_s + cost.backward_weight_s) / speed;
    case StageOpKind::kBackwardInput:
      return Share(op) * cost.backward_input_s / speed;
    case StageOpKind::kBackwardWeight:
      return Share(op) * cost.backward_weight_s / speed;
    case StageOpKind::kUpdate:
      for (const std::size_t chunk : chunks_of_[std::size_t(stage)]) {
        update_s += costs_.chunks[chunk].update_s;
      }
      return update_s / speed;
    case StageOpKind::kSend:
      return Share(op) *
             (op.payload == Payload::kActivation ? cost.send_activation_s : cost.send_gradient_s);
    case StageOpKind::kReceive:
      break;
  }
  return 0;
}

// Bytes that do not change: weights of the newest version, fixed ones, and slots of sends.
double CostModel::StandingBytes(std::int64_t stage) const {
  const auto& shares = costs_.micro_batch_share;
  const double share = shares.empty() ? 1 : *std::max_element(shares.begin(), shares.end());
  const std::int64_t last = schedule_.chunks() - 1;
  const auto slots = double(std::min(schedule_.send_slots, schedule_.micro_batches));
  double bytes = 0;
  for (const std::size_t chunk : chunks_of_[std::size_t(stage)]) {
    const ChunkCost& cost = costs_.chunks[chunk];
    bytes += cost.weight_bytes + cost.fixed_bytes;
    // A neighbor on the same stages exchanges no messages.
    const auto at = std::int64_t(chunk);
    const auto is_remote = [&](std::int64_t neighbor) {
      return neighbor >= 0 && neighbor <= last &&
             schedule_.placement[std::size_t(neighbor)] != schedule_.placement[chunk];
    };
    if (is_remote(at + 1)) bytes += slots * share * cost.output_bytes;
    if (is_remote(at - 1) && !schedule_.forward_only) bytes += slots * share * cost.input_bytes;
  }
  return bytes;
}

// Follows the list. Increases of an operation come before its decreases, since a pass reads its
// inputs while it makes its outputs.
double CostModel::PeakBytes(std::int64_t stage) const {
  double weight_bytes = 0;
  for (const std::size_t chunk : chunks_of_[std::size_t(stage)]) {
    weight_bytes += costs_.chunks[chunk].weight_bytes;
  }
  const auto& ops = schedule_.stages[std::size_t(stage)];
  const std::vector<StageMemory> changes = MemoryChanges(schedule_, stage);
  double now = StandingBytes(stage), peak = now;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const ChunkCost& cost = costs_.chunks[std::size_t(ops[i].chunk)];
    // A message read by a backward pass, or received for one, has the size of the output.
    const bool gradient = ops[i].kind == StageOpKind::kBackward ||
                          ops[i].kind == StageOpKind::kBackwardInput ||
                          ops[i].payload == Payload::kGradient;
    const double share = ops[i].kind == StageOpKind::kUpdate ? 1 : Share(ops[i]);
    const double deltas[] = {
        double(changes[i].activations) * cost.activation_bytes * share,
        double(changes[i].inputs) * cost.input_bytes * share,
        double(changes[i].messages) * (gradient ? cost.output_bytes : cost.input_bytes) * share,
        double(changes[i].versions) * weight_bytes};
    for (const double delta : deltas) now += std::max(delta, 0.0);
    peak = std::max(peak, now);
    for (const double delta : deltas) now += std::min(delta, 0.0);
  }
  return peak;
}

}  // namespace

// Busy time is the sum of the passes and updates; all other time of a stage is waiting.
Result<PipelineForecast> SimulateSchedule(const PipelineSchedule& schedule,
                                          const PipelineCosts& costs) {
  TROOP_RETURN_IF_ERROR(CheckSchedule(schedule));
  TROOP_RETURN_IF_ERROR(CheckCosts(schedule, costs));
  const CostModel model(schedule, costs);
  PipelineForecast forecast;
  TROOP_ASSIGN_OR_RETURN(forecast.intervals,
                         RunSchedule(schedule, [&](std::int64_t stage, const StageOp& op) {
                           return model.Seconds(stage, op);
                         }));
  for (const auto& intervals : forecast.intervals) {
    forecast.seconds = std::max(forecast.seconds, intervals.back().end_s);
  }
  for (std::size_t s = 0; s < schedule.stages.size(); ++s) {
    StageForecast stage{.peak_bytes = model.PeakBytes(std::int64_t(s))};
    for (const StageOp& op : schedule.stages[s]) {
      const bool message = op.kind == StageOpKind::kSend || op.kind == StageOpKind::kReceive;
      if (!message) stage.busy_s += model.Seconds(std::int64_t(s), op);
    }
    stage.bubble = forecast.seconds > 0 ? 1 - stage.busy_s / forecast.seconds : 0;
    forecast.bubble += stage.bubble / double(schedule.stages.size());
    forecast.stages.push_back(stage);
  }
  return forecast;
}

}  // namespace troop
