// Implements the stepping of environments, and the exclusion of invalid steps.

#include "actors/env_runner.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "core/base/log.h"

namespace troop {
namespace {

// Faults in a row before an environment counts as blocked; single ones are tolerated.
constexpr std::int64_t kBlockedAfter = 3;

std::span<const std::byte> Row(const ConstTensor& t, std::size_t i) {
  const std::size_t bytes = t.bytes().size() / std::size_t(t.dim(0));
  return t.bytes().subspan(i * bytes, bytes);
}

bool Flag(const ConstTensor& t, std::size_t i) { return t.as<std::uint8_t>()[i] != 0; }

}  // namespace

// Without heartbeats during a slow start the coordinator would consider the role dead.
EnvOptions BeatingEnvOptions(const ActingConfig& config, Network* network, FleetMember* member,
                             const Metrics* metrics) {
  EnvOptions options = EnvOptionsFor(config.env, config.serial);
  if (options.wait) return options;  // a single thread with virtual time
  options.while_starting = [network, member, metrics](Time now) {
    network->Pump(now);
    member->Poll(now, *metrics);
    return member->lost();
  };
  return options;
}

Result<std::unique_ptr<EnvRunner>> EnvRunner::Make(const ActingConfig& config, int size,
                                                   Options options) {
  std::unique_ptr<EnvRunner> runner(new EnvRunner);
  EnvRunner& r = *runner;
  r.options_ = std::move(options);
  r.faults_max_ = config.env.faults_max;
  r.envs_state_.resize(std::size_t(size));
  r.ones_.resize(std::size_t(size));
  // The vector environment requests seeds in order, one per episode.
  const auto seeder = [&r](int i) {
    return r.options_.seed(std::size_t(i), r.envs_state_[std::size_t(i)].seeds++);
  };
  TROOP_ASSIGN_OR_RETURN(r.envs_, MakeVectorEnv(config.env.id, r.options_.env, size, seeder));
  r.spec_ = r.envs_->spec();
  TROOP_ASSIGN_OR_RETURN(r.policy_, r.options_.policy ? r.options_.policy(r.spec_)
                                                      : MakeLocalPolicy(config, r.spec_, size));
  const TensorSpec& observation = r.spec_.observation;
  r.acted_on_ = Tensor(observation.dtype, observation.shape.Prepend(size));
  r.observation_ = Tensor(observation.dtype, observation.shape.Prepend(size));
  r.reward_ = Tensor(DType::kF32, {size});
  if (config.env.frame_stack > 1) {
    r.stack_.emplace(observation, size, int(config.env.frame_stack));
    r.first_.resize(std::size_t(size));
  }
  r.Start();
  return runner;
}

// Episode numbers start at 0 again.
void EnvRunner::Start() {
  for (EnvState& env : envs_state_) env = {};
  to_restart_.clear();
  starting_.resize(envs_state_.size());
  std::iota(starting_.begin(), starting_.end(), 0);
  envs_->SubmitReset();
  waiting_ = Waiting::kFirst;
  start_anew_ = false;
}

// A pending result must be received before the environments can be reset.
void EnvRunner::Restart(std::function<std::uint64_t(std::size_t i, std::uint64_t episode)> seed) {
  options_.seed = std::move(seed);
  const bool polled = ready() || !to_restart_.empty();
  if (polled) {
    Start();
  } else {
    start_anew_ = true;
  }
}

// The policy may answer later, when it is remote; Poll continues then.
void EnvRunner::Act(std::span<const ExploreKey> keys) {
  TROOP_CHECK(ready(), "Act while a result of the environments is awaited");
  // Kept for acted_on(), while the next observation is written to observation_.
  std::swap(acted_on_, observation_);
  if (stack_) {
    for (std::size_t i = 0; i < first_.size(); ++i) first_[i] = envs_state_[i].step == 0;
    stack_->Append(acted_on_, first_);
  }
  policy_->Submit(stack_ ? stack_->stacked() : acted_on_, keys);
  waiting_ = Waiting::kActions;
  TakeActions();
}

// Passes the policy's actions to the environments. Returns false if they are not ready.
bool EnvRunner::TakeActions() {
  const PolicyOutput* const output = policy_->Poll();
  if (output == nullptr) return false;
  output_ = output;
  version_ = output_->version;
  HitFailpoint(options_.before_step);
  envs_->Submit(output_->action);
  waiting_ = Waiting::kStep;
  return true;
}

// Advances one stage: actions, step or restart. Order of checks: values, faults, first
// observations.
bool EnvRunner::Poll() {
  if (ready() || !status_.ok()) return false;
  if (waiting_ == Waiting::kActions && !TakeActions()) return false;
  if (start_anew_) {  // the pending result is discarded
    if (envs_->Poll() == nullptr) {
      status_ = envs_->status();
      return false;
    }
    Start();
  }
  // Environments with an invalid first observation start another episode.
  if (!to_restart_.empty()) {
    envs_->SubmitRestart(to_restart_);
    starting_.swap(to_restart_);
    to_restart_.clear();
    waiting_ = Waiting::kRestart;
  }
  // nullptr without an error: an environment is still busy.
  batch_ = envs_->Poll();
  if (batch_ == nullptr) {
    status_ = envs_->status();
    return false;
  }
  std::ranges::copy(batch_->observation.bytes(), observation_.bytes().begin());
  const bool step = waiting_ == Waiting::kStep;
  if (step) {
    starting_.clear();
    TakeStep();
  }
  NoteFaults();
  CheckStarts();
  if (to_restart_.empty()) waiting_ = Waiting::kNothing;
  return step;
}

// Failpoints: replaces values by those that a test requests.
void EnvRunner::CorruptForTest() {
  if (const auto bad = InjectedValue(options_.reward)) reward_.as<float>()[0] = *bad;
  if (!options_.observation || spec_.observation.dtype != DType::kF32) return;
  if (const auto bad = InjectedValue(*options_.observation)) {
    observation_.as<float>()[0] = *bad;
  }
}

// After the end of an episode, observation_ belongs to the next one (see CheckStarts).
std::optional<NonFiniteValue> EnvRunner::FindBad(std::size_t i, bool any_bad) const {
  std::optional<NonFiniteValue> bad;
  const One& one = ones_[i];
  if (any_bad) bad = FindNonFinite("reward", reward_, i);
  if (one.ended() && !bad) bad = FindNonFinite("last observation", batch_->final_observation, i);
  if (any_bad && !one.ended() && !bad) bad = FindNonFinite("observation", observation_, i);
  return bad;
}

// Validates a step. The fast checks over all rows come first; rows are searched only if one fails.
void EnvRunner::TakeStep() {
  std::ranges::copy(batch_->reward.bytes(), reward_.bytes().begin());
  CorruptForTest();
  const bool any_bad =
      AnyNonFinite(output_->q) || AnyNonFinite(reward_) || AnyNonFinite(observation_);
  const bool any_suspect = AnySuspectNumber(reward_) || AnySuspectNumber(observation_);
  for (std::size_t i = 0; i < ones_.size(); ++i) {
    EnvState& env = envs_state_[i];
    ++env.step;
    const bool fault = Flag(batch_->fault, i);
    One& one = ones_[i] = {.terminated = !fault && Flag(batch_->terminated, i),
                           .truncated = !fault && Flag(batch_->truncated, i),
                           .reward = reward_.as<float>()[i]};
    std::optional<NonFiniteValue> bad;
    if (any_bad) bad = FindNonFinite("q", output_->q, i);
    one.q_good = !bad;
    if (!bad && !fault) bad = FindBad(i, any_bad);
    one.good = !bad && !fault;
    if (fault || one.ended()) starting_.push_back(int(i));
    if (bad && !fault) {
      // An environment whose episode ended has already started the next one.
      const std::uint64_t number = episode(i) - (one.ended() ? 1 : 0);
      Note(
          i,
          {.what = ToString(*bad), .episode = number, .step = env.step, .of_weights = !one.q_good});
      if (!one.ended()) to_restart_.push_back(int(i));
    } else if (one.ended()) {
      env.troubles_in_a_row = 0;
      if (i == blocked_by_) blocked_.clear();
    }
    if (one.good && (any_suspect || one.ended())) NoteSuspect(i);
    if (!one.good || one.ended()) env.step = 0;
  }
}

// Names the origin here, because a learner identifies a quarantined item only by its place in the
// replay.
void EnvRunner::NoteSuspect(std::size_t i) {
  const bool ended = ones_[i].ended();
  auto suspect = FindSuspectNumber("reward", reward_, i);
  if (!suspect && ended) {
    suspect = FindSuspectNumber("last observation", batch_->final_observation, i);
  } else if (!suspect) {
    suspect = FindSuspectNumber("observation", observation_, i);
  }
  // Logged at powers of two.
  if (!suspect || !std::has_single_bit(std::uint64_t(++suspect_values_))) return;
  LogWarning(
      "{}; a value this large can make an update fail, and its item is then excluded from later "
      "batches ({} such steps so far)",
      OriginOf(i, {.what = ToString(*suspect),
                   .episode = episode(i) - (ended ? 1 : 0),
                   .step = envs_state_[i].step}),
      suspect_values_);
}

// Includes the episode's seed, which reproduces it.
std::string EnvRunner::OriginOf(std::size_t i, const Trouble& trouble) const {
  return DescribeOrigin(trouble.what, {.env = spec_.id,
                                       .environment = options_.first + i,
                                       .episode = trouble.episode,
                                       .seed = options_.seed(i, trouble.episode),
                                       .step = trouble.step,
                                       .version = version_});
}

// Usually the next episode has started; if it could not start, the fault belongs to it.
void EnvRunner::NoteFaults() {
  for (const EnvFault& fault : envs_->faults()) {
    const auto i = std::size_t(fault.index);
    const std::uint64_t last = episode(i);
    Note(i, {.what = fault.what,
             .episode = options_.seed(i, last) == fault.seed ? last : last - 1,
             .step = std::uint64_t(fault.step),
             .fault = true});
  }
}

// A first observation can be non-finite, too; then the next episode starts.
void EnvRunner::CheckStarts() {
  if (AnyNonFinite(observation_)) {
    for (const int i : starting_) CheckStart(std::size_t(i));
  }
  starting_.clear();
}

void EnvRunner::CheckStart(std::size_t i) {
  const auto bad = FindNonFinite("observation", observation_, i);
  if (!bad) return;
  Note(i, {.what = ToString(*bad), .episode = episode(i), .step = 0});
  to_restart_.push_back(int(i));
}

// Counts a fault, updates the `blocked` message, and ends the run after env.faults_max in a row.
void EnvRunner::Note(std::size_t i, const Trouble& trouble) {
  EnvState& env = envs_state_[i];
  ++(trouble.fault ? faults_ : nonfinite_values_);
  ++env.troubles_in_a_row;
  const auto so_far = std::uint64_t(faults_ + nonfinite_values_);
  const bool last = env.troubles_in_a_row >= faults_max_;
  // The very first fault is shown at once: it is often a mistake in the set-up.
  const bool blocks = so_far == 1 || env.troubles_in_a_row >= kBlockedAfter;
  if (blocks) blocked_by_ = i;
  if (!status_.ok() || !(last || blocks || std::has_single_bit(so_far))) return;
  const std::string origin = OriginOf(i, trouble);
  if (blocks) {
    blocked_ = fmt::format("{}; {} of {} in a row (env.faults_max)", origin, env.troubles_in_a_row,
                           faults_max_);
  }
  if (last) {
    // A restarted process would play the same environment; only the weights may differ then.
    status_ = Status(trouble.of_weights ? Code::kInternal : Code::kCancelled,
                     fmt::format("{}; {} {} without a complete episode "
                                 "(env.faults_max); fix the {}",
                                 origin, env.troubles_in_a_row,
                                 trouble.fault ? "faults" : "faults or non-finite values",
                                 trouble.of_weights ? "weights" : "environment"));
    return;
  }
  // Logged at powers of two, so that a broken environment does not fill the disk.
  if (!std::has_single_bit(so_far)) return;
  LogWarning(
      "{}; dropped the step and abandoned the episode ({} so far); Reset with this seed "
      "repeats the episode",
      origin, so_far);
}

std::span<const std::byte> EnvRunner::acted_on(std::size_t i) const { return Row(acted_on_, i); }
std::span<const std::byte> EnvRunner::final_observation(std::size_t i) const {
  return Row(batch_->final_observation, i);
}
std::span<const std::byte> EnvRunner::next_observation(std::size_t i) const {
  return Row(observation_, i);
}

}  // namespace troop
