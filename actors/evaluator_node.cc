// Implements evaluation by episodes, and the evaluator role.

#include "actors/evaluator_node.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/base/log.h"
#include "core/base/philox.h"

namespace troop {
namespace {

constexpr int kStepsPerTurn = 64;  // bounds a turn, so that heartbeats are sent
// Bits for the rounds of one incarnation. An episode number is round << 20 | count, which leaves 43
// bits for incarnation and round.
constexpr int kRoundBits = 20;
// Round of the final evaluation, whose seeds no other evaluation uses.
constexpr std::uint64_t kFinalRound = std::uint64_t{1} << 43;
// Minimum time between pulls: a parameter server without weights replies at once, with none.
constexpr Duration kPullEvery = Milliseconds(5);

// Limits the episode length where the environment does not, so that an evaluation ends.
Result<EnvOptions> EvaluationOptions(const ActingConfig& config,
                                     const std::function<Status(Time)>& while_starting) {
  EnvOptions options = EnvOptionsFor(config.env, config.serial);
  options.while_starting = while_starting;
  TROOP_ASSIGN_OR_RETURN(const EnvSpec env, FindEnvSpec(config.env.id, options));
  if (env.max_episode_steps == 0) {
    options.max_episode_steps = config.evaluator.max_episode_steps;
  }
  return options;
}

// The config with the environment of evaluation episodes in the place of the actors' one. Of other
// code than in training no checksum is known.
ActingConfig WithEvaluationEnv(ActingConfig config) {
  EnvConfig env = EvaluationEnv(config.env, config.evaluator.env);
  if (!HaveSameCode(env, config.env)) config.env_code.clear();
  config.env = std::move(env);
  // The differences apply once; the seed is read when an evaluation starts.
  config.evaluator.env = {.seed = config.evaluator.env.seed};
  return config;
}

}  // namespace

Result<std::unique_ptr<EpisodeEvaluator>> EpisodeEvaluator::Make(
    const ActingConfig& given, const Options& options, std::span<const float> weights,
    std::unique_ptr<EpisodeEvaluator> before) {
  if (options.episodes < 1) {
    return InvalidArgument("the number of episodes is {}, must be at least 1", options.episodes);
  }
  std::unique_ptr<EpisodeEvaluator> e(new EpisodeEvaluator);
  const ActingConfig config = WithEvaluationEnv(given);
  const bool own_seed = config.evaluator.env.seed >= 0;
  // No more environments than episodes.
  const std::int64_t size = std::min(options.episodes, config.evaluator.envs);
  e->round_ = own_seed ? 0 : options.round;
  e->version_ = options.version;
  e->epsilon_ = config.evaluator.epsilon;
  e->open_ = options.episodes;
  e->return_.assign(std::size_t(size), 0);
  e->lengths_under_way_.assign(std::size_t(size), 0);
  e->keys_.resize(std::size_t(size));
  // Fixed shares per environment, so that short episodes are not overrepresented.
  for (std::int64_t i = 0; i < size; ++i) {
    e->left_.push_back(options.episodes / size + (i < options.episodes % size ? 1 : 0));
  }
  // Equal rounds have equal seeds, so results can be repeated. With evaluator.env.seed each
  // evaluation has the same round.
  const auto seed = [run_seed = std::uint64_t(own_seed ? config.evaluator.env.seed : config.seed),
                     round = e->round_](std::size_t i, std::uint64_t episode) {
    return DeriveSeed({.run_seed = run_seed,
                       .purpose = Purpose::kEvaluation,
                       .index = std::uint64_t(i),
                       .episode = round << kRoundBits | episode});
  };
  if (before && before->error().ok() && std::int64_t(before->runner_->size()) == size) {
    e->runner_ = std::move(before->runner_);
    e->runner_->Restart(seed);
    e->bad_numbers_before_ = e->runner_->nonfinite_values();
    e->faults_before_ = e->runner_->faults();
  } else {
    before.reset();  // frees the old environment processes first
    TROOP_ASSIGN_OR_RETURN(EnvOptions env, EvaluationOptions(config, options.while_starting));
    env.wait |= options.wait;
    TROOP_ASSIGN_OR_RETURN(e->runner_, EnvRunner::Make(config, int(size),
                                                       {.env = std::move(env),
                                                        .seed = seed,
                                                        .before_step = Failpoint::kEvaluatorStep,
                                                        .reward = Failpoint::kEvaluatorReward}));
  }
  if (options.video) {
    e->frames_.emplace(config.evaluator.video_episodes, config.evaluator.video_frames_max);
  }
  if (options.record) {
    e->seed_ = seed;
    TROOP_RETURN_IF_ERROR(e->MakeRecorder(config, *options.record));
  }
  TROOP_RETURN_IF_ERROR(e->runner_->policy().SetWeights(options.version, weights));
  return e;
}

// config: with the environment of evaluation episodes as `env`.
Status EpisodeEvaluator::MakeRecorder(const ActingConfig& config, const Options::Record& record) {
  agent_steps_ = record.agent_steps;
  TROOP_ASSIGN_OR_RETURN(recorder_,
                         ActorRecorder::Make(runner_->spec(), runner_->size(), record.writer,
                                             {.reward_scale = config.env.reward_scale,
                                              .observation_clip = config.env.observation_clip}));
  return Status::Ok();
}

// Evaluations explore by ε alone, also with continuous actions.
void EpisodeEvaluator::BeginRecording(std::size_t i) {
  recorder_->Begin(i, {.seed = seed_(i, runner_->episode(i)),
                       .exploration = epsilon_,
                       .agent_steps = agent_steps_});
}

// The last step of environment i.
void EpisodeEvaluator::Record(std::size_t i) {
  const EnvRunner::One& one = runner_->one(i);
  if (!one.good) return recorder_->Drop(i);
  const PolicyOutput& output = runner_->output();
  const std::size_t bytes = output.action.bytes().size() / runner_->size();
  recorder_->Append(i, {.observation = runner_->acted_on(i),
                        .action = output.action.bytes().subspan(i * bytes, bytes),
                        .reward = one.reward,
                        .terminated = one.terminated,
                        .truncated = one.truncated,
                        .final_observation = runner_->final_observation(i),
                        .policy_version = output.version});
}

// Returns kWaiting if an environment is slow, and kBusy after `steps` vector steps.
EpisodeEvaluator::State EpisodeEvaluator::Advance(int steps) {
  while (open_ > 0 && error().ok()) {
    if (runner_->ready()) {
      if (steps-- == 0) return State::kBusy;
      Act();
    }
    if (runner_->Poll()) {
      Count();
    } else if (!runner_->ready() && error().ok()) {
      return State::kWaiting;
    }
  }
  return State::kOver;
}

// Episode returns start at the first step of an episode, also after an abandoned one.
void EpisodeEvaluator::Act() {
  if (frames_ && !frames_->done()) frames_->Add(runner_->envs().Render(0));
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    // Keys from the top, since the actors' environments count from 0.
    keys_[i] = {.env = ~std::uint64_t{0} - i,
                .episode = round_ << kRoundBits | runner_->episode(i),
                .step = runner_->step(i),
                .epsilon = epsilon_};
    if (keys_[i].step == 0) return_[i] = 0;
    // An environment whose share is complete plays on, but only for the others.
    if (recorder_ && keys_[i].step == 0 && left_[i] > 0) BeginRecording(i);
    lengths_under_way_[i] = double(keys_[i].step + 1);
  }
  runner_->Act(keys_);
}

