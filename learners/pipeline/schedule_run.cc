// Implements the execution of a schedule: each stage advances until it blocks, and the stage that
// removes the obstacle wakes it.
#include "learners/pipeline/schedule_run.h"

#include <fmt/core.h>

#include <algorithm>
#include <deque>
#include <unordered_map>

namespace troop {
namespace {

// Messages of one payload from one stage to another, in order.
struct Channel {
  std::vector<double> arrival_s;   // [message]: end of its transfer
  std::vector<double> received_s;  // [message]: when the receiver took it
};

// State of a stage.
struct StageRun {
  std::size_t position = 0;  // of the next operation
  double clock_s = 0;
  bool sent = false;    // the next operation is a send whose message is in the channel already
  bool queued = false;  // in the list of stages that may be able to advance
  const std::vector<std::int64_t>* replicas = nullptr;  // stages with the same chunks
};

// Owner of one execution.
class Runner {
 public:
  Runner(const PipelineSchedule& schedule, const OpSeconds& seconds)
      : schedule_(schedule), seconds_(seconds), stages_(schedule.stages.size()) {
    for (const auto& replicas : schedule.placement) {
      for (const std::int64_t stage : replicas) stages_[std::size_t(stage)].replicas = &replicas;
    }
    for (const auto& ops : schedule.stages) intervals_.emplace_back(ops.size());
  }

  Result<std::vector<std::vector<OpInterval>>> Run();

 private:
  bool Ended(std::int64_t stage) const {
    return stages_[std::size_t(stage)].position == schedule_.stages[std::size_t(stage)].size();
  }
  const StageOp& Next(std::int64_t stage) const {
    return schedule_.stages[std::size_t(stage)][stages_[std::size_t(stage)].position];
  }
  Channel& ChannelOf(std::int64_t from, std::int64_t to, Payload payload) {
    const auto stages = std::int64_t(stages_.size());
    return channels_[(from * stages + to) * 2 + std::int64_t(payload)];
  }
  void Wake(std::int64_t stage);
  void Finish(std::int64_t stage, double end_s);
  // Each makes the next operation of the stage; false: it must wait.
  bool Step(std::int64_t stage);
  bool Send(std::int64_t stage, const StageOp& op);
  bool Receive(std::int64_t stage, const StageOp& op);
  bool Update(std::int64_t stage);
  std::int64_t WaitsFor(std::int64_t stage) const;
  Status Deadlock() const;

