// Implements the steps of the actor role.

#include "actors/actor_node.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "actors/exploration.h"
#include "actors/insert_bounds.h"
#include "core/base/failpoint.h"
#include "core/base/log.h"
#include "core/base/philox.h"
#include "kernels/elementwise/is_finite.h"
#include "nn/models/model.h"
#include "replay/service/options_from_config.h"

namespace troop {
namespace {

// Vector steps per turn: about 100 µs of native environments, so that messages are handled soon.
constexpr int kStepsPerTurn = 16;
// Minimum time between pulls: a parameter server without weights replies at once, with none.
constexpr Duration kPullEvery = Milliseconds(5);

}  // namespace

ActorNode::ActorNode(const ActingConfig& config, const ActingContext& context)
    : config_(config),
      network_(context.network),
      member_(context.member),
      connect_weights_(context.connect_weights),
      history_(context.history),
      episodes_(context.episodes),
      rollout_(RolloutGate::OptionsOf(config)) {}

Result<std::unique_ptr<ActorNode>> ActorNode::Make(const ActingConfig& config,
                                                   const ActingContext& context) {
  std::unique_ptr<ActorNode> node(new ActorNode(config, context));
  TROOP_RETURN_IF_ERROR(node->Build());
  return node;
}

// Makes the runner, one trajectory builder per environment, and the initial ladder position.
Status ActorNode::Build() {
  const int size = int(config_.actor.envs);
  const std::uint64_t incarnation = member_->options().incarnation;
  const auto first = std::uint64_t(member_->options().index) * std::uint64_t(size);
  // Failpoints of the actor role; the evaluator has its own.
  EnvRunner::Options options{
      .env = BeatingEnvOptions(config_, network_, member_, &metrics_),
      .seed = [this](std::size_t i, std::uint64_t episode) { return SeedOf(i, episode); },
      .first = first,
      .before_step = Failpoint::kActorStep,
      .reward = Failpoint::kActorReward,
      .observation = Failpoint::kActorObservation,
      .policy = {}};
  // Server mode: the policy is remote, and the runner needs no network.
  if (InferenceServersOf(config_) > 0) {
    options.policy = [this](const EnvSpec& env) -> Result<std::unique_ptr<Policy>> {
      TROOP_RETURN_IF_ERROR(CheckActions(config_.model, env));
      auto policy = std::make_unique<RemotePolicy>(NetworkInput(config_.model, env), env.action,
                                                   ColumnsOfQ(config_.model.algorithm, env.action));
      remote_ = policy.get();
      return std::unique_ptr<Policy>(std::move(policy));
    };
  }
  TROOP_ASSIGN_OR_RETURN(runner_, EnvRunner::Make(config_, size, std::move(options)));
  state_.resize(std::size_t(size));
  for (std::size_t i = 0; i < state_.size(); ++i) {
    state_[i].global = first + i;
    builders_.emplace_back(BuilderOptions(), incarnation << 32 | state_[i].global);
  }
  keys_.resize(state_.size());
  const std::int64_t index = member_->options().index;
  AssignExploration(index, std::max(config_.actors, index + 1));
  return MakeRecorder();
}

// Seeds depend on the incarnation, so a restarted actor plays new episodes.
std::uint64_t ActorNode::SeedOf(std::size_t i, std::uint64_t episode) const {
  const FleetMember::Options& self = member_->options();
  return DeriveSeed({.run_seed = std::uint64_t(config_.seed),
                     .purpose = Purpose::kEnvironment,
                     .index = std::uint64_t(self.index) * std::uint64_t(config_.actor.envs) + i,
                     .episode = self.incarnation << 32 | episode});
}

Status ActorNode::MakeRecorder() {
  if (episodes_ == nullptr) return Status::Ok();
  const FleetMember::Options& self = member_->options();
  TROOP_ASSIGN_OR_RETURN(
      recorder_, ActorRecorder::Make(runner_->spec(), state_.size(),
                                     {.storage = episodes_,
                                      .name = fmt::format("actor-{}", self.index),
                                      .incarnation = self.incarnation,
                                      .bytes_max = std::size_t(config_.actor.record_bytes_max)},
                                     {.reward_scale = config_.env.reward_scale,
                                      .observation_clip = config_.env.observation_clip}));
  return Status::Ok();
}

// Assigns place `place` of a ladder for `places` actors; seeds and streams keep using the index.
void ActorNode::AssignExploration(std::int64_t place, std::int64_t places) {
  if (place == place_ && places == places_) return;
  place_ = place;
  places_ = places;
  const ActorConfig& a = config_.actor;
  const std::uint64_t size = state_.size();
  for (std::uint64_t i = 0; i < size; ++i) {
    // The rung counts environments over all actors.
    const std::uint64_t rung = std::uint64_t(place) * size + i,
                        rungs = std::uint64_t(places) * size;
    if (IsActorCritic(config_.model.algorithm)) {
      state_[i].noise_sigma = 1;  // samples of its policy
    } else if (config_.model.network.noisy) {
      state_[i].noise_sigma = 1;  // the noise of its layers, in place of ε
    } else if (runner_->spec().action.discrete()) {
      state_[i].epsilon = ExplorationEpsilon(a.epsilon_base, a.epsilon_alpha, rung, rungs);
    } else if (config_.model.algorithm == AlgorithmKind::kSac) {
      state_[i].noise_sigma = 1;  // samples of its policy
    } else {
      state_[i].noise_sigma = ExplorationEpsilon(a.noise_sigma, a.noise_alpha, rung, rungs);
    }
  }
}

TrajectorySpec ActorNode::Trajectory() const {
  return TrajectoryFor({.unroll_length = config_.actor.unroll_length,
                        .numbers_per_step = NumbersPerStep(config_.model.algorithm,
                                                           config_.value_clip, config_.synchronous),
                        .state_columns = StateColumns(config_.model.network.layers)},
                       runner_->spec());
}

// Only R2D2 learns n-step returns within unrolls, and rescales values.
TrajectoryBuilder::Options ActorNode::BuilderOptions() const {
  const ActorConfig& a = config_.actor;
  TrajectoryBuilder::Options options{.spec = Trajectory(),
                                     .n_step = int(a.n_step),
                                     .unroll = int(a.unroll_length),
                                     .gamma = config_.gamma,
                                     .reward_clip = config_.env.reward_clip,
                                     .copies = int(a.insert_copies),
                                     .state_columns = StateColumns(config_.model.network.layers)};
  if (config_.model.algorithm != AlgorithmKind::kR2d2) return options;
  options.overlap = int(a.unroll_overlap);
  options.burn_in = int(a.burn_in);
  options.unroll_n_step = int(a.n_step);
  options.rescale = config_.value_rescaling;
  options.largest_share = config_.priority_max_share;
  return options;
}

// Order: heartbeat, connections, acknowledgements, then as many steps as the turn allows.
StepStatus ActorNode::Step(Time now) {
  now_ = now;
  if (remote_ != nullptr) remote_->Advance(now);
  Report();
  member_->Poll(now, metrics_);
  result_ = member_->lost();
  if (member_->places() > 0) AssignExploration(member_->place(), member_->places());
  if (result_.ok()) result_ = Connect();
  if (result_.ok()) FollowFleet();
  if (result_.ok() && writer_) {
    writer_->Poll(now);
    result_ = writer_->error();
  }
  if (!result_.ok()) return StepStatus::Done();
  if (draining_ || member_->stop() || member_->phase() >= Phase::kDraining)
    return StepStatus::Done();
  AskLease();
  PullWeights(now);
  if (config_.env.metrics && now >= env_metrics_next_) {
    env_metrics_next_ = now + Seconds(config_.metrics_every_s);
    env_metrics_due_ = true;
  }
  bool busy = true;
  for (int i = 0; i < kStepsPerTurn && busy; ++i) busy = Advance();
  // Wakes the node when an environment process has a result.
  network_->Watch(runner_->fd());
  if (!result_.ok()) return StepStatus::Done();
  if (busy) return StepStatus::Busy();
  // The last buffer may be smaller than insert_batch_size.
  if (steps_ == member_->steps_granted() && member_->steps_over() && writer_) Push();
  const bool pulls = !have_weights_ || rollout_.waiting();
  return StepStatus::Idle(pulls ? std::min(member_->next_heartbeat(), next_pull_)
                                : member_->next_heartbeat());
}

// The coordinator grants agent steps in blocks, so that the run's total is exact. Requests the next
// block before the current one is used up. A rollout is a block: others need the steps after it.
void ActorNode::AskLease() {
  const std::int64_t envs = std::ssize(state_), left = rollout_.StepsToLease() * envs;
  const std::int64_t block = std::max(config_.actor.lease_steps, envs);  // MayStep requires `envs`
  std::int64_t& wanted = member_->report().steps_wanted;
  if (member_->steps_over() || wanted - steps_ > (rollout_.enabled() ? left - 1 : block)) return;
  wanted = steps_ + (rollout_.enabled() ? left : 2 * block);
  member_->SendHeartbeatSoon();
}

// Also pushes: a full buffer is pushed as soon as the window allows, and blocks steps until then.
bool ActorNode::MayStep() {
  if (!writer_ || !have_weights_ || !result_.ok()) return false;
  if (rollout_.waiting() && !MayBeginRollout()) return false;
  // A last lease smaller than the number of environments: all step, some are recorded.
  const std::int64_t leased = member_->steps_granted() - steps_;
  if (leased < std::int64_t(state_.size()) && !(leased > 0 && member_->steps_over())) return false;
  if (!PushLast()) return false;
  std::int64_t items = 0, frames = 0;
  for (const TrajectoryBuilder& b : builders_) {
    items += std::int64_t(b.items());
    frames += b.frames();
  }
  const InsertBounds bounds = InsertBoundsOf(config_.actor);
  return (items < bounds.items_due && frames < bounds.frames_due) || Push();
}

// Pushes the rest of a rollout. The next begins with newer weights (UseWeights), or as a refill.
bool ActorNode::MayBeginRollout() {
  return Push() && result_.ok() && rollout_.TryRefill(now_, member_->steps_over());
}

// Takes finished steps, and acts if the environments are idle. Returns false if there is nothing to
// do.
bool ActorNode::Advance() {
  if (runner_->ready()) {
    // Between two steps, when the environments are idle.
    if (env_metrics_due_) ReportEnvMetrics();
    if (!MayStep()) return false;
    Act();
  }
  const bool stepped = runner_->Poll();
  if (stepped) Record();
  if (result_.ok()) result_ = runner_->status();
  return result_.ok() && (stepped || runner_->ready());
}

// ε of this step: annealed by the fleet's steps, or 1 during warmup, or the ladder's.
void ActorNode::Act() {
  const std::int64_t done = member_->steps_total_done();
  std::optional<double> of_all;  // ε of all environments
  if (config_.actor.epsilon_steps > 0) {
    of_all = AnnealedEpsilon(config_.actor, done);
  } else if (double(done) < config_.actor.warmup_steps) {
    of_all = 1;
  }
  // The keys identify episode and step, so a repeated inference request gives the same action.
  for (std::size_t i = 0; i < state_.size(); ++i) {
    const EnvState& env = state_[i];
    keys_[i] = {.env = env.global,
                .episode = member_->options().incarnation << 32 | runner_->episode(i),
                .step = runner_->step(i),
                .epsilon = of_all.value_or(env.epsilon),
                .noise_sigma = env.noise_sigma};
  }
  if (recorder_) BeginRecordings();
  runner_->Act(keys_);
}

// Step 0 of an environment begins an episode.
void ActorNode::BeginRecordings() {
  const bool discrete = env().action.discrete();
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    const ExploreKey& key = keys_[i];
    if (key.step > 0) continue;
    recorder_->Begin(i, {.seed = SeedOf(i, runner_->episode(i)),
                         .exploration = discrete ? key.epsilon : key.noise_sigma,
                         .agent_steps = member_->steps_total_done()});
  }
}