// An abandoned episode is replaced: it is not counted, and its environment plays another one.
void EpisodeEvaluator::Count() {
  for (std::size_t i = 0; i < left_.size(); ++i) {
    const EnvRunner::One& one = runner_->one(i);
    if (i == 0 && frames_ && (one.ended() || !one.good)) frames_->EndEpisode();
    if (recorder_) Record(i);
    return_[i] += one.reward;
    if (!one.good || !one.ended() || left_[i] == 0) continue;
    --left_[i];
    --open_;
    returns_.push_back(return_[i]);
    lengths_.push_back(lengths_under_way_[i]);
  }
}

// With the population's standard deviation. REQUIRES: an episode is completed.
EvaluationReport EpisodeEvaluator::Report() const {
  EvaluationReport report;
  const double n = double(returns_.size());
  report.weights_version = version_;
  report.episodes = std::int64_t(returns_.size());
  report.return_mean = std::accumulate(returns_.begin(), returns_.end(), 0.0) / n;
  report.length_mean = std::accumulate(lengths_.begin(), lengths_.end(), 0.0) / n;
  double squares = 0;
  for (const double r : returns_) squares += (r - report.return_mean) * (r - report.return_mean);
  report.return_std = std::sqrt(squares / n);
  report.return_min = *std::ranges::min_element(returns_);
  report.return_max = *std::ranges::max_element(returns_);
  return report;
}

