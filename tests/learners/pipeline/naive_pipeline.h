#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "learners/pipeline/schedule_generators.h"

namespace troop {

// Makes a schedule whose options are valid.
inline PipelineSchedule MadeSchedule(const ScheduleOptions& options) {
  Result<PipelineSchedule> made = MakeSchedule(options);
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return std::move(made).value();
}

// Integer durations of operations, in ticks.
struct NaiveCosts {
  std::vector<std::int64_t> forward, backward_input, backward_weight, update;  // [chunk]
  std::vector<std::int64_t> send_activation, send_gradient;                    // [chunk]
};
inline NaiveCosts EqualCosts(std::int64_t chunks, std::int64_t ticks = 0) {
  const std::vector<std::int64_t> all(std::size_t(chunks), ticks);
  return {all, all, all, all, all, all};
}

// Result of a run: the newest weight of each chunk, outputs of the last chunk, and the end.
struct NaiveOutcome {
  std::vector<std::uint64_t> weights;
  std::vector<std::uint64_t> outputs;  // [micro-batch]
  std::int64_t ticks = 0;
};
// Values of the model. Chunk c computes y = w x, plus 3 times its last output if it is recurrent,
// modulo 2^64, so that sums have one value in every order.
inline std::uint64_t NaiveWeight(std::int64_t chunk) { return std::uint64_t(2 * chunk + 3); }
inline std::uint64_t NaiveInput(std::int64_t m) { return std::uint64_t(m * m + 7); }
inline std::uint64_t NaiveGradient(std::int64_t m) { return std::uint64_t(5 * m + 1); }
inline constexpr std::uint64_t kNaiveState = 3;

// Executes a schedule tick by tick on scalars, without any knowledge of the checker or the
// simulator. Returns nullopt if a value is missing, occurs twice or has the wrong name, if a weight
// version does not exist, or if no stage can advance. Not for predicted weights, and not for
// bidirectional layers.
class NaivePipeline {
 public:
  NaivePipeline(const PipelineSchedule& schedule, const NaiveCosts& costs)
      : schedule_(schedule), costs_(costs), stages_(schedule.stages.size()) {}

  std::optional<NaiveOutcome> Run() {
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      for (std::int64_t c = 0; c < schedule_.chunks(); ++c)
        stages_[s].weights[c] = {NaiveWeight(c)};
    }
    for (std::int64_t now = 0;; ++now) {
      moved_ = true;
      while (moved_) {
        moved_ = false;
        for (std::size_t s = 0; s < stages_.size(); ++s) {
          const bool at = stages_[s].busy_until <= now && Left(s);
          if (at && Try(s, now)) moved_ = true;
          if (failed_) return std::nullopt;
        }
      }
      bool left = false, pending = false;
      for (std::size_t s = 0; s < stages_.size(); ++s) {
        left |= Left(s);
        pending |= stages_[s].busy_until > now;
      }
      for (const auto& [key, channel] : channels_) pending |= channel.free_at > now;
      if (!pending) return left ? std::nullopt : std::optional(Outcome(now));
    }
  }

 private:
  using Key = std::pair<std::int64_t, std::int64_t>;  // chunk, micro-batch
  struct Message {
    std::int64_t chunk, micro_batch, arrival;
    std::uint64_t value;
  };
  struct Channel {
    std::vector<Message> sent;
    std::size_t received = 0;
    std::int64_t free_at = 0;
  };
  struct Stage {
    std::size_t position = 0;
    std::int64_t busy_until = 0;
    bool sent = false;
    std::map<Key, std::uint64_t> input, output, gradient, input_gradient, output_gradient;
    std::map<Key, std::int64_t> version;
    std::map<Key, bool> recomputed, weight_done;
    std::map<std::int64_t, std::vector<std::uint64_t>> weights;  // [chunk]: by version
    std::map<std::int64_t, std::uint64_t> sum;                   // [chunk]: gradient of the update
  };

  bool Left(std::size_t s) const { return stages_[s].position < schedule_.stages[s].size(); }
  const StageOp& Next(std::size_t s) const { return schedule_.stages[s][stages_[s].position]; }
  bool Fail() {
    failed_ = true;
    return false;
  }
  void Take(std::size_t s, std::int64_t now, std::int64_t ticks) {
    ++stages_[s].position;
    stages_[s].busy_until = now + ticks;
  }