// The mean over its environments, whose ε differ without annealing.
void ActorNode::ReportEpsilon() {
  if (!env().action.discrete() || steps_ == 0) return;
  double sum = 0;
  for (const ExploreKey& key : keys_) sum += key.epsilon;
  metrics_.Ratio("actor/epsilon", sum / double(keys_.size()), double(keys_.size()));
}

// The recurrent state before the step of environment i; empty without one. Valid until the policy
// acts again, so the builder copies it.
std::span<const float> ActorNode::StateOf(const PolicyOutput& output, std::size_t i) {
  if (output.state.empty()) return {};
  const auto columns = std::size_t(output.state.dim(1));
  return output.state.as<float>().subspan(i * columns, columns);
}

// log μ of the taken action; 0 for algorithms that do not use it.
float ActorNode::LogMu(std::size_t i) const {
  if (!IsActorCritic(config_.model.algorithm)) return 0;
  const PolicyOutput& output = runner_->output();
  const auto width = std::size_t(output.q.dim(1));
  const auto row = output.q.as<float>().subspan(i * width, width);
  const ActionSpec& spec = env().action;
  if (spec.discrete()) return LogProbability(keys_[i], row, output.action.as<std::int32_t>()[i]);
  const std::size_t size = spec.low.size();
  return LogProbability(keys_[i], row, spec, output.action.as<float>().subspan(i * size, size));
}