Result<std::unique_ptr<EvaluatorNode>> EvaluatorNode::Make(const ActingConfig& config,
                                                           const ActingContext& context) {
  std::unique_ptr<EvaluatorNode> node(new EvaluatorNode(WithEvaluationEnv(config), context));
  node->begin_ = [node = node.get()](const EvaluationRequest& trial, std::span<const float> weights,
                                     std::unique_ptr<Evaluator> before) {
    return node->BeginEvaluation(trial, weights, std::move(before));
  };
  return node;
}

Result<std::unique_ptr<EvaluatorNode>> EvaluatorNode::Make(const ActingConfig& config,
                                                           const ActingContext& context,
                                                           const EnvSpec& problem,
                                                           EvaluatorFactory begin) {
  std::unique_ptr<EvaluatorNode> node(new EvaluatorNode(WithEvaluationEnv(config), context));
  node->env_ = problem;
  node->begin_ = std::move(begin);
  return node;
}

// The evaluation takes over the environments of the previous one.
Result<std::unique_ptr<Evaluator>> EvaluatorNode::BeginEvaluation(
    const EvaluationRequest& trial, std::span<const float> weights,
    std::unique_ptr<Evaluator> before) {
  const EpisodeEvaluator::Options options{
      .episodes = trial.episodes,
      .round = trial.round,
      .version = trial.version,
      .video = trial.video,
      .while_starting = BeatingEnvOptions(config_, network_, member_, &metrics_).while_starting};
  std::unique_ptr<EpisodeEvaluator> last(static_cast<EpisodeEvaluator*>(before.release()));
  TROOP_ASSIGN_OR_RETURN(auto made,
                         EpisodeEvaluator::Make(config_, options, weights, std::move(last)));
  return std::unique_ptr<Evaluator>(std::move(made));
}

// Finds the environment's spec once, then the source of weights.
Status EvaluatorNode::Connect() {
  if (weights_) return Status::Ok();
  if (!env_) {
    TROOP_ASSIGN_OR_RETURN(
        env_,
        FindEnvSpec(config_.env.id, BeatingEnvOptions(config_, network_, member_, &metrics_)));
    // The environment's code must be the one that the run started with.
    TROOP_RETURN_IF_ERROR(CheckSameCode(env_->id, env_->code, config_.env_code));
  }
  TROOP_ASSIGN_OR_RETURN(weights_, connect_weights_(*env_));
  return Status::Ok();
}

// Order: pull weights, drop a trial that the end of the run overtakes, start a trial, advance it.
StepStatus EvaluatorNode::Step(Time now) {
  member_->Poll(now, metrics_);
  CollectBest();
  CollectVideo();
  result_ = member_->lost();
  if (result_.ok()) result_ = Connect();
  if (!result_.ok() || draining_ || member_->stop() || member_->phase() == Phase::kDone) {
    return StepStatus::Done();
  }
  if (weights_) Pull(now);
  // A trial still running at the learner's end is replaced by the final evaluation.
  if (running_ && !running_final_ && member_->phase() >= Phase::kEvaluating) {
    last_ = std::move(running_);
  }
  if (result_.ok() && !running_ && !best_.busy()) result_ = Begin();
  if (!result_.ok()) return StepStatus::Done();
  if (!running_) {
    member_->report().blocked.clear();
    const bool waits = weights_ == nullptr || weights_->requesting() || final_done_;
    return StepStatus::Idle(waits ? member_->next_heartbeat()
                                  : std::min(member_->next_heartbeat(), next_));
  }
  const std::int64_t nonfinite_values = running_->nonfinite_values(), faults = running_->faults();
  const Evaluator::State state = running_->Advance(kStepsPerTurn);
  metrics_.Count("evaluator/nonfinite_values",
                 double(running_->nonfinite_values() - nonfinite_values));
  metrics_.Count("evaluator/env_faults", double(running_->faults() - faults));
  member_->report().blocked = running_->blocked();
  network_->Watch(running_->fd());  // -1 after the end
  if (state == Evaluator::State::kWaiting) return StepStatus::Idle(member_->next_heartbeat());
  if (state == Evaluator::State::kBusy) return StepStatus::Busy();
  result_ = running_->error();
  // The learner rolls non-finite weights back, so the next version is evaluated instead. The final
  // weights have no successor.
  if (result_.code() == Code::kDataLoss && !running_final_) {
    LogWarning("evaluation failed: {}", result_.message());
    metrics_.Count("evaluator/nonfinite_weights", 1);
    result_ = Status::Ok();
    last_ = std::move(running_);
    return StepStatus::Busy();
  }
  if (!result_.ok()) return StepStatus::Done();
  Report();
  return StepStatus::Busy();
}

