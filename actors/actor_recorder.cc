// Implements the recording of complete episodes.
#include "actors/actor_recorder.h"

#include <utility>

#include "core/base/log.h"

namespace troop {

// Files of earlier incarnations count toward the limit.
Result<std::unique_ptr<ActorRecorder>> ActorRecorder::Make(const EnvSpec& env, std::size_t envs,
                                                           const EpisodeWriter::Options& writer,
                                                           const Applied& applied) {
  std::unique_ptr<ActorRecorder> made(new ActorRecorder(env, envs, writer, applied));
  TROOP_ASSIGN_OR_RETURN(made->writer_, EpisodeWriter::Open(writer));
  return made;
}

// An open episode here was abandoned by a restart of its environment.
void ActorRecorder::Begin(std::size_t i, const Start& start) {
  Drop(i);
  open_[i].active = true;
  open_[i].start = start;
}

// The last observation follows the others: an episode of T steps has T + 1.
void ActorRecorder::Append(std::size_t i, const TrajectoryBuilder::Step& step) {
  Open& open = open_[i];
  if (!open.active) return;
  // The limit covers all open episodes, so one long episode is dropped rather than all.
  const bool ends = step.terminated || step.truncated;
  const std::size_t bytes = step.observation.size() + step.action.size() + sizeof(float) +
                            (ends ? step.final_observation.size() : 0);
  if (open_bytes_ + bytes > bytes_max_) {
    if (error_.ok()) {
      error_ = ResourceExhausted(
          "the episodes in progress exceed the limit of recorded episodes, {} bytes", bytes_max_);
    }
    return Drop(i);
  }
  // The weights may change during an episode; those of its first step name it.
  if (open.rewards.empty()) open.policy_updates = UpdatesOf(step.policy_version);
  open.observations.insert(open.observations.end(), step.observation.begin(),
                           step.observation.end());
  open.actions.insert(open.actions.end(), step.action.begin(), step.action.end());
  open.rewards.push_back(step.reward);
  open_bytes_ += bytes;
  // Only here is the last observation known: the next one belongs to another episode.
  if (!ends) return;
  open.observations.insert(open.observations.end(), step.final_observation.begin(),
                           step.final_observation.end());
  Write(&open, step);
}

// A later step of the same episode is ignored until the next Begin.
void ActorRecorder::Drop(std::size_t i) {
  if (!open_[i].active) return;
  ++unrecorded_;
  Close(&open_[i]);
}

// The vectors keep their capacity for the next episode.
void ActorRecorder::Close(Open* open) {
  open_bytes_ -=
      open->observations.size() + open->actions.size() + open->rewards.size() * sizeof(float);
  open->active = false;
  open->observations.clear();
  open->actions.clear();
  open->rewards.clear();
}

// The metric counts all failures; the first one is kept.
void ActorRecorder::Write(Open* open, const TrajectoryBuilder::Step& last) {
  const Status written = writer_->Append(
      {.env = env_.id,
       .observation = env_.observation,
       .action = env_.action,
       .steps = std::int64_t(open->rewards.size()),
       .terminated = last.terminated,
       .truncated = last.truncated,
       .seed = open->start.seed,
       .exploration = open->start.exploration,
       .policy_updates = open->policy_updates,
       .agent_steps = open->start.agent_steps,
       .reward_scale = applied_.reward_scale,
       .observation_clip = applied_.observation_clip,
       .observations = Buffer::Copy(std::span<const std::byte>(open->observations)),
       .actions = Buffer::Copy(std::span<const std::byte>(open->actions)),
       .rewards = Buffer::Copy(std::as_bytes(std::span<const float>(open->rewards)))});
  // The memory is free again, whether or not the disk took the episode.
  Close(open);
  if (written.ok()) return;
  ++unrecorded_;
  if (error_.ok()) error_ = written;
}

// Totals of this process; those of earlier incarnations are added by the coordinator.
void ActorRecorder::Report(Metrics* metrics) {
  if (!error_.ok() && !logged_) {
    logged_ = true;
    LogWarning("an episode was not recorded: {}; actor/unrecorded_episodes counts all",
               error_.message());
  }
  const auto count = [metrics](const char* name, double value) {
    metrics->Gauge(name, value, MetricKind::kCounter);
  };
  count("actor/recorded_episodes", double(writer_->episodes()));
  count("actor/unrecorded_episodes", double(unrecorded_));
  count("actor/recorded_bytes_removed", double(writer_->bytes_removed()));
  metrics->Gauge("actor/recorded_bytes", double(writer_->bytes()), MetricKind::kGaugeSum);
}

}  // namespace troop
