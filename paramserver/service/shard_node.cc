// Implements a parameter server process: the adoption of epochs and terms, the choice of the state
// of a new primary, and the dispatch of messages.
#include "paramserver/service/shard_node.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "core/base/executor.h"
#include "core/base/log.h"
#include "nn/models/model.h"
#include "paramserver/service/options_from_config.h"

namespace troop {
namespace {

// A new run's weights are random unless the context provides others.
ShardLoader::Fallbacks FallbacksOf(const ShardNode::Context& context, const Module* module) {
  ShardLoader::Fallbacks fallbacks{.checkpoint_weights = context.checkpoint_weights};
  if (context.first_weights) {
    fallbacks.first_weights = [module, first = context.first_weights](std::span<float> value) {
      return first(*module, value);
    };
  } else {
    fallbacks.first_weights = [module, seed = context.config.seed](std::span<float> value) {
      InitParameters(*module, std::uint64_t(seed), value);
      return Status::Ok();
    };
  }
  return fallbacks;
}

}  // namespace

// The map of the first epoch is derived from the settings; later epochs arrive by heartbeat.
Result<std::unique_ptr<ShardNode>> ShardNode::Make(Context context) {
  const ShardConfig& config = context.config;
  TROOP_ASSIGN_OR_RETURN(std::unique_ptr<Module> module, MakeNetwork(config.model, context.env));
  std::unique_ptr<Executor> appliers;
  if (config.paramserver.hogwild_threads > 1) {
    appliers = std::make_unique<ThreadExecutor>(
        int(config.paramserver.hogwild_threads), [network = context.network] { network->Wake(); },
        ParameterShard::kApplyingMax);
  }
  TROOP_ASSIGN_OR_RETURN(
      ShardLayout layout,
      ShardLayout::Make(config, module.get(), context.member->options().index, appliers.get()));
  std::unique_ptr<ShardNode> node(
      new ShardNode(std::move(context), std::move(module), std::move(appliers), std::move(layout)));
  const Context& c = node->context_;
  TROOP_ASSIGN_OR_RETURN(node->listener_, c.network->Listen(c.listen, node.get()));
  HeartbeatRequest& report = c.member->report();
  report.endpoint = node->listener_->endpoint();
  report.finished = true;  // no phase of the run waits for this role
  c.member->SendHeartbeatSoon();
  return node;
}

ShardNode::ShardNode(Context context, std::unique_ptr<Module> module,
                     std::unique_ptr<Executor> appliers, ShardLayout layout)
    : context_(std::move(context)),
      issued_(context_.member),
      module_(std::move(module)),
      appliers_(std::move(appliers)),
      layout_(std::move(layout)),
      loader_(context_.executor, layout_.shard(), FallbacksOf(context_, module_.get())),
      saver_({.executor = context_.executor,
              .shard = layout_.shard(),
              .every_s = context_.config.snapshot_every_s}),
      backup_({.index = layout_.index(),
               .shard = layout_.shard(),
               .servers_per_shard = ServersPerShard(context_.config.paramserver)}),
      reshard_({.network = context_.network,
                .member = context_.member,
                .executor = context_.executor,
                .run = context_.run,
                .layout = &layout_}) {}

// Order: heartbeats, finished jobs, then changes of epoch, term and resharding, then the server.
StepStatus ShardNode::Step(Time now) {
  FleetMember& member = *context_.member;
  if (now >= member.next_heartbeat()) Report();
  member.Poll(now, metrics_);
  if (result_.ok()) result_ = member.lost();
  if (!result_.ok()) return StepStatus::Done();
  CollectLoad();
  if (const Status saved = saver_.Collect(); !saved.ok()) result_ = saved;
  if (reshard_.CollectPrepared()) Report();  // include the moved bytes
  if (result_.ok()) result_ = AdoptEpoch();
  FollowTerms();
  if (!result_.ok()) return StepStatus::Done();
  reshard_.Follow(now, served());
  // The server runs only after newer terms were adopted: if its backup has seen a newer term, this
  // process may well be the primary of that term.
  if (primary_) primary_->Tick(now);
  if (EndRun()) return StepStatus::Done();
  const Time next = primary_ ? primary_->next_tick() : kForever;
  return StepStatus::Idle(std::min(member.next_heartbeat(), next));
}

// At the end of a run: saves once more, then waits for the jobs. Returns true if nothing is left to
// do.
bool ShardNode::EndRun() {
  const FleetMember& member = *context_.member;
  if (!draining_ && !member.stop() && member.phase() != Phase::kDone) return false;
  if (primary_) primary_->SaveFinal();
  const bool saves = (primary_ && !saver_.final_started()) || saver_.running();
  return !saves && !loader_.running() && !reshard_.preparing();
}

// Switches to the newest epoch. Waits for running jobs, which use the state that changes here.
Status ShardNode::AdoptEpoch() {
  const std::span<const ShardEpoch> epochs = context_.member->shard_epochs();
  const bool jobs = loader_.running() || saver_.running() || reshard_.preparing();
  if (epochs.size() <= layout_.epochs().size() || jobs) return Status::Ok();
  StepDown();
  TROOP_RETURN_IF_ERROR(layout_.Adopt(epochs));
  term_ = {};
  backup_.BeginEpoch(layout_.OptionsFor(layout_.map()), layout_.StateBytesMax(layout_.map()));
  snapshots_ = std::make_unique<ShardSnapshots>(context_.run, layout_.shard(), epochs.back().move);
  context_.member->SendHeartbeatSoon();
  LogInfo("shard {} of: {}, epoch {}", layout_.shard(), layout_.map().ToString(), epochs.size());
  return Status::Ok();
}

bool ShardNode::IsPrimaryOf(const ShardTerm& term) const {
  return term.primary == layout_.index() &&
         term.primary_incarnation == context_.member->options().incarnation;
}

bool ShardNode::IsBackupOf(const ShardTerm& term) const {
  return term.backup == layout_.index() &&
         term.backup_incarnation == context_.member->options().incarnation;
}

// Adopts the coordinator's newest term for this shard and changes between primary, backup and
// neither.
void ShardNode::FollowTerms() {
  const FleetMember& member = *context_.member;
  if (!result_.ok() || !layout_.IsCurrent(member.shard_epochs())) return;
  const ShardTerm now = member.Shard(layout_.shard());
  // A primary of a newer term was seen already.
  if (now.term == 0 || now.term < backup_.newest_term()) return;
  const bool primary = IsPrimaryOf(now);
  if (now.term != term_.term) {
    const bool stays = primary && now.since == term_.since && (primary_ || loader_.running());
    term_ = now;
    backup_.ObserveTerm(now.term);
    if (!stays) StepDown();
    if (!primary && !IsBackupOf(now)) backup_.Discard();  // it receives no more updates
    if (primary && !stays) BecomePrimary();
    if (primary_) primary_->Adopt(now);
  }
  if (primary && primary_) result_ = primary_->ConnectBackup();
}

// Three sources of state, in this order: a resharding, the followed primary, a load from disk.
void ShardNode::BecomePrimary() {
  const std::int32_t shard = layout_.shard();
  if (std::optional<ShardReplica> successor = reshard_.TakeSuccessor(term_.from)) {
    backup_.Discard();
    LogInfo("serving shard {} after resharding, at version {}", shard, successor->shard->version());
    return Serve(std::move(*successor), true);
  }
  if (std::optional<ShardReplica> replica = backup_.TakeReplica(term_.from)) {
    ++takeovers_;
    LogInfo("taking over shard {} at version {}", shard, replica->shard->version());
    return Serve(std::move(*replica), true);
  }
  if (!loader_.running()) StartLoad();  // otherwise of an earlier term: CollectLoad calls again
}

void ShardNode::StartLoad() {
  loader_.Start({.since = term_.since,
                 .snapshots = snapshots_.get(),
                 .options = layout_.OptionsFor(layout_.map()),
                 .parameters = layout_.map().parameters(),
                 .snapshot_expected = layout_.epochs().size() > 1});
}

// Serves the loaded shard if this process is still the primary of the term it was loaded for.
void ShardNode::CollectLoad() {
  std::optional<ShardLoader::Loaded> loaded = loader_.TakeDone();
  if (!loaded || !IsPrimaryOf(term_)) return;
  if (loaded->since != term_.since) return BecomePrimary();
  if (loaded->shard.ok()) {
    Serve({std::move(*loaded->shard), term_.since}, false);
  } else if (result_.ok()) {
    result_ = loaded->shard.status().WithContext(fmt::format("shard {}", layout_.shard()));
  }
}

// Starts the server. Its backup is connected by FollowTerms.
void ShardNode::Serve(ShardReplica state, bool is_failover) {
  const ShardPrimary::Context context{.config = &context_.config,
                                      .network = context_.network,
                                      .member = context_.member,
                                      .layout = &layout_,
                                      .snapshots = snapshots_.get(),
                                      .saver = &saver_,
                                      .history = context_.history};
  primary_ = std::make_unique<ShardPrimary>(context, term_, std::move(state), is_failover);
  // Learners may have connected before the server existed.
  for (const auto& [index, learner] : learners_) {
    primary_->server().PeerChanged(learner, PeerState::kUp);
  }
}

// Answers waiting callers that they must retry at the new primary.
void ShardNode::StepDown() {
  if (!primary_) return;
  primary_->StopServing();
  primary_.reset();
}

// Dispatches by kind: resharding, replication, or a learner's request for the server.
void ShardNode::Handle(Message message, Reply reply) {
  // Fetches are served even while the shard is paused.
  if (message.type == MessageType::kShardFetch) {
    Result<Message> answer = reshard_.Fetch(message, served());
    if (!answer.ok()) return reply.Fail(answer.status());
    return reply.Send(std::move(*answer));
  }
  const bool state = message.type == MessageType::kShardState;
  if (state || message.type == MessageType::kShardUpdate) {
    const Status status = Replicate(message);
    if (!status.ok()) return reply.Fail(status);
    return reply.Send(
        {.type = state ? MessageType::kShardStateReply : MessageType::kShardUpdateReply});
  }
  if (primary_) return primary_->server().Handle(std::move(message), std::move(reply));
  reply.Fail(Unavailable(
      "{} is not the primary of shard {}; the coordinator has the address of the primary",
      PeerName(Role::kParamServer, layout_.index()), layout_.shard()));
}

// Connected learners are remembered for a server that starts later.
void ShardNode::PeerChanged(const Origin& peer, PeerState state) {
  if (peer.role == Role::kLearner) {
    const auto known = learners_.find(peer.index);
    if (state == PeerState::kUp) {
      learners_.insert_or_assign(peer.index, peer);
    } else if (known != learners_.end() && known->second.incarnation == peer.incarnation) {
      learners_.erase(known);
    }
  }
  if (primary_) primary_->server().PeerChanged(peer, state);
}

// Handles a message from the primary, and reports to the coordinator when this process has the
// whole state of a term.
Status ShardNode::Replicate(const Message& message) {
  FleetMember& member = *context_.member;
  const bool may_follow =
      !primary_ && !loader_.running() && layout_.IsCurrent(member.shard_epochs());
  const Result<std::uint64_t> held =
      backup_.Handle(message, {.term = member.Shard(layout_.shard()), .may_follow = may_follow});
  if (held.ok() && *held != 0) member.report().shard_term = *held;
  const bool retries = held.status().code() == Code::kUnavailable;  // its term is not here yet
  if (retries || (held.ok() && *held != 0)) member.SendHeartbeatSoon();
  return held.status();
}

void ShardNode::Report() {
  const auto count = [this](std::string_view name, std::int64_t value) {
    metrics_.Gauge(name, double(value), MetricKind::kCounter);
  };
  count("paramserver/takeovers", takeovers_);
  count("paramserver/moved_bytes", reshard_.moved_bytes());
  count("paramserver/saves", saver_.saves());
  count("paramserver/save_failures", saver_.failures());
  metrics_.Gauge("paramserver/map_epoch", double(layout_.epochs().size()), MetricKind::kGaugeMax);
  if (primary_) primary_->server().Report(&metrics_);
}

}  // namespace troop
