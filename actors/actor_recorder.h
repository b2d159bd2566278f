#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "actors/experience/trajectory_builder.h"
#include "core/metrics/metrics.h"
#include "core/storage/storage.h"
#include "core/tensor/spec.h"
#include "replay/episodes/episode_writer.h"

namespace troop {

// Collects the steps of N environments, of an actor or an evaluation, into episodes, and writes the
// complete ones to a folder (replay/episodes). Owner: one thread; blocks on the disk at the end of
// an episode, without waiting for it to be durable.
//
// Not recorded, but counted: episodes with a step that the agent did not make or that was invalid,
// those that would take the memory of all open episodes beyond bytes_max, and those that the disk
// did not accept. A write that fails does not end the run.
class ActorRecorder {
 public:
  // The changes that the environments make to all values, as in Episode.
  struct Applied {
    double reward_scale = 1, observation_clip = 0;
  };
  // writer.bytes_max also limits the memory of open episodes.
  static Result<std::unique_ptr<ActorRecorder>> Make(const EnvSpec& env, std::size_t envs,
                                                     const EpisodeWriter::Options& writer,
                                                     const Applied& applied);

  // Facts about an episode that are known at its first step.
  struct Start {
    std::uint64_t seed = 0;
    double exploration = 0;
    std::int64_t agent_steps = 0;
  };
  // Begins an episode of environment i. An episode that has not ended is not recorded.
  void Begin(std::size_t i, const Start& start);
  // Adds one step of environment i; ignored outside an episode that is being recorded.
  void Append(std::size_t i, const TrajectoryBuilder::Step& step);
  // Marks the episode of environment i as not to be recorded, because a step of it is missing.
  void Drop(std::size_t i);

  // Sets the metrics actor/recorded_episodes, actor/unrecorded_episodes,
  // actor/recorded_bytes (on disk) and actor/recorded_bytes_removed. Logs error() once.
  void Report(Metrics* metrics);

  // Why the first episode was not written that the disk or bytes_max refused; ok: none was.
  const Status& error() const { return error_; }
  const EpisodeWriter& writer() const { return *writer_; }

 private:
  struct Open {
    bool active = false;
    Start start;
    std::uint64_t policy_updates = 0;
    std::vector<std::byte> observations, actions;
    std::vector<float> rewards;
  };
  ActorRecorder(const EnvSpec& env, std::size_t envs, const EpisodeWriter::Options& writer,
                const Applied& applied)
      : env_(env), applied_(applied), bytes_max_(writer.bytes_max), open_(envs) {}
  void Close(Open* open);
  void Write(Open* open, const TrajectoryBuilder::Step& last);

  const EnvSpec env_;
  const Applied applied_;
  const std::size_t bytes_max_;
  std::unique_ptr<EpisodeWriter> writer_;
  std::vector<Open> open_;       // [N]
  std::size_t open_bytes_ = 0;   // of all open episodes
  std::int64_t unrecorded_ = 0;  // episodes that were not written
  Status error_;
  bool logged_ = false;
};

}  // namespace troop
