// Implements a ShardNode's part in resharding (ReshardController): pausing, handing over,
// receiving.
#include <algorithm>
#include <set>
#include <utility>

#include "core/base/check.h"
#include "core/base/log.h"
#include "net/wire/codec.h"
#include "paramserver/service/options_from_config.h"
#include "paramserver/service/shard_node.h"

namespace troop {

// Shard options for this node's shard in `map`.
ParameterShard::Options ShardNode::OptionsFor(const ShardMap& map) const {
  ParameterShard::Options options =
      ParameterShardOptionsFor(context_.config, *module_, map, shard_);
  options.hogwild = appliers_.get();
  return options;
}

// Switches to the newest epoch. Waits for running jobs, which use the state that changes here.
Status ShardNode::AdoptEpoch() {
  const std::span<const ShardEpoch> epochs = context_.member->shard_epochs();
  if (epochs.size() <= epochs_ || load_ || save_ || prepare_) return Status::Ok();
  StepDown();
  replica_.reset();
  TROOP_ASSIGN_OR_RETURN(map_, ShardMapAfter(*first_map_, epochs));
  epochs_ = epochs.size();
  term_ = {};
  options_ = OptionsFor(*map_);
  elements_ = std::size_t(map_->LoadOf(shard_));
  assembler_ = std::make_unique<StateAssembler>(ShardStateBytesMax(elements_, slots_));
  store_ = std::make_unique<ShardSnapshots>(context_.run, shard_, epochs.back().move);
  context_.member->SendHeartbeatSoon();
  LogInfo("shard {} of: {}, epoch {}", shard_, map_->ToString(), epochs_);
  return Status::Ok();
}

// Follows the coordinator's resharding stage: pauses the server, fetches the ranges that move here,
// and drops everything if the resharding was canceled.
void ShardNode::FollowMove(Time now) {
  const FleetMember& member = *context_.member;
  const ShardMove& move = member.shard_move();
  const bool outdated = member.shard_epochs().size() != epochs_;
  const bool hands_over =
      move.number != 0 && move.stage == ShardMoveStage::kHandingOver && !outdated;
  // An outdated map must not accept pushes.
  if (server_) server_->SetPaused(hands_over || outdated);
  if (outdated || !result_.ok()) return;
  if (!hands_over || moving_ != move.number) {
    outgoing_.clear();
    receiver_.reset();
    successor_.reset();
    next_map_.reset();
  }
  if (!hands_over || prepare_) return;
  Status status;
  if (std::exchange(moving_, move.number) != move.number) status = StartReshardReceiver();
  if (status.ok() && receiver_) {
    receiver_->Poll(now);
    const bool still = !server_ || server_->is_paused();
    if (still && receiver_->complete()) status = FinishReshardReceiver();
  }
  if (status.ok()) return;
  receiver_.reset();  // the coordinator will time out
  LogError("shard {} cannot take part in a resharding: {}", shard_, status.message());
}

// Starts fetching if this process serves a shard of the next map: its current one, or a new one.
Status ShardNode::StartReshardReceiver() {
  const FleetMember& member = *context_.member;
  const ShardMove& move = member.shard_move();
  std::vector<ShardEpoch> epochs(member.shard_epochs().begin(), member.shard_epochs().end());
  epochs.push_back({move.shards, move.number});
  TROOP_ASSIGN_OR_RETURN(next_map_, ShardMapAfter(*first_map_, epochs));
  // A new shard is built by the first process of its slots.
  const bool comes =
      shard_ >= epochs[epochs_ - 1].shards && seat_ == shard_ * ServersPerShard(context_.config);
  if (shard_ >= move.shards || !(server_ || comes)) return Status::Ok();
  std::set<std::int32_t> owners;
  for (const ShardMap::Move& part : ShardMap::Moves(*map_, *next_map_)) {
    if (part.to == shard_) owners.insert(part.from);
  }
  // A shard without elements still needs the state that does not belong to a range.
  if (owners.empty() && !server_) owners.insert(0);
  std::vector<std::unique_ptr<Channel>> channels;
  for (const std::int32_t owner : owners) {
    const std::string endpoint = member.Endpoint(Role::kParamServer, member.Shard(owner).primary);
    TROOP_ASSIGN_OR_RETURN(
        auto channel, context_.network->Connect(
                          endpoint, {.origin = {.role = Role::kParamServer,
                                                .index = seat_,
                                                .incarnation = member.options().incarnation}}));
    channels.push_back(std::move(channel));
  }
  receiver_ = std::make_unique<ReshardReceiver>(
      moving_, shard_, std::move(channels),
      ShardStateBytesMax(std::size_t(next_map_->LoadOf(shard_)), slots_));
  return Status::Ok();
}

// Builds the next shard and writes it to disk in a job; it is reported as ready afterwards.
Status ShardNode::FinishReshardReceiver() {
  const std::unique_ptr<ReshardReceiver> intake = std::move(receiver_);
  TROOP_ASSIGN_OR_RETURN(
      auto shard, intake->Finish(OptionsFor(*next_map_), server_ ? server_->Snapshot() : Buffer(),
                                 server_ ? server_->lineage() : 0));
  moved_bytes_ += std::int64_t(intake->bytes());
  successor_ = Successor{moving_, std::move(shard), intake->lineage()};
  prepare_ = std::make_unique<PrepareJob>(
      PrepareJob{.move = moving_, .store = ShardSnapshots(context_.run, shard_, moving_)});
  const auto id = context_.executor->Submit(
      "prepare", [work = prepare_.get(), snapshot = successor_->shard->Snapshot()] {
        work->status = work->store.Save(work->move, snapshot);
      });
  TROOP_CHECK(id.ok(), "{}", id.status().ToString());
  prepare_->id = *id;
  return Status::Ok();
}

// Reports the prepared shard, if the resharding is still the same.
void ShardNode::CollectPrepared() {
  if (!prepare_ || !context_.executor->TakeDone(prepare_->id)) return;
  const std::unique_ptr<PrepareJob> job = std::move(prepare_);
  if (!job->status.ok()) {
    LogError("saving the resharded state of shard {} failed: {}", shard_, job->status.message());
  } else if (successor_ && successor_->move == job->move) {
    context_.member->report().shard_move = job->move;
    Report();  // include the moved bytes
    context_.member->SendHeartbeatSoon();
  }
}

// Serves one piece of the snapshot of the ranges that move to another shard. The snapshot is made
// once per target.
Result<Message> ShardNode::Fetch(const Message& message) {
  TROOP_ASSIGN_OR_RETURN(const auto body, DecodeBody<ShardFetchBody>(message.body));
  if (message.origin.role != Role::kParamServer) {
    return InvalidArgument("{} may not fetch a shard's state",
                           PeerName(message.origin.role, message.origin.index));
  }
  // The shard must be paused, so that all pieces are of one state.
  if (!server_ || !server_->is_paused() || !next_map_ || moving_ != body.move) {
    return Unavailable("this shard is not paused for resharding {}", body.move);
  }
  if (body.shard < 0 || body.shard == shard_ ||
      std::size_t(body.shard) >= next_map_->shards().size()) {
    return InvalidArgument("nothing moves from shard {} to {}", shard_, body.shard);
  }
  Buffer& state = outgoing_[body.shard];
  // The snapshot stays until the resharding ends, for repeated requests.
  if (state.empty()) {
    std::vector<ParamRange> ranges;
    for (const ShardMap::Move& part : ShardMap::Moves(*map_, *next_map_)) {
      if (part.from == shard_ && part.to == body.shard) ranges.push_back(part.range);
    }
    state = server_->Snapshot(ranges);
  }
  if (body.offset >= state.size()) {
    return InvalidArgument("offset {} is beyond the state of {} bytes", body.offset, state.size());
  }
  Message answer{
      .type = MessageType::kShardFetchReply,
      .body = EncodeBody(ShardStateBody{moving_, server_->lineage(), body.offset, state.size()})};
  answer.parts.push_back(
      state.Slice(body.offset, std::min(BackupClient::kPieceBytes, state.size() - body.offset)));
  return answer;
}

}  // namespace troop