// The report is sent with the next heartbeat; the end is reported only after the best checkpoint.
void EvaluatorNode::Report() {
  EvaluationReport report = running_->Report();
  report.final = running_final_;
  report.steps = running_steps_;
  metrics_.Ratio("evaluator/episode_return_mean", report.return_mean, double(report.episodes));
  metrics_.Count("evaluator/episodes", double(report.episodes));
  for (const auto& [name, value] : running_->Measures()) {
    metrics_.Gauge("evaluator/" + name, value);
    report.measures.push_back({.name = name, .value = value});
  }
  if (running_final_) running_->AddDetails(&report);
  member_->report().evaluations.push_back(report);
  final_done_ = final_done_ || running_final_;
  // Accuracies on the validation and on the test examples are not comparable.
  const bool comparable = !running_final_ || !IsSupervised(config_.model);
  if (best_.enabled() && comparable) best_.Start(report, running_value_);
  running_value_ = {};
  // A video that comes while the one before is still being written is left out.
  if (running_video_ && !videos_.busy()) {
    videos_.Start(UpdatesOf(report.weights_version), running_->TakeFrames());
  }
  member_->report().finished = final_done_ && !best_.busy() && !videos_.busy();
  member_->SendHeartbeatSoon();
  last_ = std::move(running_);
}

// The report of the end waits for the last video. A failed one has been logged.
void EvaluatorNode::CollectVideo() {
  if (!videos_.busy()) return;
  videos_.Poll();
  if (videos_.busy() || !final_done_ || best_.busy() || member_->report().finished) return;
  member_->report().finished = true;
  member_->SendHeartbeatSoon();
}

// A failed write does not end the run: the best checkpoint before is still complete.
void EvaluatorNode::CollectBest() {
  const std::optional<Result<bool>> kept = best_.Poll();
  if (!kept) return;
  if (!kept->ok()) {
    LogError("best checkpoint not written: {}", kept->status().message());
    metrics_.Count("evaluator/best_checkpoint_failures", 1);
  }
  // The report of the end may have waited for this write.
  member_->report().finished = final_done_ && !videos_.busy();
  member_->SendHeartbeatSoon();
}

// Pulls at intervals during the run, and repeatedly after the learner's end.
void EvaluatorNode::Pull(Time now) {
  const bool final = member_->phase() >= Phase::kEvaluating;
  const bool was_requesting = weights_->requesting();
  if (std::optional<WeightSnapshot> snapshot = weights_->Poll(now)) {
    newest_ = std::move(snapshot);
    newest_steps_ = member_->steps_total_done();
  }
  result_ = weights_->error();
  if (!result_.ok() || weights_->requesting()) return;
  // Final weights come from a pull that started after the learner's end. A parameter server
  // restarted since then receives them again, and has none until then.
  if (was_requesting && final_requested_ && weights_->server_version() > 0) final_pulled_ = true;
  if (now < next_ && !(final && !final_requested_)) return;
  if (final && !final_pulled_) {
    final_requested_ = true;
    next_ = now + kPullEvery;
    weights_->Request(now);
  } else if (!final && !running_) {
    next_ = now + (newest_ ? Seconds(config_.evaluator.every_s) : kPullEvery);
    weights_->Request(now);
  }
}

// Starts a trial for new weights, or the final one.
Status EvaluatorNode::Begin() {
  if (!newest_ || final_done_) return Status::Ok();
  const bool final = member_->phase() >= Phase::kEvaluating && final_pulled_;
  if (!final && (member_->phase() != Phase::kRunning || newest_->version <= evaluated_version_)) {
    return Status::Ok();
  }
  running_final_ = final;
  running_steps_ = final ? member_->steps_total_done() : newest_steps_;
  evaluated_version_ = newest_->version;
  if (best_.enabled()) running_value_ = newest_->value;
  // Rounds of different incarnations differ, so no seed is reused.
  const std::uint64_t round =
      final ? kFinalRound : member_->options().incarnation << kRoundBits | round_++;
  // Every video_every-th evaluation from the first on, and the final one.
  const std::int64_t every = config_.evaluator.video_every;
  running_video_ = videos_.enabled() && every > 0 && (final || trials_++ % every == 0);
  const EvaluationRequest trial{
      .episodes = final ? FinalEpisodes(config_.evaluator, IsSupervised(config_.model))
                        : config_.evaluator.episodes,
      .round = round,
      .version = newest_->version,
      .final = final,
      .video = running_video_};
  TROOP_ASSIGN_OR_RETURN(running_, begin_(trial, newest_->value.as<float>(), std::move(last_)));
  return Status::Ok();
}

}  // namespace troop
