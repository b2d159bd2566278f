// Registration of a role, and the table that maps each role to its node.
#include "fleet/roles/role_node.h"

#include <algorithm>
#include <span>
#include <utility>

#include "actors/actor_node.h"
#include "actors/evaluator_node.h"
#include "core/base/log.h"
#include "core/base/version.h"
#include "core/storage/crc32c.h"
#include "fleet/config/role_configs.h"
#include "fleet/roles/external_roles.h"
#include "fleet/roles/role_data.h"
#include "fleet/roles/service_node.h"
#include "learners/best_checkpoint.h"
#include "learners/checkpoint.h"
#include "learners/images/image_dataset.h"
#include "learners/images/image_evaluator.h"
#include "learners/learner_node.h"
#include "learners/linear/linear_data.h"
#include "learners/linear/linear_evaluator.h"
#include "learners/node/warm_start.h"
#include "learners/supervised/supervised.h"
#include "learners/supervised/text_evaluator.h"
#include "net/security/access_control.h"
#include "net/wire/codec.h"
#include "nn/export/policy_description.h"
#include "nn/models/model.h"
#include "paramserver/service/connect_weights.h"
#include "paramserver/service/shard_node.h"

namespace troop {
namespace {

// Time limit for reading the data of a role. Heartbeats continue meanwhile, so that nothing else
// ends a role that waits for a file for good.
constexpr Duration kLoadMax = Seconds(6 * 3600);

// Time limit for the final heartbeat of a role that ends.
constexpr Duration kSayEndMax = Seconds(2);

// A temporary index for a process that has none yet, from 24 bits of a hash. It must differ between
// machines: the coordinator takes equal origins for restarts of one process.
std::int32_t NameOfNewcomer(const RoleNode::Options& options) {
  const std::string who = fmt::format("{} {} {}", options.host, options.process, options.attempt);
  return std::int32_t(Crc32c(std::as_bytes(std::span(who))) & 0xFFFFFF);
}

// The shape of an environment, as far as the network depends on it.
std::string Describe(const EnvSpec& spec) {
  const EnvSpecBody body = ToBody(spec);
  return fmt::format("observations {}, {}", DescribeObservation(spec),
                     body.actions > 0 ? fmt::format("{} actions", body.actions)
                                      : fmt::format("actions of {} {}", body.low.size(),
                                                    body.integers ? "integers" : "values"));
}

// The connections of an actor or evaluator.
ActingContext ActingContextOf(const Config& config, const RoleNode::Options& options,
                              FleetMember* member) {
  const auto connect = [config, network = options.network, member](const EnvSpec& env) {
    return ConnectWeights(WeightsConfigOf(config), ModelSetupOf(config), env, network, member);
  };
  return {.network = options.network,
          .member = member,
          .connect_weights = connect,
          .history = options.history};
}

// The context of an evaluator, with the keeper of the best checkpoint if the run has one. Errors:
// the run folder cannot be opened.
Result<ActingContext> EvaluatorContextOf(const Config& config, const RoleNode::Options& options,
                                         const EnvSpec& env, FleetMember* member) {
  ActingContext context = ActingContextOf(config, options, member);
  context.executor = options.executor;
  // Videos need the run folder, too.
  if (config.evaluator.video_every > 0) {
    TROOP_ASSIGN_OR_RETURN(context.videos, options.storage(config));
  }
  if (!config.evaluator.keep_best) return context;
  // The folder is opened only if the evaluator writes to it: it may be on another machine.
  const TrainingConfig training = TrainingConfigOf(config);
  BestCheckpointKeeper::Options keeper{.config_toml = training.config_toml,
                                       .shards = config.learner.sync == LearnerSync::kParamServer,
                                       .records_time = config.fleet.mode != FleetMode::kSerial};
  TROOP_ASSIGN_OR_RETURN(keeper.run, options.storage(config));
  TROOP_ASSIGN_OR_RETURN(keeper.module, MakeNetwork(ModelSetupOf(training), env));
  TROOP_ASSIGN_OR_RETURN(keeper.policy, EncodedPolicyOf(ModelSetupOf(training), env));
  context.keep_best = [kept = std::make_shared<BestCheckpointKeeper>(std::move(keeper))](
                          const EvaluationReport& report, std::span<const float> weights) {
    return kept->Offer(report, weights);
  };
  return context;
}

// The rendezvous address of the learners: loopback, unless learners are external.
std::string GroupAddress(const Config& config, const std::string& listen) {
  constexpr std::string_view kTcp = "tcp://";
  if (!IsExternal(config, Role::kLearner) || !listen.starts_with(kTcp)) return "127.0.0.1:0";
  return listen.substr(kTcp.size(), listen.rfind(':') - kTcp.size()) + ":0";
}

// Weights of the newest finite checkpoint, for a parameter shard without a complete snapshot.
// Returns its number of updates.
Result<std::uint64_t> CheckpointWeights(Storage* run, std::span<float> value) {
  TROOP_ASSIGN_OR_RETURN(const FoundCheckpoint found, NewestFiniteCheckpoint(run));
  const auto it = found.checkpoint.state.tensors.find("value");
  const bool fits = it != found.checkpoint.state.tensors.end() &&
                    it->second.spec() == TensorSpec{DType::kF32, {std::int64_t(value.size())}};
  if (!fits) return NotFound("{} belongs to another network", found.path);
  std::ranges::copy(std::as_const(it->second).as<float>(), value.begin());
  return found.checkpoint.updates;
}

}  // namespace

// Compares shapes, then the bounds of each action value, the observation scale, and the code.
Status CheckSameEnv(const EnvSpec& here, const EnvSpec& there, const std::string& host) {
  const auto refuse = [&](const std::string& mine, const std::string& other) {
    return InvalidArgument(
        "the environment {} on {} has {}, the coordinator's has {}, so the run's network does not "
        "fit; install the same version of it",
        here.id, host, mine, other);
  };
  if (Describe(here) != Describe(there)) return refuse(Describe(here), Describe(there));
  const EnvSpecBody mine = ToBody(here), other = ToBody(there);
  for (std::size_t i = 0; i < mine.low.size(); ++i) {
    if (mine.low[i] == other.low[i] && mine.high[i] == other.high[i]) continue;
    const auto bounds = [i](const EnvSpecBody& body) {
      return fmt::format("action[{}] in [{}, {}]", i, body.low[i], body.high[i]);
    };
    return refuse(bounds(mine), bounds(other));
  }
  if (here.observation_scale != there.observation_scale) {
    const auto scale = [](const EnvSpec& spec) {
      return fmt::format("observations scaled by {}", spec.observation_scale);
    };
    return refuse(scale(here), scale(there));
  }
  return CheckSameCode(here.id, here.code, there.code).WithContext("on " + host);
}

// Before registration it polls for the reply; afterwards it steps the role's node and redirects
// connections to peers that moved.
StepStatus RoleNode::Step(Time now) {
  if (say_until_) return SayEnd(now);
  if (node_) {
    const StepStatus turn = node_->Step(now);
    if (turn.what == StepStatus::kDone) {
      result_ = node_->result();
      unanswered_ = member_->lost().code() == Code::kUnavailable;
      return result_.ok() ? turn : SayEnd(now);
    }
    // A restarted peer may have a new endpoint; open channels are moved to it.
    for (const auto& [from, to] : member_->TakeMoved()) {
      const Status redirected = options_.network->Redirect(from, to);
      if (!redirected.ok()) LogWarning("{}", redirected.message());
    }
    return turn;
  }
  if (draining_) return StepStatus::Done();
  if (loading_) return Load(now);
  result_ = Ask(now);
  if (!result_.ok()) return SayEnd(now);
  return node_ || loading_ ? StepStatus::Busy() : StepStatus::Idle(*give_up_);
}

// Waits for the role's data, with heartbeats, then makes its node.
StepStatus RoleNode::Load(Time now) {
  if (loading_->give_up == Time{}) loading_->give_up = now + kLoadMax;
  member_->Poll(now);
  result_ = member_->lost();
  unanswered_ = result_.code() == Code::kUnavailable;
  if (result_.ok() && now >= loading_->give_up) {
    result_ = DeadlineExceeded(
        "reading the data takes more than {:.0f} hours; copy the data to a local disk, or use less",
        ToSeconds(kLoadMax) / 3600);
  }
  if (!result_.ok()) return SayEnd(now);
  if (member_->stop() || member_->phase() == Phase::kDone) return StepStatus::Done();
  if (!options_.executor->TakeDone(loading_->job))
    return StepStatus::Idle(std::min(member_->next_heartbeat(), loading_->give_up));
  // The node finds the data in memory, and holds them from then on.
  const Loading done = *std::exchange(loading_, std::nullopt);
  result_ = done.loaded->status.ok() ? Play(done.reply) : done.loaded->status;
  return result_.ok() ? StepStatus::Busy() : SayEnd(now);
}

// Reports the failure of a registered role in a final heartbeat, so that its slot is free at once.
StepStatus RoleNode::SayEnd(Time now) {
  if (!member_) return StepStatus::Done();
  if (!say_until_) {
    say_until_ = now + kSayEndMax;
    member_->report().ended = result_.message();
    member_->SendHeartbeatSoon();
  }
  member_->Poll(now);
  if (now >= *say_until_ || member_->told() || !member_->lost().ok()) return StepStatus::Done();
  return StepStatus::Idle(std::min(member_->next_heartbeat(), *say_until_));
}

void RoleNode::Drain() {
  draining_ = true;
  if (node_) node_->Drain();
}

// Sends the registration once and polls for its reply until join_max.
Status RoleNode::Ask(Time now) {
  // First call: connect and send. Later calls: poll.
  if (!registration_) {
    // Not a member yet: registers under a distinct origin, so that simultaneous registrations
    // count as different callers.
    const std::int32_t number = options_.index >= 0 ? options_.index : NameOfNewcomer(options_);
    const Origin origin{.role = Role::kTool,
                        .index = NewcomerIndex(options_.role, number),
                        .incarnation = options_.attempt};
    TROOP_ASSIGN_OR_RETURN(registration_,
                           options_.network->Connect(options_.coordinator, {.origin = origin}));
    give_up_ = now + options_.join_max;
    Message request{.type = MessageType::kRegister,
                    .body = EncodeBody(RegisterRequest{.role = options_.role,
                                                       .index = options_.index,
                                                       .version = kTroopVersion,
                                                       .process = options_.process,
                                                       .host = options_.host,
                                                       .reach = options_.advertise_host})};
    TROOP_ASSIGN_OR_RETURN(ticket_, registration_->Send(request, *give_up_));
  }
  std::optional<Result<Message>> answer = registration_->Poll(ticket_);
  if (!answer) return Status::Ok();
  if (!answer->ok()) {
    // A silent coordinator may be restarting; a refusal is final.
    unanswered_ = answer->status().code() == Code::kDeadlineExceeded;
    return answer->status().WithContext(
        fmt::format("registration at the coordinator {} failed", options_.coordinator));
  }
  TROOP_ASSIGN_OR_RETURN(const RegisterReply reply, DecodeBody<RegisterReply>((*answer)->body));
  // The member uses a separate channel, with the assigned origin.
  registration_.reset();
  return Join(reply);
}

// Adopts config, index and incarnation from the reply, and makes the role's node.
Status RoleNode::Join(const RegisterReply& reply) {
  TROOP_ASSIGN_OR_RETURN(config_, ParseConfig(reply.config_toml, "the coordinator's config", {}));
  // Facts of the coordinator's files, which the text of the config does not contain.
  config_.data_identity = reply.data_identity;
  config_.env_code = reply.env.code;
  index_ = reply.index;
  if (options_.joined) options_.joined(config_, index_);
  const Origin origin{.role = options_.role, .index = index_, .incarnation = reply.incarnation};
  TROOP_ASSIGN_OR_RETURN(auto channel,
                         options_.network->Connect(options_.coordinator, {.origin = origin}));
  FleetMember::Options options{.role = options_.role,
                               .index = index_,
                               .incarnation = reply.incarnation,
                               .hung_after = Seconds(config_.fleet.stall_timeout_s)};
  if (options_.heartbeat_every > Duration(0)) options.heartbeat_every = options_.heartbeat_every;
  member_ = std::make_unique<FleetMember>(std::move(channel), options);
  if (options_.executor != nullptr && ReadsData(config_, options_.role)) return StartLoading(reply);
  return Play(reply);
}

// Reads the data in a job: a role that sent no heartbeat for that long would count as hung.
Status RoleNode::StartLoading(const RegisterReply& reply) {
  Loading loading{.reply = reply, .loaded = std::make_shared<Loaded>()};
  const auto read = [loaded = loading.loaded, config = config_] {
    auto data = ReadRoleData(config);
    loaded->status = data.status();
    if (data.ok()) loaded->data = *std::move(data);
  };
  TROOP_ASSIGN_OR_RETURN(loading.job, options_.executor->Submit("read the data", read));
  loading_ = std::move(loading);
  return Status::Ok();
}

// Makes the node of the role, whose steps are those of this node from then on.
Status RoleNode::Play(const RegisterReply& reply) {
  TROOP_ASSIGN_OR_RETURN(node_, MakeNode(reply));
  LogInfo("joined as {}, incarnation {}", PeerName(options_.role, index_), reply.incarnation);
  return Status::Ok();
}

// The evaluator of a supervised run: a trial classifies the held-out examples with given weights.
Result<std::unique_ptr<EvaluatorNode>> RoleNode::MakeReviewEvaluator(const EnvSpec& problem) {
  const TrainingConfig config = TrainingConfigOf(config_);
  TROOP_ASSIGN_OR_RETURN(const ActingContext context,
                         EvaluatorContextOf(config_, options_, problem, member_.get()));
  // The data are read once, and shared by all trials.
  if (ClassifiesImages(config)) {
    TROOP_ASSIGN_OR_RETURN(const auto images, LoadImageData(config));
    return EvaluatorNode::Make(
        ActingConfigOf(config_), context, problem,
        [config, images](const EvaluationRequest& options, std::span<const float> weights,
                         std::unique_ptr<Evaluator>) -> Result<std::unique_ptr<Evaluator>> {
          TROOP_ASSIGN_OR_RETURN(auto trial,
                                 ImageEvaluator::Make(config, images, options, weights));
          return std::unique_ptr<Evaluator>(std::move(trial));
        });
  }
  if (IsLinearModel(config)) {
    TROOP_ASSIGN_OR_RETURN(const auto rows, LoadLinearData(config));
    return EvaluatorNode::Make(
        ActingConfigOf(config_), context, problem,
        [config, rows](const EvaluationRequest& options, std::span<const float> weights,
                       std::unique_ptr<Evaluator>) -> Result<std::unique_ptr<Evaluator>> {
          TROOP_ASSIGN_OR_RETURN(auto trial, LinearEvaluator::Make(config, config.linear.loss, rows,
                                                                   options, weights));
          return std::unique_ptr<Evaluator>(std::move(trial));
        });
  }
  TROOP_ASSIGN_OR_RETURN(const auto data, LoadReviewData(config));
  return EvaluatorNode::Make(
      ActingConfigOf(config_), context, problem,
      [config, data](const EvaluationRequest& options, std::span<const float> weights,
                     std::unique_ptr<Evaluator>) -> Result<std::unique_ptr<Evaluator>> {
        TROOP_ASSIGN_OR_RETURN(auto trial, TextEvaluator::Make(config, data, options, weights));
        return std::unique_ptr<Evaluator>(std::move(trial));
      });
}

// The table of roles: one case per role, without registration macros.
Result<std::unique_ptr<Node>> RoleNode::MakeNode(const RegisterReply& reply) {
  const auto upcast = [](auto result) -> Result<std::unique_ptr<Node>> {
    if (!result.ok()) return result.status();
    return std::unique_ptr<Node>(std::move(*result));
  };
  Network* const network = options_.network;
  TROOP_ASSIGN_OR_RETURN(const EnvSpec env, FromBody(reply.env));
  switch (options_.role) {
    // An actor plays its own copy of the environment, which must equal the coordinator's.
    case Role::kActor: {
      ActingContext context = ActingContextOf(config_, options_, member_.get());
      // An actor needs the run folder only to record episodes: it may be on another machine.
      if (config_.actor.record_episodes) {
        TROOP_ASSIGN_OR_RETURN(context.episodes, options_.storage(config_));
      }
      TROOP_ASSIGN_OR_RETURN(auto actor, ActorNode::Make(ActingConfigOf(config_), context));
      EnvSpec here = actor->env();
      if (const std::string& plugin = config_.env.plugin; !plugin.empty()) {
        TROOP_ASSIGN_OR_RETURN(here.code, PluginCode(plugin));
      }
      TROOP_RETURN_IF_ERROR(CheckSameEnv(here, env, options_.host));
      return std::unique_ptr<Node>(std::move(actor));
    }
    case Role::kEvaluator: {
      if (IsSupervised(config_)) return upcast(MakeReviewEvaluator(env));
      TROOP_ASSIGN_OR_RETURN(const ActingContext context,
                             EvaluatorContextOf(config_, options_, env, member_.get()));
      return upcast(EvaluatorNode::Make(ActingConfigOf(config_), context));
    }
    case Role::kReplay: {
      // The run folder is opened only if the shard persists its items.
      ReplayDutyOptions options{.index = index_,
                                .incarnation = reply.incarnation,
                                .executor = options_.executor,
                                .history = options_.history,
                                .member = member_.get()};
      if (config_.replay.persist) {
        TROOP_ASSIGN_OR_RETURN(options.run, options_.storage(config_));
      }
      TROOP_ASSIGN_OR_RETURN(auto duty, MakeReplayDuty(config_, env, options));
      return upcast(ServiceNode::Make(std::move(duty), network, member_.get(), reply.listen));
    }
    // Sharded, or the single publisher of weights.
    case Role::kParamServer: {
      if (config_.learner.sync == LearnerSync::kParamServer) {
        TROOP_ASSIGN_OR_RETURN(Storage * run, options_.storage(config_));
        return upcast(ShardNode::Make(
            {.config = ShardConfigOf(config_),
             .env = env,
             .network = network,
             .member = member_.get(),
             .executor = options_.executor,
             .run = run,
             .listen = reply.listen,
             .first_weights = [config = TrainingConfigOf(config_)](
                                  const Module& module, std::span<float> value) -> Status {
               TROOP_RETURN_IF_ERROR(FirstWeights(config, module, value));
               if (config.learner.init_from.empty()) return Status::Ok();
               TROOP_ASSIGN_OR_RETURN(const WarmStart start, LoadWarmStart(config, module, value));
               LogInfo("{}", start.Describe());
               return Status::Ok();
             },
             .checkpoint_weights =
                 [run](std::span<float> value) { return CheckpointWeights(run, value); },
             .history = options_.history}));
      }
      TROOP_ASSIGN_OR_RETURN(auto duty, MakeParameterServerDuty(config_, env, member_.get()));
      return upcast(ServiceNode::Make(std::move(duty), network, member_.get(), reply.listen));
    }
    case Role::kInference: {
      TROOP_ASSIGN_OR_RETURN(
          auto duty, MakeInferenceDuty(config_, env, network, member_.get(), options_.executor));
      return upcast(ServiceNode::Make(std::move(duty), network, member_.get(), reply.listen));
    }
    case Role::kLearner: {
      TROOP_ASSIGN_OR_RETURN(Storage * run, options_.storage(config_));
      return upcast(LearnerNode::Make({.config = TrainingConfigOf(config_),
                                       .env = env,
                                       .network = network,
                                       .member = member_.get(),
                                       .executor = options_.executor,
                                       .run = run,
                                       .resume_checkpoint = reply.resume_checkpoint,
                                       .rendezvous = options_.rendezvous,
                                       .group_listen = GroupAddress(config_, reply.listen),
                                       .group_secret = reply.group_secret,
                                       .history = options_.history}));
    }
    default:
      return InvalidArgument(
          "there is no node for the role {}; roles: actor, replay, learner, "
          "paramserver, evaluator, inference",
          RoleName(options_.role));
  }
}

}  // namespace troop
