#include "actors/actor_node.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "core/failpoint.h"
#include "core/log.h"
#include "core/rng.h"
#include "kernels/finite.h"
#include "replay/from_config.h"

namespace troop {
namespace {

// Vector steps in one turn: some 100 µs of native environments, so that messages don't wait long.
constexpr int kStepsPerTurn = 16;
// Between two pulls at least: a parameter server without weights answers at once, with none.
constexpr Duration kPullEvery = Milliseconds(5);

std::span<const std::byte> Row(const ConstTensor& t, std::size_t i) {
  const std::size_t bytes = t.bytes().size() / std::size_t(t.dim(0));
  return t.bytes().subspan(i * bytes, bytes);
}
std::span<std::byte> Row(const Tensor& t, std::size_t i) {
  const std::size_t bytes = t.bytes().size() / std::size_t(t.dim(0));
  return t.bytes().subspan(i * bytes, bytes);
}

}  // namespace

ActorNode::ActorNode(const Config& config, Network* network, FleetMember* member, History* history)
    : config_(config), network_(network), member_(member), history_(history) {}

Result<std::unique_ptr<ActorNode>> ActorNode::Make(const Config& config, Network* network,
                                                   FleetMember* member, History* history) {
  std::unique_ptr<ActorNode> node(new ActorNode(config, network, member, history));
  TROOP_RETURN_IF_ERROR(node->Build());
  return node;
}

std::uint64_t ActorNode::SeedOf(const EnvState& env, std::uint64_t episode) const {
  return DeriveSeed({.run_seed = std::uint64_t(config_.seed),
                     .purpose = Purpose::kEnvironment,
                     .index = env.global,
                     .episode = member_->options().incarnation << 32 | episode});
}

Status ActorNode::Build() {
  const int size = int(config_.actor.envs);
  const std::uint64_t incarnation = member_->options().incarnation;
  const auto first = std::uint64_t(member_->options().index) * std::uint64_t(size);
  const auto count = std::uint64_t(config_.fleet.actors) * std::uint64_t(size);
  state_.resize(std::size_t(size));
  const auto seeder = [this](int i) {
    EnvState& env = state_[std::size_t(i)];
    return SeedOf(env, env.episodes++);
  };
  TROOP_ASSIGN_OR_RETURN(envs_,
                         MakeVectorEnv(config_.env.id, EnvOptionsFor(config_), size, seeder));
  spec_ = envs_->spec();
  TROOP_ASSIGN_OR_RETURN(policy_, MakeLocalPolicy(config_, spec_, size));
  const TrajectorySpec trajectory{spec_.observation, spec_.action.tensor()};
  for (std::size_t i = 0; i < state_.size(); ++i) {
    state_[i].global = first + i;
    state_[i].epsilon = ExplorationEpsilon(config_.actor.epsilon_base, config_.actor.epsilon_alpha,
                                           state_[i].global, count);
    builders_.emplace_back(TrajectoryBuilder::Options{.spec = trajectory,
                                                      .n_step = int(config_.actor.n_step),
                                                      .gamma = config_.learner.gamma,
                                                      .reward_clip = config_.env.reward_clip},
                           incarnation << 32 | state_[i].global);
  }
  keys_.resize(state_.size());
  observation_ = Tensor(spec_.observation.dtype, spec_.observation.shape.Prepend(size));
  next_observation_ = Tensor(spec_.observation.dtype, spec_.observation.shape.Prepend(size));
  reward_ = Tensor(DType::kF32, {size});
  envs_->SubmitReset();
  return Status::Ok();
}

// All shards or none: a stream's shard is a matter of their number.
Status ActorNode::ConnectReplay(const Origin& origin) {
  const auto shards = std::int32_t(config_.replay.shards);
  for (std::int32_t k = 0; k < shards; ++k) {
    if (writer_ || member_->Endpoint(Role::kReplay, k).empty()) return Status::Ok();
  }
  const TrajectorySpec trajectory{spec_.observation, spec_.action.tensor()};
  std::vector<std::unique_ptr<Channel>> channels;
  for (std::int32_t k = 0; k < shards; ++k) {
    const int window = int(config_.actor.push_window) + 1;
    TROOP_ASSIGN_OR_RETURN(auto channel, network_->Connect(member_->Endpoint(Role::kReplay, k),
                                                           {.origin = origin, .window = window}));
    channels.push_back(std::move(channel));
  }
  ReplayWriter::Options options = WriterOptionsFor(config_, trajectory);
  options.history = history_;
  writer_ = MakeReplayWriter(std::move(channels), trajectory, options);
  return Status::Ok();
}

Status ActorNode::Connect() {
  const Origin origin{.role = Role::kActor,
                      .index = member_->options().index,
                      .incarnation = member_->options().incarnation};
  TROOP_RETURN_IF_ERROR(ConnectReplay(origin));
  const std::string weights = member_->Endpoint(Role::kParamServer, 0);
  if (!weights_ && !weights.empty()) {
    TROOP_ASSIGN_OR_RETURN(auto channel, network_->Connect(weights, {.origin = origin}));
    weights_ = MakeWeightSubscriber(std::move(channel));
  }
  return Status::Ok();
}

Turn ActorNode::Step(Time now) {
  Report();
  member_->Poll(now, metrics_);
  result_ = member_->lost();
  if (result_.ok()) result_ = Connect();
  if (result_.ok() && writer_) {
    writer_->Poll(now);
    result_ = writer_->error();
  }
  if (!result_.ok()) return Turn::Done();
  if (draining_ || member_->stop() || member_->phase() >= Phase::kDraining) return Turn::Done();
  AskLease();
  PullWeights(now);
  for (int i = 0; i < kStepsPerTurn && MayStep(); ++i) StepEnvironments();
  if (MayStep()) return Turn::Busy();
  if (!result_.ok()) return Turn::Done();
  if (steps_ == member_->steps_granted() && member_->steps_over() && writer_) Push();
  return Turn::Idle(have_weights_ ? member_->next_beat()
                                  : std::min(member_->next_beat(), next_pull_));
}

void ActorNode::AskLease() {
  // At least one step of all: MayStep waits for as many.
  const auto block = std::max<std::int64_t>(config_.actor.lease_steps, std::ssize(state_));
  std::int64_t& wanted = member_->report().steps_wanted;
  if (member_->steps_over() || wanted - steps_ > block) return;
  wanted = steps_ + 2 * block;
  member_->BeatSoon();
}

// Also flushes: a full buffer is pushed as soon as the window allows, and stops the steps till
// then.
bool ActorNode::MayStep() {
  if (!writer_ || !have_weights_ || !result_.ok()) return false;
  // A last lease smaller than the number of environments: steps all, records some.
  const std::int64_t leased = member_->steps_granted() - steps_;
  if (leased < std::int64_t(state_.size()) && !(leased > 0 && member_->steps_over())) return false;
  std::size_t items = 0;
  for (const TrajectoryBuilder& b : builders_) items += b.items();
  return items < std::size_t(config_.actor.push_items) || Push();
}

// The first observations.
void ActorNode::Begin() {
  batch_ = envs_->Poll();
  TROOP_CHECK(batch_ != nullptr, "a native environment is ready at once");
  std::ranges::copy(batch_->observation.bytes(), next_observation_.bytes().begin());
  for (std::size_t i = 0; i < state_.size(); ++i) CheckStart(i);
  std::swap(observation_, next_observation_);
  started_ = true;
}

void ActorNode::StepEnvironments() {
  if (!started_) Begin();
  if (!result_.ok()) return;
  const bool warm = double(member_->steps_total_done()) >= config_.actor.warmup_steps;
  for (std::size_t i = 0; i < state_.size(); ++i) {
    const EnvState& env = state_[i];
    keys_[i] = {.env = env.global,
                .episode = member_->options().incarnation << 32 | (env.episodes - 1),
                .step = env.step,
                .epsilon = warm ? env.epsilon : 1.0};
  }
  policy_->Submit(observation_, keys_);
  const PolicyOutput* output = policy_->Poll();
  policy_version_ = output->version;
  Reach(Failpoint::kActorStep);
  envs_->Submit(output->action);
  batch_ = envs_->Poll();
  TROOP_CHECK(batch_ != nullptr, "a native environment is ready at once");
  std::ranges::copy(batch_->observation.bytes(), next_observation_.bytes().begin());
  std::ranges::copy(batch_->reward.bytes(), reward_.bytes().begin());
  Spoil();
  const std::int64_t leased =
      std::min(member_->steps_granted() - steps_, std::int64_t(state_.size()));
  steps_ += Record(*output, leased);
  ++since_refresh_;
  std::swap(observation_, next_observation_);
}

// What a test wants in place of good numbers.
void ActorNode::Spoil() {
  if (const auto bad = SpoiledNumber(Failpoint::kActorReward)) reward_.as<float>()[0] = *bad;
  if (spec_.observation.dtype != DType::kF32) return;
  if (const auto bad = SpoiledNumber(Failpoint::kActorObservation)) {
    next_observation_.as<float>()[0] = *bad;
  }
}

// Hands the good steps of the first `leased` environments to their builders; returns how many.
std::int64_t ActorNode::Record(const PolicyOutput& output, std::int64_t leased) {
  const StepBatch& batch = *batch_;
  const auto actions = std::size_t(output.q.dim(1));
  const std::span<const std::int32_t> action = output.action.as<std::int32_t>();
  const bool any_bad =
      AnyBadNumber(output.q) || AnyBadNumber(reward_) || AnyBadNumber(next_observation_);
  std::int64_t recorded = 0;
  for (std::size_t i = 0; i < builders_.size(); ++i) {
    const auto q = output.q.as<float>().subspan(i * actions, actions);
    const float q_max = *std::ranges::max_element(q);
    const bool terminated = batch.terminated.as<std::uint8_t>()[i] != 0;
    const bool truncated = batch.truncated.as<std::uint8_t>()[i] != 0;
    const bool ended = terminated || truncated;
    const float reward = reward_.as<float>()[i];
    std::optional<BadNumber> bad_q, bad;
    if (any_bad) bad = bad_q = FindBadNumber("q", output.q, i);
    if (any_bad && !bad) bad = FindBadNumber("reward", reward_, i);
    if (ended && !bad) bad = FindBadNumber("last observation", batch.final_observation, i);
    if (any_bad && !ended && !bad) bad = FindBadNumber("observation", next_observation_, i);
    if (std::int64_t(i) >= leased || bad) {
      builders_[i].Cut(Row(observation_, i), bad_q ? std::nullopt : std::optional(q_max));
    } else {
      builders_[i].Append({.observation = Row(observation_, i),
                           .action = Row(output.action, i),
                           .q_taken = q[std::size_t(action[i])],
                           .q_max = q_max,
                           .reward = reward,
                           .terminated = terminated,
                           .truncated = truncated,
                           .final_observation = Row(batch.final_observation, i),
                           .policy_version = output.version});
      ++recorded;
    }
    EnvState& env = state_[i];
    ++env.step;
    env.episode_return += reward;
    if (bad) GiveUp(i, *bad, ended);
    if (bad || !ended) continue;
    metrics_.Count("actor/episodes");
    metrics_.Count("actor/return_sum", env.episode_return);
    env.step = 0;
    env.episode_return = 0;
    env.bad_row = 0;
    if (any_bad) CheckStart(i);
  }
  return recorded;
}

// The rest of an episode after a bad number is not played: what made it may be in its state.
void ActorNode::GiveUp(std::size_t i, const BadNumber& bad, bool ended) {
  EnvState& env = state_[i];
  NoteBad(i, ended, env.step, bad);
  env.step = 0;
  env.episode_return = 0;
  if (!ended) Restart(i);
  CheckStart(i);
}

void ActorNode::Restart(std::size_t i) {
  const int index = int(i);
  envs_->SubmitRestart({&index, 1});
  batch_ = envs_->Poll();
  std::ranges::copy(Row(batch_->observation, i), Row(next_observation_, i).begin());
}

// The first observation of an episode can be bad, too: then the next one begins.
void ActorNode::CheckStart(std::size_t i) {
  while (result_.ok()) {
    const auto bad = FindBadNumber("observation", next_observation_, i);
    if (!bad) return;
    NoteBad(i, false, 0, *bad);
    Restart(i);
  }
}

void ActorNode::NoteBad(std::size_t i, bool ended, std::uint64_t step, const BadNumber& bad) {
  EnvState& env = state_[i];
  metrics_.Count("actor/bad_numbers");
  ++bad_numbers_;
  ++env.bad_row;
  const bool last = env.bad_row >= kBadNumbersMax;
  if (!last && !std::has_single_bit(bad_numbers_)) return;
  // An environment whose episode ended has begun the next already.
  const std::uint64_t episode = env.episodes - (ended ? 2 : 1);
  const std::string origin = DescribeOrigin(bad, {.env = spec_.id,
                                                  .environment = env.global,
                                                  .episode = episode,
                                                  .seed = SeedOf(env, episode),
                                                  .step = step,
                                                  .version = policy_version_});
  if (last) {
    result_ = Internal(
        "{}; it is the {}th bad number of this environment without a whole good episode between: "
        "mend the environment, or the weights where it is a q-value",
        origin, env.bad_row);
    return;
  }
  LogWarning(
      "{}; the step was left out and the episode given up ({} so far); Reset with this seed "
      "begins the same episode",
      origin, bad_numbers_);
}

// Sends all that has gathered; false when the window is full.
bool ActorNode::Push() {
  if (!writer_->CanPush()) return false;
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

// A learner publishes none with a bad number; whatever else does, the older ones are better.
void ActorNode::UseWeights(const WeightSnapshot& snapshot) {
  const std::span<const float> value = snapshot.value.as<float>();
  if (!AllFinite(value)) {
    metrics_.Count("actor/bad_weights");
    LogWarning("the weights of update {} are not used: number {} of them is {}",
               UpdatesOf(snapshot.version), FirstUnfinite(value), value[FirstUnfinite(value)]);
    return;
  }
  result_ = policy_->SetWeights(snapshot.version, value);
  if (history_ != nullptr) {
    history_->Note({.what = HistoryEvent::kReceived, .version = snapshot.version});
  }
  have_weights_ = true;
}

void ActorNode::PullWeights(Time now) {
  if (!weights_) return;
  if (const std::optional<WeightSnapshot> snapshot = weights_->Poll(now)) UseWeights(*snapshot);
  if (result_.ok()) result_ = weights_->error();
  const bool due = !have_weights_ || since_refresh_ >= config_.actor.refresh_steps;
  if (!due || weights_->requesting() || now < next_pull_) return;
  next_pull_ = now + kPullEvery;
  since_refresh_ = 0;
  weights_->Request(now);
}

void ActorNode::Report() {
  if (!writer_) return;
  // Steps whose experience the replay acknowledged: a crash here loses none of these. Pushes are
  // acknowledged in their order.
  std::int64_t acked = member_->report().steps_done;
  while (pushed_.size() > std::size_t(writer_->unacked_pushes())) {
    acked = pushed_.front();
    pushed_.pop_front();
  }
  BeatRequest& report = member_->report();
  report.steps_done = acked;
  const bool finished =
      member_->steps_over() && steps_ == member_->steps_granted() && acked == steps_;
  if (finished && !report.finished) member_->BeatSoon();
  report.finished = finished;
  metrics_.Gauge("actor/steps", double(steps_), MetricKind::kCounter);
  metrics_.Gauge("actor/unacked_pushes", writer_->unacked_pushes(), MetricKind::kGaugeSum);
  metrics_.Gauge("actor/blocked", writer_->CanPush() ? 0 : 1);
  if (weights_) metrics_.Gauge("actor/weights_version", double(UpdatesOf(weights_->version())));
}

}  // namespace troop
