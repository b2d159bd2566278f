#include "actors/evaluator_node.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "core/failpoint.h"
#include "core/log.h"
#include "core/rng.h"

namespace troop {
namespace {

constexpr int kStepsPerTurn = 64;
// Rounds of one incarnation. An episode's number is round << 20 | count, so incarnation and round
// have 43 bits.
constexpr int kRoundBits = 20;
// The final evaluation's own seeds: no evaluation during the run shares them.
constexpr std::uint64_t kFinalRound = std::uint64_t{1} << 43;
// Between two pulls at least: a parameter server without weights answers at once, with none.
constexpr Duration kPullEvery = Milliseconds(5);

// An evaluation ends, whatever the policy does: where an episode has no limit, it gets one.
Result<EnvOptions> EvaluationOptions(const Config& config) {
  EnvOptions options = EnvOptionsFor(config);
  TROOP_ASSIGN_OR_RETURN(const auto env, MakeEnvironment(config.env.id, options));
  if (env->spec().max_episode_steps == 0) {
    options.max_episode_steps = config.evaluator.max_episode_steps;
  }
  return options;
}

}  // namespace

Result<std::unique_ptr<Evaluation>> Evaluation::Make(const Config& config, std::int64_t episodes,
                                                     std::uint64_t round, std::uint64_t version,
                                                     std::span<const float> weights) {
  if (episodes < 1) return InvalidArgument("an evaluation of {} episodes; at least 1", episodes);
  std::unique_ptr<Evaluation> e(new Evaluation);
  const auto size = std::size_t(std::min(episodes, config.evaluator.envs));
  e->seed_ = std::uint64_t(config.seed);
  e->round_ = round;
  e->version_ = version;
  e->epsilon_ = config.evaluator.epsilon;
  e->open_ = episodes;
  e->episode_.assign(size, 0);
  e->step_.assign(size, 0);
  e->return_.assign(size, 0);
  e->keys_.resize(size);
  for (std::size_t i = 0; i < size; ++i) {
    e->left_.push_back(episodes / std::int64_t(size) +
                       (std::int64_t(i) < episodes % std::int64_t(size) ? 1 : 0));
  }
  const auto seeder = [e = e.get(), next = std::vector<std::uint64_t>(size)](int i) mutable {
    return e->SeedOf(std::size_t(i), next[std::size_t(i)]++);
  };
  TROOP_ASSIGN_OR_RETURN(const EnvOptions options, EvaluationOptions(config));
  TROOP_ASSIGN_OR_RETURN(e->envs_, MakeVectorEnv(config.env.id, options, int(size), seeder));
  TROOP_ASSIGN_OR_RETURN(e->policy_, MakeLocalPolicy(config, e->envs_->spec(), int(size)));
  TROOP_RETURN_IF_ERROR(e->policy_->SetWeights(version, weights));
  e->envs_->SubmitReset();
  const StepBatch* first = e->envs_->Poll();
  e->observation_ = Tensor::Uninitialized(first->observation.dtype(), first->observation.shape());
  e->reward_ = Tensor(DType::kF32, {std::int64_t(size)});
  std::ranges::copy(first->observation.bytes(), e->observation_.bytes().begin());
  for (std::size_t i = 0; i < size; ++i) e->CheckStart(i, *first);
  return e;
}

std::uint64_t Evaluation::SeedOf(std::size_t i, std::uint64_t episode) const {
  return DeriveSeed({.run_seed = seed_,
                     .purpose = Purpose::kEvaluation,
                     .index = std::uint64_t(i),
                     .episode = round_ << 20 | episode});
}

bool Evaluation::Advance(int steps) {
  for (; steps > 0 && open_ > 0 && error_.ok(); --steps) {
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      // Not the actors' streams: their environments count from 0.
      keys_[i] = {.env = ~std::uint64_t{0} - i,
                  .episode = round_ << 20 | episode_[i],
                  .step = step_[i],
                  .epsilon = epsilon_};
    }
    policy_->Submit(observation_, keys_);
    Reach(Failpoint::kEvaluatorStep);
    envs_->Submit(policy_->Poll()->action);
    const StepBatch* batch = envs_->Poll();
    std::ranges::copy(batch->observation.bytes(), observation_.bytes().begin());
    std::ranges::copy(batch->reward.bytes(), reward_.bytes().begin());
    if (const auto bad = SpoiledNumber(Failpoint::kEvaluatorReward)) {
      reward_.as<float>()[0] = *bad;
    }
    Count(*batch);
  }
  return open_ == 0 || !error_.ok();
}

void Evaluation::Count(const StepBatch& batch) {
  const bool any_bad = AnyBadNumber(reward_) || AnyBadNumber(observation_);
  for (std::size_t i = 0; i < left_.size(); ++i) {
    return_[i] += reward_.as<float>()[i];
    ++step_[i];
    const bool ended =
        batch.terminated.as<std::uint8_t>()[i] != 0 || batch.truncated.as<std::uint8_t>()[i] != 0;
    std::optional<BadNumber> bad;
    if (any_bad) bad = FindBadNumber("reward", reward_, i);
    if (ended && !bad) bad = FindBadNumber("last observation", batch.final_observation, i);
    if (any_bad && !ended && !bad) bad = FindBadNumber("observation", observation_, i);
    if (!ended && !bad) continue;
    if (bad) {
      NoteBad(i, *bad);
      if (!ended) Restart(i, batch);
    } else if (left_[i] > 0) {
      --left_[i];
      --open_;
      returns_.push_back(return_[i]);
      lengths_.push_back(double(step_[i]));
    }
    ++episode_[i];
    step_[i] = 0;
    return_[i] = 0;
    if (any_bad) CheckStart(i, batch);
  }
}

