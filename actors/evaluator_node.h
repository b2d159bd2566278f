#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "actors/acting_config.h"
#include "actors/acting_context.h"
#include "actors/actor_recorder.h"
#include "actors/best_offer.h"
#include "actors/env_runner.h"
#include "actors/video/episode_frames.h"
#include "actors/video/video_writer.h"
#include "core/base/node.h"
#include "net/control/evaluation_report.h"
#include "net/control/fleet_member.h"
#include "paramserver/weights/evaluator.h"
#include "paramserver/weights/weights_client.h"

namespace troop {

// Plays a fixed number of episodes with fixed weights, in bounded slices. Each environment plays a
// fixed share of the episodes, so that short episodes are not overrepresented. Seeds depend only on
// (run seed, `round`, environment, episode). If the environment has no limit, episodes are
// truncated after evaluator.max_episode_steps. The environment is [env] with the differences of
// [evaluator.env]. An episode with a NaN or infinite reward or
// observation is replaced by another one; too many of them end the evaluation. One owner thread.
class EpisodeEvaluator final : public Evaluator {
 public:
  struct Options {
    std::int64_t episodes = 1;
    std::uint64_t round = 0;    // evaluations with equal config and round have equal seeds
    std::uint64_t version = 0;  // of the weights
    bool wait = false;          // block on slow environments (EnvOptions)
    bool video = false;         // record the pictures of environment 0 (EpisodeFrames)
    // Writes each episode that counts (ActorRecorder); an episode that cannot be written ends the
    // evaluation with an error.
    struct Record {
      EpisodeWriter::Options writer;
      std::int64_t agent_steps = 0;  // that the weights had been trained for
    };
    std::optional<Record> record = std::nullopt;
    std::function<Status(Time)> while_starting;  // as in EnvOptions
  };
  // `before`: a previous evaluation of the same config, whose environments are reused; nullptr: new
  // ones.
  static Result<std::unique_ptr<EpisodeEvaluator>> Make(
      const ActingConfig& config, const Options& options, std::span<const float> weights,
      std::unique_ptr<EpisodeEvaluator> before = nullptr);
  State Advance(int steps) override;  // in vector steps; waits for environments
  int fd() const override { return runner_->fd(); }
  const Status& error() const override {
    return recorder_ && !recorder_->error().ok() ? recorder_->error() : runner_->status();
  }
  EvaluationReport Report() const override;
  std::int64_t nonfinite_values() const override {
    return runner_->nonfinite_values() - bad_numbers_before_;
  }
  std::int64_t faults() const override { return runner_->faults() - faults_before_; }
  std::string blocked() const override { return runner_->blocked(); }
  std::vector<Picture> TakeFrames() override {
    return frames_ ? frames_->Take() : std::vector<Picture>();
  }
  std::span<const double> returns() const { return returns_; }
  const VectorEnv& envs() const { return runner_->envs(); }  // for rendering
  // REQUIRES: Options::record.
  const EpisodeWriter& recorded() const { return recorder_->writer(); }

 private:
  EpisodeEvaluator() = default;
  Status MakeRecorder(const ActingConfig& config, const Options::Record& record);
  void BeginRecording(std::size_t i);
  void Record(std::size_t i);
  void Act();
  void Count();

  std::unique_ptr<EnvRunner> runner_;
  double epsilon_ = 0;
  std::uint64_t round_ = 0, version_ = 0;
  // Bookkeeping per environment, then totals.
  std::vector<std::int64_t> left_;                  // episodes left per environment
  std::vector<double> return_, lengths_under_way_;  // of the current episodes
  std::vector<ExploreKey> keys_;
  std::vector<double> returns_, lengths_;  // of the completed episodes
  std::int64_t open_ = 0;                  // episodes that are not completed
  std::int64_t bad_numbers_before_ = 0, faults_before_ = 0;
  std::optional<EpisodeFrames> frames_;  // with Options::video
  // Recording; nullptr without Options::record.
  std::unique_ptr<ActorRecorder> recorder_;
  std::int64_t agent_steps_ = 0;
  std::function<std::uint64_t(std::size_t i, std::uint64_t episode)> seed_;
};

// The evaluator role: every `every_s` seconds it pulls the newest weights and plays `episodes`
// episodes with its own ε, or runs another kind of trial. At the end of the run it plays
// `final_episodes` with the final weights, and drops a trial that is still running. With
// evaluator.keep_best each result is offered to the best checkpoint (BestOffer); the next trial,
// and the report of the end, wait for that. The final accuracy of a text model is not offered: it
// is that of other examples, and the test examples must not choose the model. With
// evaluator.video_every each N-th evaluation from the first on, and the final one, record a video
// (VideoWriter). Owner: the node's thread.
class EvaluatorNode final : public Node {
 public:
  // Starts a trial. before: a finished or dropped trial of this factory; nullptr: none.
  using EvaluatorFactory = std::function<Result<std::unique_ptr<Evaluator>>(
      const EvaluationRequest&, std::span<const float> weights, std::unique_ptr<Evaluator> before)>;
  // problem: as ReviewSpec or an environment defines it.
  static Result<std::unique_ptr<EvaluatorNode>> Make(const ActingConfig& config,
                                                     const ActingContext& context,
                                                     const EnvSpec& problem,
                                                     EvaluatorFactory begin);
  // Evaluates by playing the config's environment.
  static Result<std::unique_ptr<EvaluatorNode>> Make(const ActingConfig& config,
                                                     const ActingContext& context);
  StepStatus Step(Time now) override;
  void Drain() override { draining_ = true; }
  Status result() const override { return result_; }

 private:
  // `config`: with the environment of evaluation episodes as `env`.
  EvaluatorNode(const ActingConfig& config, const ActingContext& context)
      : config_(config),
        network_(context.network),
        member_(context.member),
        connect_weights_(context.connect_weights),
        best_(context.executor, context.keep_best),
        videos_({.executor = context.executor,
                 .run = context.videos,
                 .kept = config.evaluator.videos_kept}) {}
  Result<std::unique_ptr<Evaluator>> BeginEvaluation(const EvaluationRequest& trial,
                                                     std::span<const float> weights,
                                                     std::unique_ptr<Evaluator> before);
  Status Connect();
  void Pull(Time now);
  Status Begin();
  void Report();
  void CollectBest();
  void CollectVideo();

  const ActingConfig config_;
  Network* const network_;
  FleetMember* const member_;
  const WeightConnector connect_weights_;
  Metrics metrics_;
  EvaluatorFactory begin_;
  std::optional<EnvSpec> env_;
  std::unique_ptr<WeightSubscriber> weights_;
  // The newest pulled weights, with the fleet's step count at that time.
  std::optional<WeightSnapshot> newest_;
  std::int64_t newest_steps_ = 0;
  // Trials: one runs at a time; the final one replaces any other.
  std::unique_ptr<Evaluator> running_;
  std::unique_ptr<Evaluator> last_;  // its environments are reused by the next one
  bool running_final_ = false;
  std::int64_t running_steps_ = 0;
  Buffer running_value_;  // the weights under evaluation
  BestOffer best_;
  VideoWriter videos_;
  std::int64_t trials_ = 0;     // begun, without the final one
  bool running_video_ = false;  // the trial records a video
  std::uint64_t round_ = 0;
  std::uint64_t evaluated_version_ = 0;
  Time next_{};                   // earliest time of the next pull
  bool final_requested_ = false;  // the weights were requested after the learner's end
  bool final_pulled_ = false;     // and received
  bool final_done_ = false;
  bool draining_ = false;
  Status result_;
};

}  // namespace troop