  // Starts the next operation if it can begin now.
  bool Try(std::size_t s, std::int64_t now) {
    const StageOp& op = Next(s);
    if (op.kind == StageOpKind::kUpdate) return Update(now, s);
    const bool exists = op.chunk >= 0 && op.chunk < schedule_.chunks() && op.micro_batch >= 0 &&
                        op.micro_batch < schedule_.micro_batches;
    if (!exists || schedule_.StageOf(op.chunk, op.micro_batch) != std::int64_t(s)) return Fail();
    if (op.kind == StageOpKind::kSend) return Send(now, s, op);
    if (op.kind == StageOpKind::kReceive) return Receive(now, s, op);
    const auto chunk = std::size_t(op.chunk);
    std::int64_t ticks = 0;
    bool done = true;
    if (op.kind == StageOpKind::kForward) {
      done = Forward(&stages_[s], op);
      ticks = costs_.forward[chunk];
    } else if (op.kind == StageOpKind::kRecompute) {
      const Key key{op.chunk, op.micro_batch};
      done = stages_[s].output.count(key) && !stages_[s].recomputed[key] && schedule_.recompute &&
             stages_[s].version[key] == op.version;
      stages_[s].recomputed[key] = true;
      ticks = costs_.forward[chunk];
    } else {
      if (op.kind != StageOpKind::kBackwardWeight) {
        done = BackwardInput(&stages_[s], op);
        ticks += costs_.backward_input[chunk];
      }
      if (done && op.kind != StageOpKind::kBackwardInput) {
        done = BackwardWeight(&stages_[s], op);
        ticks += costs_.backward_weight[chunk];
      }
    }
    if (!done) return Fail();
    Take(s, now, ticks);
    return true;
  }

  // Weight that a pass reads; nullopt: there is no such version, or it is not the newest though the
  // policy keeps no other.
  std::optional<std::uint64_t> Weight(const Stage& stage, const StageOp& op) const {
    const auto& versions = stage.weights.at(op.chunk);
    const auto version = std::size_t(op.version);
    if (op.version < 0 || version >= versions.size()) return std::nullopt;
    const bool newest = version + 1 == versions.size();
    if (schedule_.weights == WeightPolicy::kCurrent && !newest) return std::nullopt;
    return versions[version];
  }

  bool Forward(Stage* stage, const StageOp& op) {
    const Key key{op.chunk, op.micro_batch}, before{op.chunk - 1, op.micro_batch};
    if (op.chunk == 0) stage->input[key] = NaiveInput(op.micro_batch);
    if (op.chunk > 0 && stage->output.count(before)) stage->input[key] = stage->output[before];
    const auto weight = Weight(*stage, op);
    if (!weight || !stage->input.count(key) || stage->output.count(key)) return false;
    std::uint64_t state = 0;
    if (schedule_.recurrent && op.micro_batch > 0) {
      const Key last{op.chunk, op.micro_batch - 1};
      if (!stage->output.count(last)) return false;
      state = kNaiveState * stage->output[last];
    }
    stage->output[key] = *weight * stage->input[key] + state;
    stage->version[key] = op.version;
    return true;
  }

  bool BackwardInput(Stage* stage, const StageOp& op) {
    const Key key{op.chunk, op.micro_batch}, after{op.chunk + 1, op.micro_batch};
    if (op.chunk + 1 == schedule_.chunks()) stage->gradient[key] = NaiveGradient(op.micro_batch);
    if (stage->input_gradient.count(after)) stage->gradient[key] = stage->input_gradient[after];
    const auto weight = Weight(*stage, op);
    const bool ready = weight && stage->output.count(key) && stage->gradient.count(key) &&
                       !stage->input_gradient.count(key) && stage->version[key] == op.version &&
                       stage->recomputed[key] == schedule_.recompute;
    if (!ready) return false;
    std::uint64_t gradient = stage->gradient[key];
    if (schedule_.recurrent && op.micro_batch + 1 < schedule_.micro_batches) {
      const Key next{op.chunk, op.micro_batch + 1};
      if (!stage->output_gradient.count(next)) return false;
      gradient += kNaiveState * stage->output_gradient[next];
    }
    stage->output_gradient[key] = gradient;
    stage->input_gradient[key] = gradient * *weight;
    return true;
  }

  bool BackwardWeight(Stage* stage, const StageOp& op) {
    const Key key{op.chunk, op.micro_batch};
    if (!stage->output_gradient.count(key) || stage->weight_done[key]) return false;
    if (stage->version[key] != op.version) return false;
    stage->weight_done[key] = true;
    stage->sum[op.chunk] += stage->output_gradient[key] * stage->input[key];
    return true;
  }