  const PipelineSchedule& schedule_;
  const OpSeconds& seconds_;
  std::vector<StageRun> stages_;
  std::vector<std::vector<OpInterval>> intervals_;
  std::unordered_map<std::int64_t, Channel> channels_;
  std::deque<std::int64_t> ready_;
};

// A stage is in the list at most once.
void Runner::Wake(std::int64_t stage) {
  if (std::exchange(stages_[std::size_t(stage)].queued, true)) return;
  ready_.push_back(stage);
}

// The operation began when the stage reached it.
void Runner::Finish(std::int64_t stage, double end_s) {
  StageRun& run = stages_[std::size_t(stage)];
  intervals_[std::size_t(stage)][run.position++] = {run.clock_s, end_s};
  run.clock_s = end_s;
}

// A pass never waits: the checker has proved that its inputs are there.
bool Runner::Step(std::int64_t stage) {
  const StageOp& op = Next(stage);
  switch (op.kind) {
    case StageOpKind::kSend:
      return Send(stage, op);
    case StageOpKind::kReceive:
      return Receive(stage, op);
    case StageOpKind::kUpdate:
      return Update(stage);
    default:
      Finish(stage, stages_[std::size_t(stage)].clock_s + seconds_(stage, op));
      return true;
  }
}

// The message is in the channel at once; the stage continues when at most send_slots messages,
// including this one, wait for the receiver.
bool Runner::Send(std::int64_t stage, const StageOp& op) {
  StageRun& run = stages_[std::size_t(stage)];
  Channel& channel = ChannelOf(stage, op.peer, op.payload);
  if (!std::exchange(run.sent, true)) {
    const double free_s = channel.arrival_s.empty() ? 0 : channel.arrival_s.back();
    channel.arrival_s.push_back(std::max(free_s, run.clock_s) + seconds_(stage, op));
    Wake(op.peer);
  }
  // Message that must have been received first.
  const auto awaited = std::int64_t(channel.arrival_s.size()) - 1 - schedule_.send_slots;
  double end_s = run.clock_s;
  if (awaited >= 0) {
    if (std::size_t(awaited) >= channel.received_s.size()) return false;
    end_s = std::max(end_s, channel.received_s[std::size_t(awaited)]);
  }
  run.sent = false;
  Finish(stage, end_s);
  return true;
}

// Takes the oldest message, which also frees a slot of the sender.
bool Runner::Receive(std::int64_t stage, const StageOp& op) {
  Channel& channel = ChannelOf(op.peer, stage, op.payload);
  const std::size_t message = channel.received_s.size();
  if (message >= channel.arrival_s.size()) return false;
  const double end_s = std::max(stages_[std::size_t(stage)].clock_s, channel.arrival_s[message]);
  channel.received_s.push_back(end_s);
  Finish(stage, end_s);
  Wake(op.peer);
  return true;
}

// Replicas exchange their gradients: the update begins when the last of them has reached it.
bool Runner::Update(std::int64_t stage) {
  const auto& replicas = *stages_[std::size_t(stage)].replicas;
  double start_s = 0;
  for (const std::int64_t replica : replicas) {
    if (Ended(replica) || Next(replica).kind != StageOpKind::kUpdate) return false;
    start_s = std::max(start_s, stages_[std::size_t(replica)].clock_s);
  }
  for (const std::int64_t replica : replicas) {
    stages_[std::size_t(replica)].clock_s = start_s;
    Finish(replica, start_s + seconds_(replica, Next(replica)));
    if (replica != stage) Wake(replica);
  }
  return true;
}

// Stage for which a blocked stage waits: the other side of its message, or the first replica that
// has not reached the update.
std::int64_t Runner::WaitsFor(std::int64_t stage) const {
  const StageOp& op = Next(stage);
  if (op.kind != StageOpKind::kUpdate) return op.peer;
  const auto& replicas = *stages_[std::size_t(stage)].replicas;
  const auto late = std::find_if(replicas.begin(), replicas.end(), [this](std::int64_t replica) {
    return Ended(replica) || Next(replica).kind != StageOpKind::kUpdate;
  });
  return late == replicas.end() ? stage : *late;
}

// Follows the waiting stages from the first blocked one to the end or into the cycle.
Status Runner::Deadlock() const {
  std::int64_t stage = 0;
  while (Ended(stage)) ++stage;
  std::string waits;
  std::vector<bool> seen(stages_.size(), false);
  constexpr int kNamedMax = 4;  // a longer message is not clearer
  for (int named = 0; !seen[std::size_t(stage)] && named < kNamedMax; ++named) {
    seen[std::size_t(stage)] = true;
    if (Ended(stage)) {
      waits += fmt::format("; stage {} has ended", stage);
      break;
    }
    const std::int64_t other = WaitsFor(stage);
    waits +=
        fmt::format("{}stage {}, operation {} ({}) waits for stage {}", waits.empty() ? "" : "; ",
                    stage, stages_[std::size_t(stage)].position, ToString(Next(stage)), other);
    stage = other;
  }
  return InvalidArgument("deadlock with {} send slots: {}; reorder the operations or add slots",
                         schedule_.send_slots, waits);
}

// Ends after at most one step per operation, because each step advances a stage.
Result<std::vector<std::vector<OpInterval>>> Runner::Run() {
  for (std::size_t stage = 0; stage < stages_.size(); ++stage) Wake(std::int64_t(stage));
  while (!ready_.empty()) {
    const std::int64_t stage = ready_.front();
    ready_.pop_front();
    stages_[std::size_t(stage)].queued = false;
    while (!Ended(stage) && Step(stage)) {
    }
  }
  for (std::size_t stage = 0; stage < stages_.size(); ++stage) {
    if (!Ended(std::int64_t(stage))) return Deadlock();
  }
  return std::move(intervals_);
}

}  // namespace

Result<std::vector<std::vector<OpInterval>>> RunSchedule(const PipelineSchedule& schedule,
                                                         const OpSeconds& seconds) {
  return Runner(schedule, seconds).Run();
}

}  // namespace troop