// Appends the valid steps to the trajectories, up to the leased number.
void ActorNode::Record() {
  const PolicyOutput& output = runner_->output();
  const std::int64_t leased =
      std::min(member_->steps_granted() - steps_, std::int64_t(state_.size()));
  const std::size_t action_bytes = output.action.bytes().size() / state_.size();
  LeaveShards();
  if (config_.env.normalize_rewards) RecordRewards();
  for (std::size_t i = 0; i < builders_.size(); ++i) {
    const EnvRunner::One& one = runner_->one(i);
    const float q_max = output.q_max.as<float>()[i];
    // A step that is not recorded ends the trajectory.
    if (std::int64_t(i) >= leased || !one.good) {
      builders_[i].Cut(runner_->acted_on(i), one.q_good ? std::optional(q_max) : std::nullopt);
      if (recorder_) recorder_->Drop(i);
    } else {
      const TrajectoryBuilder::Step step{
          .observation = runner_->acted_on(i),
          .action = output.action.bytes().subspan(i * action_bytes, action_bytes),
          .q_taken = output.q_taken.as<float>()[i],
          .q_max = q_max,
          .reward = one.reward,
          .terminated = one.terminated,
          .truncated = one.truncated,
          .final_observation = runner_->final_observation(i),
          .policy_version = output.version,
          .log_mu = LogMu(i),
          .state = StateOf(output, i)};
      builders_[i].Append(step);
      if (recorder_) recorder_->Append(i, step);
      ++steps_;
    }
    EnvState& env = state_[i];
    env.episode_return += one.reward;
    ++env.episode_length;
    if (one.good && !one.ended()) continue;
    if (one.good) {
      metrics_.Count("actor/episodes");
      metrics_.Count("actor/episode_return_sum", env.episode_return);
      metrics_.Count("actor/episode_len_sum", double(env.episode_length));
    }
    env.episode_return = 0;
    env.episode_length = 0;
  }
  ++since_refresh_;
  if (!rollout_.CountStep()) return;
  // The unrolls end, and bootstrap from the observation that the next rollout begins with.
  for (std::size_t i = 0; i < builders_.size(); ++i)
    builders_[i].Cut(runner_->next_observation(i), 0.0F);
}