  bool Send(std::int64_t now, std::size_t s, const StageOp& op) {
    Stage& stage = stages_[s];
    const bool activation = op.payload == Payload::kActivation;
    auto& values = activation ? stage.output : stage.input_gradient;
    const Key key{op.chunk, op.micro_batch};
    if (!values.count(key)) return Fail();
    Channel& channel = channels_[{std::int64_t(s), op.peer, op.payload}];
    if (!stage.sent) {
      const auto& ticks = activation ? costs_.send_activation : costs_.send_gradient;
      channel.free_at = std::max(now, channel.free_at) + ticks[std::size_t(op.chunk)];
      channel.sent.push_back({op.chunk, op.micro_batch, channel.free_at, values[key]});
      stage.sent = moved_ = true;
    }
    if (std::int64_t(channel.sent.size() - channel.received) > schedule_.send_slots) return false;
    stage.sent = false;
    Take(s, now, 0);
    return true;
  }

  bool Receive(std::int64_t now, std::size_t s, const StageOp& op) {
    const bool activation = op.payload == Payload::kActivation;
    Channel& channel = channels_[{op.peer, std::int64_t(s), op.payload}];
    if (channel.received == channel.sent.size()) return false;
    const Message& message = channel.sent[channel.received];
    if (message.arrival > now) return false;
    const std::int64_t from = activation ? op.chunk - 1 : op.chunk + 1;
    auto& values = activation ? stages_[s].input : stages_[s].gradient;
    const Key key{op.chunk, op.micro_batch};
    if (message.chunk != from || message.micro_batch != op.micro_batch) return Fail();
    if (values.count(key)) return Fail();
    values[key] = message.value;
    ++channel.received;
    Take(s, now, 0);
    return true;
  }

  // Replicas add up their gradients and make the same step.
  bool Update(std::int64_t now, std::size_t s) {
    std::vector<std::int64_t> replicas;
    std::int64_t ticks = 0;
    for (std::int64_t c = 0; c < schedule_.chunks(); ++c) {
      const auto& placed = schedule_.placement[std::size_t(c)];
      if (std::find(placed.begin(), placed.end(), std::int64_t(s)) == placed.end()) continue;
      replicas = placed;
      ticks += costs_.update[std::size_t(c)];
    }
    for (const std::int64_t r : replicas) {
      const auto replica = std::size_t(r);
      if (!Left(replica) || stages_[replica].busy_until > now) return false;
      if (Next(replica).kind != StageOpKind::kUpdate) return false;
    }
    std::map<std::int64_t, std::uint64_t> sum;
    for (const std::int64_t r : replicas) {
      for (const auto& [chunk, value] : stages_[std::size_t(r)].sum) sum[chunk] += value;
      stages_[std::size_t(r)].sum.clear();
    }
    for (const std::int64_t r : replicas) {
      Stage& stage = stages_[std::size_t(r)];
      for (auto& [chunk, versions] : stage.weights) {
        versions.push_back(versions.back() - sum[chunk]);
        if (std::int64_t(versions.size()) - 1 != Next(std::size_t(r)).version) return Fail();
      }
      Take(std::size_t(r), now, ticks);
    }
    return true;
  }

  NaiveOutcome Outcome(std::int64_t now) const {
    NaiveOutcome outcome{.weights = {}, .outputs = {}, .ticks = now};
    for (std::int64_t c = 0; c < schedule_.chunks(); ++c) {
      const std::int64_t stage = schedule_.placement[std::size_t(c)][0];
      outcome.weights.push_back(stages_[std::size_t(stage)].weights.at(c).back());
    }
    const std::int64_t last = schedule_.chunks() - 1;
    for (std::int64_t m = 0; m < schedule_.micro_batches; ++m) {
      const auto& values = stages_[std::size_t(schedule_.StageOf(last, m))].output;
      const auto at = values.find({last, m});
      outcome.outputs.push_back(at == values.end() ? 0 : at->second);
    }
    return outcome;
  }

  const PipelineSchedule& schedule_;
  const NaiveCosts& costs_;
  std::vector<Stage> stages_;
  std::map<std::tuple<std::int64_t, std::int64_t, Payload>, Channel> channels_;
  bool moved_ = false, failed_ = false;
};

// Runs a schedule with no durations.
inline std::optional<NaiveOutcome> RunNaive(const PipelineSchedule& schedule) {
  const NaiveCosts costs = EqualCosts(schedule.chunks());
  return NaivePipeline(schedule, costs).Run();
}

}  // namespace troop
