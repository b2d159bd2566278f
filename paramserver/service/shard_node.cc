// Implements a parameter server process: roles and terms, loading and saving of state, replication.
// The resharding part is in shard_node_move.cc.
#include "paramserver/service/shard_node.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "core/base/log.h"
#include "kernels/elementwise/is_finite.h"
#include "net/wire/codec.h"
#include "nn/models/model.h"
#include "paramserver/service/options_from_config.h"

namespace troop {
namespace {

// Intervals from this value on (30 years) mean "never"; a Time cannot hold much more.
constexpr double kForeverSeconds = 1e9;

// Concatenates the ranges of a value.
std::vector<float> Cut(std::span<const float> value, std::span<const ParamRange> ranges) {
  std::vector<float> part;
  for (const ParamRange& range : ranges) {
    part.insert(part.end(), value.begin() + range.begin, value.begin() + range.end);
  }
  return part;
}

}  // namespace

Result<std::unique_ptr<ShardNode>> ShardNode::Make(Context context) {
  std::unique_ptr<ShardNode> node(new ShardNode(std::move(context)));
  TROOP_RETURN_IF_ERROR(node->Build());
  return node;
}

// The map of the first epoch is derived from the config; later epochs arrive by heartbeat.
Status ShardNode::Build() {
  const Config& config = context_.config;
  TROOP_ASSIGN_OR_RETURN(module_, MakeNetwork(config, context_.env));
  TROOP_ASSIGN_OR_RETURN(first_map_, ShardMapFor(config, *module_));
  TROOP_ASSIGN_OR_RETURN(const auto optimizer, MakeOptimizer(config, 1));
  slots_ = optimizer->slots().size();
  if (config.paramserver.hogwild_threads > 1) {
    appliers_ = std::make_unique<ThreadExecutor>(
        int(config.paramserver.hogwild_threads), [network = context_.network] { network->Wake(); },
        ParameterShard::kApplyingMax);
  }
  seat_ = context_.member->options().index;
  shard_ = seat_ / ServersPerShard(config);
  TROOP_ASSIGN_OR_RETURN(listener_, context_.network->Listen(context_.listen, this));
  HeartbeatRequest& report = context_.member->report();
  report.endpoint = listener_->endpoint();
  report.finished = true;  // no phase of the run waits for this role
  context_.member->SendHeartbeatSoon();
  return Status::Ok();
}

// Order: heartbeats, finished jobs, then changes of epoch, term and resharding, then the server.
StepStatus ShardNode::Step(Time now) {
  FleetMember& member = *context_.member;
  if (now >= member.next_heartbeat()) Report();
  member.Poll(now, metrics_);
  if (result_.ok()) result_ = member.lost();
  if (!result_.ok()) return StepStatus::Done();
  CollectLoad();
  CollectSave();
  CollectPrepared();
  if (result_.ok()) result_ = AdoptEpoch();
  FollowTerms();
  FollowMove(now);
  if (!result_.ok()) return StepStatus::Done();
  // The server runs only after newer terms were adopted: if its backup has seen a newer term, this
  // process may well be the primary of that term.
  if (server_) TickServer(now);
  // At the end of a run: save once more, then wait for the jobs.
  const bool over = draining_ || member.stop() || member.phase() == Phase::kDone;
  if (over && !saved_final_ && server_ && !save_ && server_->PauseUpdates()) Save(true);
  const bool saves = server_ && !saved_final_;
  if (over && !saves && !save_ && !load_ && !prepare_) return StepStatus::Done();
  const Time next = server_ ? std::min(server_->next_tick(), *next_save_) : kForever;
  return StepStatus::Idle(std::min(member.next_heartbeat(), next));
}

// A primary without a backup answers only while it is in contact with the coordinator
// (PrimaryContactTimeoutFor).
void ShardNode::TickServer(Time now) {
  const bool heard =
      now - context_.member->last_known() <= PrimaryContactTimeoutFor(context_.config);
  server_->SetPrimaryConfirmed(heard || server_->backup() != nullptr);
  server_->Tick(now);
  const double every_s = context_.config.checkpoint.every_s;
  const bool saves = every_s > 0 && every_s < kForeverSeconds;
  if (!next_save_) next_save_ = saves ? now + Seconds(every_s) : kForever;
  if (now < *next_save_ || server_->is_paused() || !server_->PauseUpdates()) return;
  next_save_ = now + Seconds(every_s);
  Save(false);
  server_->ResumeUpdates();
}

// Adopts the coordinator's newest term for this shard and changes between primary, backup and
// neither.
void ShardNode::FollowTerms() {
  const FleetMember& member = *context_.member;
  if (!result_.ok() || epochs_ == 0 || member.shard_epochs().size() != epochs_) return;
  const ShardTerm now = member.Shard(shard_);
  if (now.term == 0 || now.term < heard_) return;  // a primary of a newer term was seen already
  const std::uint64_t incarnation = member.options().incarnation;
  const bool primary = now.primary == seat_ && now.primary_incarnation == incarnation;
  const bool backup = now.backup == seat_ && now.backup_incarnation == incarnation;
  if (now.term != term_.term) {
    const bool stays = primary && now.since == term_.since && (server_ || load_);
    term_ = now;
    heard_ = now.term;
    if (!stays) StepDown();
    if (!backup && !primary) {
      replica_.reset();  // it receives no more updates
      assembler_->Clear();
    }
    if (primary && !stays) BecomePrimary();
  }
  if (primary && server_ && connected_ != term_.term) result_ = ConnectBackup();
}

// Three sources of state, in this order: a resharding, the followed primary, a load from disk.
void ShardNode::BecomePrimary() {
  assembler_->Clear();
  if (term_.from != 0 && successor_ && successor_->move == term_.from) {
    Successor successor = *std::exchange(successor_, std::nullopt);
    LogInfo("serving shard {} after resharding, at version {}", shard_, successor.shard->version());
    return Serve(std::move(successor.shard), successor.lineage, true);
  }
  if (term_.from != 0 && replica_ && replica_term_ == term_.from) {
    ++takeovers_;
    LogInfo("taking over shard {} at version {}", shard_, replica_->version());
    return Serve(std::move(replica_), replica_lineage_, true);
  }
  replica_.reset();
  if (load_) return;  // of an earlier term: CollectLoad calls again
  load_ = std::make_unique<LoadJob>();
  load_->since = term_.since;
  const auto id =
      context_.executor->Submit("load", [work = load_.get(), this] { work->shard = Load(); });
  TROOP_CHECK(id.ok(), "{}", id.status().ToString());
  load_->id = *id;
}

// Loads the weights of the newest checkpoint; a checkpoint has no optimizer state of the shards.
// Runs in a job. Errors: kNotFound.
Result<std::unique_ptr<ParameterShard>> ShardNode::LoadFromCheckpoint() const {
  if (!context_.checkpoint_weights) return NotFound("no checkpoint");
  std::vector<float> value(std::size_t(map_->parameters()));
  TROOP_ASSIGN_OR_RETURN(const std::uint64_t updates, context_.checkpoint_weights(value));
  LogWarning("shard {} resumes from the checkpoint weights of update {}", shard_, updates);
  return ParameterShard::Make(options_, Cut(value, options_.ranges), updates);
}

// Loads the newest intact snapshot, else the newest checkpoint's weights, else the weights of a new
// run. Never starts over silently if a damaged snapshot exists. Runs in a job.
Result<std::unique_ptr<ParameterShard>> ShardNode::Load() const {
  TROOP_ASSIGN_OR_RETURN(const std::vector<std::string> names, store_->List());
  Status damage;
  // Damaged snapshots are skipped; any other error ends the load.
  for (const std::string& name : names) {
    Result<Buffer> bytes = store_->Read(name);
    if (bytes.ok()) {
      auto shard = ParameterShard::Restore(options_, std::span(&*bytes, 1));
      if (shard.ok())
        LogInfo("resuming from {}: version {}", store_->PathOf(name), (*shard)->version());
      if (shard.ok() || shard.status().code() != Code::kDataLoss) return shard;
      bytes = shard.status();
    }
    if (damage.ok()) damage = bytes.status().WithContext(store_->PathOf(name));
    LogError("skipping {}: {}", store_->PathOf(name), bytes.status().message());
  }
  Result<std::unique_ptr<ParameterShard>> kept = LoadFromCheckpoint();
  if (kept.status().code() != Code::kNotFound) return kept;
  if (damage.ok() && epochs_ > 1) {
    damage = DataLoss("{} is empty, but a snapshot must exist before its epoch begins",
                      store_->PathOf(""));
  }
  if (!damage.ok()) {  // never start over silently
    return DataLoss(
        "{}; no older snapshot or checkpoint is intact; start over with troop train … "
        "--overwrite",
        damage.message());
  }
  std::vector<float> value(std::size_t(map_->parameters()));
  if (context_.first_weights) {
    TROOP_RETURN_IF_ERROR(context_.first_weights(*module_, value));
  } else {
    InitParameters(*module_, std::uint64_t(context_.config.seed), value);
  }
  return ParameterShard::Make(options_, Cut(value, options_.ranges));
}

// Serves the loaded shard if this process is still the primary of the term it was loaded for.
void ShardNode::CollectLoad() {
  if (!load_ || !context_.executor->TakeDone(load_->id)) return;
  const std::unique_ptr<LoadJob> job = std::move(load_);
  const std::uint64_t incarnation = context_.member->options().incarnation;
  if (term_.primary != seat_ || term_.primary_incarnation != incarnation) return;
  if (job->since != term_.since) return BecomePrimary();
  if (job->shard.ok()) {
    Serve(std::move(*job->shard), term_.since, false);
  } else if (result_.ok()) {
    result_ = job->shard.status().WithContext(fmt::format("shard {}", shard_));
  }
}

// Starts the server. Its backup is connected by FollowTerms.
void ShardNode::Serve(std::unique_ptr<ParameterShard> shard, std::uint64_t lineage,
                      bool is_failover) {
  ShardServer::Options options = ShardServerOptionsFor(context_.config);
  options.lineage = lineage;
  options.is_failover = is_failover;
  options.shard = shard_;
  options.history = context_.history;
  server_ = std::make_unique<ShardServer>(std::move(shard), options);
  // Learners may have connected before the server existed.
  for (const auto& [index, learner] : learners_) server_->PeerChanged(learner, PeerState::kUp);
  connected_ = 0;
  saved_version_ = 0;
}

// Connects the term's backup, if any. Only from here on does the server answer under this term.
Status ShardNode::ConnectBackup() {
  const FleetMember& member = *context_.member;
  std::unique_ptr<BackupClient> backup;
  if (term_.backup >= 0) {
    const std::string endpoint = member.Endpoint(Role::kParamServer, term_.backup);
    if (endpoint.empty()) return Status::Ok();  // retried in the next step
    const std::size_t bytes = 2 * elements_ * sizeof(float) + 4 * BackupClient::kPieceBytes;
    TROOP_ASSIGN_OR_RETURN(auto channel,
                           context_.network->Connect(
                               endpoint, {.origin = {.role = Role::kParamServer,
                                                     .index = seat_,
                                                     .incarnation = member.options().incarnation},
                                          .window_bytes = bytes}));
    backup = std::make_unique<BackupClient>(std::move(channel), term_.term, server_->lineage());
  }
  server_->SetBackup(std::move(backup));
  connected_ = term_.term;
  Hold(term_.term);
  return Status::Ok();
}

// Reports to the coordinator that this process has the whole state of `term`.
void ShardNode::Hold(std::uint64_t term) {
  context_.member->report().shard_term = term;
  context_.member->SendHeartbeatSoon();
}

// Answers waiting callers that they must retry at the new primary.
void ShardNode::StepDown() {
  if (!server_) return;
  LogInfo("no longer serving shard {}", shard_);
  server_->StopServing();
  server_.reset();
}

// Dispatches by kind: resharding, replication, or a learner's request for the server.
void ShardNode::Handle(Message message, Reply reply) {
  // Fetches are served even while the shard is paused.
  const bool replication =
      message.type == MessageType::kShardState || message.type == MessageType::kShardUpdate;
  if (message.type == MessageType::kShardFetch) {
    Result<Message> answer = Fetch(message);
    if (!answer.ok()) return reply.Fail(answer.status());
    return reply.Send(std::move(*answer));
  }
  if (!replication && server_) return server_->Handle(std::move(message), std::move(reply));
  if (!replication) {
    return reply.Fail(
        Unavailable("{} is not the primary of shard {}; the coordinator knows which process is",
                    PeerName(Role::kParamServer, seat_), shard_));
  }
  const MessageType answer = message.type == MessageType::kShardState
                                 ? MessageType::kShardStateReply
                                 : MessageType::kShardUpdateReply;
  const Status status = Replicate(&message);
  if (!status.ok()) return reply.Fail(status);
  reply.Send({.type = answer});
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
  if (server_) server_->PeerChanged(peer, state);
}

// Handles a message from the primary.
Status ShardNode::Replicate(Message* message) {
  if (message->type == MessageType::kShardState) {
    TROOP_ASSIGN_OR_RETURN(const auto head, DecodeBody<ShardStateBody>(message->body));
    TROOP_RETURN_IF_ERROR(CheckPrimary(message->origin, head.term));
    if (message->parts.size() != 1)
      return DataLoss("a state message has {} parts, must have 1", message->parts.size());
    return TakeState(head, message->parts[0]);
  }
  TROOP_ASSIGN_OR_RETURN(auto body, DecodeBody<ShardUpdateBody>(message->body));
  TROOP_RETURN_IF_ERROR(CheckPrimary(message->origin, body.term));
  return TakeUpdate(&body, message->parts);
}

// Checks that a message comes from the primary of the current term. A primary may learn its term
// before its backup does; the backup accepts a term only from the coordinator, so it asks the
// primary to retry.
Status ShardNode::CheckPrimary(const Origin& from, std::uint64_t term) {
  const bool other = from.role == Role::kParamServer && from.index != seat_;
  if (!other || from.index / ServersPerShard(context_.config) != shard_) {
    return InvalidArgument("{} cannot be a primary of shard {}", PeerName(from.role, from.index),
                           shard_);
  }
  if (term < heard_)
    return Aborted("term {} of shard {} has ended, the current one is {}", term, shard_, heard_);
  // The coordinator's decision must have arrived here, too.
  const bool ready = epochs_ == context_.member->shard_epochs().size() && epochs_ > 0;
  const ShardTerm current = context_.member->Shard(shard_);
  if (server_ || load_ || !ready || current.term < term) {
    context_.member->SendHeartbeatSoon();
    return Unavailable("term {} has not arrived here yet", term);
  }
  if (current.term == term &&
      (from.index != current.primary || from.incarnation != current.primary_incarnation)) {
    return InvalidArgument("{} incarnation {} is not the primary of term {}",
                           PeerName(from.role, from.index), from.incarnation, term);
  }
  heard_ = term;
  return Status::Ok();
}

// Restores the state once its last piece has arrived, and reports it to the coordinator.
Status ShardNode::TakeState(const ShardStateBody& head, const Buffer& piece) {
  TROOP_ASSIGN_OR_RETURN(const std::optional<Buffer> snapshot, assembler_->Add(head, piece));
  if (!snapshot) return Status::Ok();
  TROOP_ASSIGN_OR_RETURN(replica_, ParameterShard::Restore(options_, std::span(&*snapshot, 1)));
  replica_term_ = head.term;
  replica_lineage_ = head.lineage;
  Hold(head.term);
  return Status::Ok();
}

// An update is only valid on top of the state of its term.
Status ShardNode::TakeUpdate(ShardUpdateBody* body, const std::vector<Buffer>& parts) {
  if (!replica_ || replica_term_ != body->term) {
    return FailedPrecondition("an update arrived before the state of term {}", body->term);
  }
  if (parts.size() > 1)
    return DataLoss("an update has {} parts, must have at most 1", parts.size());
  if (!parts.empty()) body->update.sum = parts[0];
  return replica_->Follow(body->update);
}

// Saves the state in a job. Non-finite weights are not saved, so that the last good state stays.
void ShardNode::Save(bool final) {
  if (save_) return;
  saved_final_ = saved_final_ || final;
  const ParameterShard& shard = server_->shard();
  if (shard.version() == saved_version_) return;
  if (!AllFinite(shard.value())) {
    LogError("shard {} is not saved: a weight is not finite", shard_);
    return;
  }
  save_ = std::make_unique<SaveJob>();
  save_->version = shard.version();
  save_->final = final;
  const auto id = context_.executor->Submit(
      "save", [work = save_.get(), store = store_.get(), since = term_.since,
               snapshot = server_->Snapshot()] { work->status = store->Save(since, snapshot); });
  TROOP_CHECK(id.ok(), "{}", id.status().ToString());
  save_->id = *id;
}

// A failed save is retried at the next interval; a failed final save ends the process with an
// error.
void ShardNode::CollectSave() {
  if (!save_ || !context_.executor->TakeDone(save_->id)) return;
  const std::unique_ptr<SaveJob> job = std::move(save_);
  if (job->status.ok()) {
    saved_version_ = job->version;
    ++saves_;
    return;
  }
  ++save_failures_;
  LogError("saving shard {} failed, the previous snapshot is kept: {}", shard_,
           job->status.message());
  if (job->final) {
    result_ = job->status.WithContext("saving the final state of a parameter shard failed");
  }
}

void ShardNode::Report() {
  const auto count = [this](std::string_view name, std::int64_t value) {
    metrics_.Gauge(name, double(value), MetricKind::kCounter);
  };
  count("paramserver/takeovers", takeovers_);
  count("paramserver/moved_bytes", moved_bytes_);
  count("paramserver/saves", saves_);
  count("paramserver/save_failures", save_failures_);
  metrics_.Gauge("paramserver/map_epoch", double(epochs_), MetricKind::kGaugeMax);
  if (server_) server_->Report(&metrics_);
}

}  // namespace troop