// Adds the discounted return after each valid step, and uses the fleet's scale for priorities. A
// step that is not recorded counts too: its reward is one of the environment.
void ActorNode::RecordRewards() {
  const double scale = member_->rewards().Scale();
  for (std::size_t i = 0; i < builders_.size(); ++i) {
    builders_[i].SetRewardScale(scale);
    const EnvRunner::One& one = runner_->one(i);
    double& discounted = state_[i].discounted_return;
    if (one.good) {
      discounted = config_.gamma * discounted + double(one.reward);
      if (!rewards_.Add(discounted) && !std::exchange(reward_overflow_, true)) {
        LogWarning(
            "env.normalize_rewards: the discounted return {} exceeds the range of f64 together "
            "with the former ones, and is left out; check the rewards of {}",
            discounted, config_.env.id);
      }
    }
    if (!one.good || one.ended()) discounted = 0;
  }
}

// Pushes everything that is buffered; returns false if the window is full.
bool ActorNode::Push() {
  if (!PushLast() || !writer_->CanPush()) return false;
  std::vector<Chunk> chunks;
  std::vector<Item> items;
  for (TrajectoryBuilder& b : builders_) {
    if (b.frames() > 0) chunks.push_back(b.Take(&items));
  }
  if (chunks.empty()) return true;
  result_ = writer_->Push(std::move(chunks), std::move(items));
  if (!result_.ok()) return false;
  pushed_.push_back(steps_);
  return true;
}

// A learner publishes no non-finite weights; from any other source, the older weights are kept.
void ActorNode::UseWeights(const WeightSnapshot& snapshot) {
  const std::span<const float> value = snapshot.value.as<float>();
  // Counted, because the run may look healthy otherwise.
  if (!AllFinite(value)) {
    metrics_.Count("actor/nonfinite_weights");
    LogWarning("rejected the weights of update {}: value {} is {}", UpdatesOf(snapshot.version),
               FirstNonFinite(value), value[FirstNonFinite(value)]);
    return;
  }
  result_ = runner_->policy().SetWeights(snapshot.version, value);
  if (history_ != nullptr) {
    history_->Note({.what = HistoryEvent::kReceived, .version = snapshot.version});
  }
  have_weights_ = true;
  rollout_.Begin();
}