void Evaluation::Restart(std::size_t i, const StepBatch& batch) {
  const int index = int(i);
  envs_->SubmitRestart({&index, 1});
  envs_->Poll();
  const std::size_t bytes = observation_.bytes().size() / left_.size();
  std::ranges::copy(batch.observation.bytes().subspan(i * bytes, bytes),
                    observation_.bytes().subspan(i * bytes, bytes).begin());
}

void Evaluation::CheckStart(std::size_t i, const StepBatch& batch) {
  while (error_.ok()) {
    const auto bad = FindBadNumber("observation", observation_, i);
    if (!bad) return;
    NoteBad(i, *bad);
    Restart(i, batch);
    ++episode_[i];
  }
}

void Evaluation::NoteBad(std::size_t i, const BadNumber& bad) {
  ++bad_numbers_;
  const bool last = bad_numbers_ >= kBadNumbersMax;
  if (!last && !std::has_single_bit(std::uint64_t(bad_numbers_))) return;
  const std::string origin = DescribeOrigin(bad, {.env = envs_->spec().id,
                                                  .environment = i,
                                                  .episode = episode_[i],
                                                  .seed = SeedOf(i, episode_[i]),
                                                  .step = step_[i],
                                                  .version = version_});
  if (last) {
    error_ = Internal("{}; it is the {}th bad number of an evaluation: mend the environment",
                      origin, bad_numbers_);
  } else {
    LogWarning("{}; another episode is played in place of this one ({} so far in this evaluation)",
               origin, bad_numbers_);
  }
}

EvaluationReport Evaluation::Report() const {
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

Result<std::unique_ptr<EvaluatorNode>> EvaluatorNode::Make(const Config& config, Network* network,
                                                           FleetMember* member) {
  return std::unique_ptr<EvaluatorNode>(new EvaluatorNode(config, network, member));
}

Status EvaluatorNode::Connect() {
  const std::string endpoint = member_->Endpoint(Role::kParamServer, 0);
  if (weights_ || endpoint.empty()) return Status::Ok();
  TROOP_ASSIGN_OR_RETURN(
      auto channel,
      network_->Connect(endpoint, {.origin = {.role = Role::kEvaluator,
                                              .index = member_->options().index,
                                              .incarnation = member_->options().incarnation}}));
  weights_ = MakeWeightSubscriber(std::move(channel));
  return Status::Ok();
}

Turn EvaluatorNode::Step(Time now) {
  member_->Poll(now, metrics_);
  result_ = member_->lost();
  if (result_.ok()) result_ = Connect();
  if (!result_.ok() || draining_ || member_->stop() || member_->phase() == Phase::kDone) {
    return Turn::Done();
  }
  if (weights_) Pull(now);
  // What was still running when the learner ended gives way to the final evaluation.
  if (!running_final_ && member_->phase() >= Phase::kEvaluating) running_.reset();
  if (result_.ok() && !running_) result_ = Begin();
  if (!result_.ok()) return Turn::Done();
  if (!running_) {
    const bool waits = weights_ == nullptr || weights_->requesting() || final_done_;
    return Turn::Idle(waits ? member_->next_beat() : std::min(member_->next_beat(), next_));
  }
  const std::int64_t bad_numbers = running_->bad_numbers();
  const bool over = running_->Advance(kStepsPerTurn);
  if (running_->bad_numbers() > bad_numbers) {
    metrics_.Count("evaluator/bad_numbers", double(running_->bad_numbers() - bad_numbers));
  }
  if (!over) return Turn::Busy();
  result_ = running_->error();
  if (!result_.ok()) return Turn::Done();
  EvaluationReport report = running_->Report();
  report.final = running_final_;
  report.steps = running_steps_;
  metrics_.Gauge("evaluator/return_mean", report.return_mean);
  metrics_.Count("evaluator/episodes", double(report.episodes));
  member_->report().evaluations.push_back(report);
  member_->report().finished = running_final_;
  final_done_ = final_done_ || running_final_;
  member_->BeatSoon();
  running_.reset();
  return Turn::Busy();
}

void EvaluatorNode::Pull(Time now) {
  const bool final = member_->phase() >= Phase::kEvaluating;
  const bool was_requesting = weights_->requesting();
  if (std::optional<WeightSnapshot> snapshot = weights_->Poll(now)) {
    newest_ = std::move(snapshot);
    newest_steps_ = member_->steps_total_done();
  }
  result_ = weights_->error();
  if (!result_.ok() || weights_->requesting()) return;
  // The final weights are those of a pull that began after the learner had ended; a parameter
  // server that was restarted since gets them again, and has none till then.
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

Status EvaluatorNode::Begin() {
  if (!newest_ || final_done_) return Status::Ok();
  const bool final = member_->phase() >= Phase::kEvaluating && final_pulled_;
  if (!final && (member_->phase() != Phase::kRunning || newest_->version <= evaluated_version_)) {
    return Status::Ok();
  }
  running_final_ = final;
  running_steps_ = final ? member_->steps_total_done() : newest_steps_;
  evaluated_version_ = newest_->version;
  const std::uint64_t round =
      final ? kFinalRound : member_->options().incarnation << kRoundBits | round_++;
  const std::int64_t episodes =
      final ? config_.evaluator.final_episodes : config_.evaluator.episodes;
  TROOP_ASSIGN_OR_RETURN(running_, Evaluation::Make(config_, episodes, round, newest_->version,
                                                    newest_->value.as<float>()));
  return Status::Ok();
}

}  // namespace troop
