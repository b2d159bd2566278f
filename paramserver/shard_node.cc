#include "paramserver/shard_node.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/log.h"
#include "kernels/finite.h"
#include "net/codec.h"
#include "nn/model.h"
#include "paramserver/from_config.h"

namespace troop {
namespace {

// A wait of so many seconds (30 years) is for ever; a Time doesn't hold much more.
constexpr double kForeverSeconds = 1e9;

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
  BeatRequest& report = context_.member->report();
  report.endpoint = listener_->endpoint();
  report.finished = true;  // no phase waits for it
  context_.member->BeatSoon();
  return Status::Ok();
}

Turn ShardNode::Step(Time now) {
  FleetMember& member = *context_.member;
  if (now >= member.next_beat()) Report();
  member.Poll(now, metrics_);
  if (result_.ok()) result_ = member.lost();
  if (!result_.ok()) return Turn::Done();
  CollectLoad();
  CollectSave();
  CollectPrepared();
  if (result_.ok()) result_ = AdoptEpoch();
  FollowTerms();
  FollowMove(now);
  if (!result_.ok()) return Turn::Done();
  // Where its backup knows of a newer term it answers nothing until it has heard of that, too: it
  // may well be the primary of that one.
  if (server_) TickServer(now);
  const bool over = draining_ || member.stop() || member.phase() == Phase::kDone;
  if (over && !saved_final_ && server_ && !save_ && server_->Rest()) Save(true);
  const bool saves = server_ && !saved_final_;
  if (over && !saves && !save_ && !load_ && !prepare_) return Turn::Done();
  const Time next = server_ ? std::min(server_->next_tick(), *next_save_) : kForever;
  return Turn::Idle(std::min(member.next_beat(), next));
}

void ShardNode::TickServer(Time now) {
  const bool heard = now - context_.member->last_known() <= ShardAloneFor(context_.config);
  server_->SetSure(heard || server_->backup() != nullptr);
  server_->Tick(now);
  const double every_s = context_.config.checkpoint.every_s;
  const bool saves = every_s > 0 && every_s < kForeverSeconds;
  if (!next_save_) next_save_ = saves ? now + Seconds(every_s) : kForever;
  if (now < *next_save_ || server_->stands_still() || !server_->Rest()) return;
  next_save_ = now + Seconds(every_s);
  Save(false);
  server_->GoOn();
}

// Takes up what the coordinator says.
void ShardNode::FollowTerms() {
  const FleetMember& member = *context_.member;
  if (!result_.ok() || epochs_ == 0 || member.shard_epochs().size() != epochs_) return;
  const ShardTerm now = member.Shard(shard_);
  if (now.term == 0 || now.term < heard_) return;  // its primary told of a newer one already
  const std::uint64_t incarnation = member.options().incarnation;
  const bool primary = now.primary == seat_ && now.primary_incarnation == incarnation;
  const bool backup = now.backup == seat_ && now.backup_incarnation == incarnation;
  if (now.term != term_.term) {
    const bool stays = primary && now.since == term_.since && (server_ || load_);
    term_ = now;
    heard_ = now.term;
    if (!stays) StepDown();
    if (!backup && !primary) {
      followed_.reset();  // nobody tells it any more what happens
      arriving_->Clear();
    }
    if (primary && !stays) BecomePrimary();
  }
  if (primary && server_ && connected_ != term_.term) result_ = ConnectBackup();
}

void ShardNode::BecomePrimary() {
  arriving_->Clear();
  if (term_.from != 0 && heir_ && heir_->move == term_.from) {
    Heir heir = *std::exchange(heir_, std::nullopt);
    LogInfo("serves what shard {} has become at version {}", shard_, heir.shard->version());
    return Serve(std::move(heir.shard), heir.course, true);
  }
  if (term_.from != 0 && followed_ && followed_term_ == term_.from) {
    ++takeovers_;
    LogInfo("takes over shard {} at version {}", shard_, followed_->version());
    return Serve(std::move(followed_), followed_course_, true);
  }
  followed_.reset();
  if (load_) return;  // of a term before: again when it is done
  load_ = std::make_unique<LoadJob>();
  load_->since = term_.since;
  const auto id =
      context_.executor->Submit("load", [work = load_.get(), this] { work->shard = Load(); });
  TROOP_CHECK(id.ok(), "{}", id.status().ToString());
  load_->id = *id;
}

// Without its optimizer's state, which no checkpoint has. In a job. Errors: kNotFound.
Result<std::unique_ptr<ParameterShard>> ShardNode::LoadFromCheckpoint() const {
  if (!context_.checkpoint_weights) return NotFound("no checkpoint");
  std::vector<float> value(std::size_t(map_->parameters()));
  TROOP_ASSIGN_OR_RETURN(const std::uint64_t updates, context_.checkpoint_weights(value));
  LogWarning("shard {} goes on from the weights of the checkpoint of update {}", shard_, updates);
  return ParameterShard::Make(options_, Cut(value, options_.ranges), updates);
}

// The newest of the store that is whole, or else the newest checkpoint's weights; a new run's where
// there never was anything. In a job.
Result<std::unique_ptr<ParameterShard>> ShardNode::Load() const {
  TROOP_ASSIGN_OR_RETURN(const std::vector<std::string> names, store_->List());
  Status damage;
  for (const std::string& name : names) {
    Result<Buffer> bytes = store_->Read(name);
    if (bytes.ok()) {
      auto shard = ParameterShard::Restore(options_, std::span(&*bytes, 1));
      if (shard.ok())
        LogInfo("goes on from {}: version {}", store_->PathOf(name), (*shard)->version());
      if (shard.ok() || shard.status().code() != Code::kDataLoss) return shard;
      bytes = shard.status();
    }
    if (damage.ok()) damage = bytes.status().WithContext(store_->PathOf(name));
    LogError("{} is passed over: {}", store_->PathOf(name), bytes.status().message());
  }
  Result<std::unique_ptr<ParameterShard>> kept = LoadFromCheckpoint();
  if (kept.status().code() != Code::kNotFound) return kept;
  if (damage.ok() && epochs_ > 1) {
    damage =
        DataLoss("{} is empty; shards are there before their epoch begins", store_->PathOf(""));
  }
  if (!damage.ok()) {  // not silently from the beginning
    return DataLoss(
        "{}; neither an older snapshot nor a checkpoint is whole: begin again with troop train … "
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

void ShardNode::Serve(std::unique_ptr<ParameterShard> shard, std::uint64_t course,
                      bool takes_over) {
  ShardServer::Options options = ShardServerOptionsFor(context_.config);
  options.course = course;
  options.takes_over = takes_over;
  options.shard = shard_;
  options.history = context_.history;
  server_ = std::make_unique<ShardServer>(std::move(shard), options);
  // Some came before it served.
  for (const auto& [index, learner] : learners_) server_->PeerChanged(learner, PeerState::kUp);
  connected_ = 0;
  saved_version_ = 0;
}

// What is answered from here on is of this term.
Status ShardNode::ConnectBackup() {
  const FleetMember& member = *context_.member;
  std::unique_ptr<ShardBackup> backup;
  if (term_.backup >= 0) {
    const std::string endpoint = member.Endpoint(Role::kParamServer, term_.backup);
    if (endpoint.empty()) return Status::Ok();  // soon
    const std::size_t bytes = 2 * elements_ * sizeof(float) + 4 * ShardBackup::kPieceBytes;
    TROOP_ASSIGN_OR_RETURN(auto channel,
                           context_.network->Connect(
                               endpoint, {.origin = {.role = Role::kParamServer,
                                                     .index = seat_,
                                                     .incarnation = member.options().incarnation},
                                          .window_bytes = bytes}));
    backup = std::make_unique<ShardBackup>(std::move(channel), term_.term, server_->course());
  }
  server_->SetBackup(std::move(backup));
  connected_ = term_.term;
  Hold(term_.term);
  return Status::Ok();
}

void ShardNode::Hold(std::uint64_t term) {
  context_.member->report().shard_term = term;
  context_.member->BeatSoon();
}

void ShardNode::StepDown() {
  if (!server_) return;
  LogInfo("serves shard {} no more", shard_);
  server_->Depose();
  server_.reset();
}

void ShardNode::Handle(Message message, Reply reply) {
  const bool replication =
      message.type == MessageType::kShardState || message.type == MessageType::kShardUpdate;
  if (message.type == MessageType::kShardFetch) {
    Result<Message> answer = Fetch(message);
    if (!answer.ok()) return reply.Fail(answer.status());
    return reply.Send(std::move(*answer));
  }
  if (!replication && server_) return server_->Handle(std::move(message), std::move(reply));
  if (!replication) {
    return reply.Fail(Unavailable("{} does not serve shard {} now; the coordinator knows who does",
                                  PeerName(Role::kParamServer, seat_), shard_));
  }
  const MessageType answer = message.type == MessageType::kShardState
                                 ? MessageType::kShardStateReply
                                 : MessageType::kShardUpdateReply;
  const Status status = Replicate(&message);
  if (!status.ok()) return reply.Fail(status);
  reply.Send({.type = answer});
}

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

Status ShardNode::Replicate(Message* message) {
  if (message->type == MessageType::kShardState) {
    TROOP_ASSIGN_OR_RETURN(const auto head, DecodeBody<ShardStateBody>(message->body));
    TROOP_RETURN_IF_ERROR(CheckPrimary(message->origin, head.term));
    if (message->parts.size() != 1) return DataLoss("a state of {} parts", message->parts.size());
    return TakeState(head, message->parts[0]);
  }
  TROOP_ASSIGN_OR_RETURN(auto body, DecodeBody<ShardUpdateBody>(message->body));
  TROOP_RETURN_IF_ERROR(CheckPrimary(message->origin, body.term));
  return TakeUpdate(&body, message->parts);
}

// A primary may receive its term before its backup does, which accepts it from the coordinator
// alone.
Status ShardNode::CheckPrimary(const Origin& from, std::uint64_t term) {
  const bool other = from.role == Role::kParamServer && from.index != seat_;
  if (!other || from.index / ServersPerShard(context_.config) != shard_) {
    return InvalidArgument("{} is no primary of shard {}", PeerName(from.role, from.index), shard_);
  }
  if (term < heard_) return Aborted("term {} of shard {} is over: it is {}", term, shard_, heard_);
  const bool ready = epochs_ == context_.member->shard_epochs().size() && epochs_ > 0;
  const ShardTerm current = context_.member->Shard(shard_);
  if (server_ || load_ || !ready || current.term < term) {
    context_.member->BeatSoon();
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

Status ShardNode::TakeState(const ShardStateBody& head, const Buffer& piece) {
  TROOP_ASSIGN_OR_RETURN(const std::optional<Buffer> snapshot, arriving_->Add(head, piece));
  if (!snapshot) return Status::Ok();
  TROOP_ASSIGN_OR_RETURN(followed_, ParameterShard::Restore(options_, std::span(&*snapshot, 1)));
  followed_term_ = head.term;
  followed_course_ = head.course;
  Hold(head.term);
  return Status::Ok();
}

Status ShardNode::TakeUpdate(ShardUpdateBody* body, const std::vector<Buffer>& parts) {
  if (!followed_ || followed_term_ != body->term) {
    return FailedPrecondition("an update for a backup without the state of term {}", body->term);
  }
  if (parts.size() > 1) return DataLoss("an update of {} parts", parts.size());
  if (!parts.empty()) body->update.sum = parts[0];
  return followed_->Follow(body->update);
}

void ShardNode::Save(bool final) {
  if (save_) return;
  saved_final_ = saved_final_ || final;
  const ParameterShard& shard = server_->shard();
  if (shard.version() == saved_version_) return;
  if (!AllFinite(shard.value())) {
    LogError("shard {}: a weight is not finite; it is not saved", shard_);
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

void ShardNode::CollectSave() {
  if (!save_ || !context_.executor->TakeDone(save_->id)) return;
  const std::unique_ptr<SaveJob> job = std::move(save_);
  if (job->status.ok()) {
    saved_version_ = job->version;
    ++saves_;
    return;
  }
  ++save_failures_;
  LogError("shard {} could not be saved, what was saved before stays: {}", shard_,
           job->status.message());
  if (job->final) {
    result_ = job->status.WithContext("the last state of a parameter shard could not be saved");
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