// Requests weights when they are due; one request at a time.
void ActorNode::PullWeights(Time now) {
  if (!weights_) return;
  if (const std::optional<WeightSnapshot> snapshot = weights_->Poll(now)) UseWeights(*snapshot);
  if (result_.ok()) result_ = weights_->error();
  const bool due =
      !have_weights_ ||
      (rollout_.enabled() ? rollout_.waiting() : since_refresh_ >= config_.actor.weight_sync_steps);
  if (!due || weights_->requesting() || now < next_pull_) return;
  next_pull_ = now + (rollout_.waiting() ? RolloutGate::kPullEvery : kPullEvery);
  since_refresh_ = 0;
  weights_->Request(now);
}

// Reports the summaries of the last interval; a number without a value in it has no metric. Means
// are weighted by their counts when reports of actors are merged.
void ActorNode::ReportEnvMetrics() {
  env_metrics_due_ = false;
  runner_->TakeMetrics(&env_metrics_);
  for (const auto& [name, s] : env_metrics_.summaries()) {
    const std::string metric = "env." + name;
    if (s.count > 0) {
      metrics_.Ratio(metric + ".mean", s.mean, s.count);
      metrics_.Gauge(metric + ".min", s.min, MetricKind::kGaugeMin);
      metrics_.Gauge(metric + ".max", s.max, MetricKind::kGaugeMax);
    } else {
      for (const char* part : {".mean", ".min", ".max"}) metrics_.Remove(metric + part);
    }
  }
  env_metrics_.Clear();
  std::string problem = env_metrics_.problem();
  // A setting without effect must not look like a quiet environment.
  if (problem.empty() && env_metrics_.summaries().empty() && metrics_.Get("actor/episodes") > 0) {
    problem = "env.metrics is set, but no step of the first episodes reported a metric";
  }
  if (problem.empty() || std::exchange(env_metrics_warned_, true)) return;
  LogWarning("{}: {}; further problems of its metrics are not logged", env().id, problem);
}

// Counts and metrics for the next heartbeat.
void ActorNode::Report() {
  if (!writer_) return;
  // Steps with acknowledged experience: a crash here loses none of these. Acknowledgements arrive
  // in push order.
  std::int64_t acked = member_->report().steps_done;
  while (pushed_.size() > std::size_t(writer_->unacked_pushes())) {
    acked = pushed_.front();
    pushed_.pop_front();
  }
  if (acked > 0 && member_->report().steps_done == 0)
    LogInfo("the replay has the first experience");
  HeartbeatRequest& report = member_->report();
  report.steps_done = acked;
  // All leased steps are made and acknowledged.
  const bool finished =
      member_->steps_over() && steps_ == member_->steps_granted() && acked == steps_;
  if (finished && !report.finished) member_->SendHeartbeatSoon();
  report.finished = finished;
  report.blocked = runner_->blocked();
  report.rewards = rewards_;
  metrics_.Gauge("actor/steps", double(steps_), MetricKind::kCounter);
  metrics_.Gauge("actor/inflight_inserts", writer_->unacked_pushes(), MetricKind::kGaugeSum);
  metrics_.Gauge("actor/nonfinite_values", double(runner_->nonfinite_values()),
                 MetricKind::kCounter);
  metrics_.Gauge("actor/suspect_values", double(runner_->suspect_values()), MetricKind::kCounter);
  metrics_.Gauge("actor/rollout_refills", double(rollout_.refills()), MetricKind::kCounter);
  metrics_.Gauge("actor/env_faults", double(runner_->faults()), MetricKind::kCounter);
  metrics_.Gauge("actor/insert_blocked", writer_->CanPush() ? 0 : 1);
  if (recorder_) recorder_->Report(&metrics_);
  ReportEpsilon();
  if (weights_) metrics_.Gauge("actor/weights_version", double(UpdatesOf(weights_->version())));
  if (remote_ == nullptr) return;
  metrics_.Gauge("actor/weights_version", double(UpdatesOf(remote_->version())));
  metrics_.Gauge("actor/inference_retries", double(remote_->retries()), MetricKind::kCounter);
}

}  // namespace troop
