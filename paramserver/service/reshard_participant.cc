// Implements a parameter server's part in resharding: pausing, handing over, receiving.
#include "paramserver/service/reshard_participant.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/base/log.h"
#include "net/wire/codec.h"

namespace troop {

void ReshardParticipant::Follow(Time now, ShardServer* server) {
  const FleetMember& member = *context_.member;
  const ShardMove& move = member.shard_move();
  const bool outdated = !context_.layout->IsCurrent(member.shard_epochs());
  const bool hands_over =
      move.number != 0 && move.stage == ShardMoveStage::kHandingOver && !outdated;
  // An outdated map must not accept pushes.
  if (server != nullptr) server->SetPaused(hands_over || outdated);
  if (outdated) return;
  // With another resharding, or with none, all that was prepared for the earlier one is void.
  if (!hands_over || move_ != move.number) DropTransfers();
  // The job still reads its snapshot; CollectPrepared discards a result that is void by then.
  if (!hands_over || prepare_) return;
  Status status;
  if (std::exchange(move_, move.number) != move.number) status = StartReceiver(server);
  if (status.ok() && receiver_) {
    receiver_->Poll(now);
    // The state of this shard is final only when no update is in flight.
    const bool paused = server == nullptr || server->is_paused();
    if (paused && receiver_->complete()) status = FinishReceiver(server);
  }
  if (status.ok()) return;
  receiver_.reset();  // the coordinator will time out
  LogError("shard {} cannot take part in a resharding: {}", context_.layout->shard(),
           status.message());
}

void ReshardParticipant::DropTransfers() {
  outgoing_.clear();
  receiver_.reset();
  successor_.reset();
  next_map_.reset();
}

// Starts fetching if this process serves a shard of the next map: its current one, or a new one.
Status ReshardParticipant::StartReceiver(const ShardServer* server) {
  const FleetMember& member = *context_.member;
  const ShardLayout& layout = *context_.layout;
  const ShardMove& move = member.shard_move();
  TROOP_ASSIGN_OR_RETURN(next_map_, layout.MapAfterMove(move));
  // A new shard is built by the first process of its slots.
  const bool is_new = layout.shard() >= layout.epochs().back().shards && layout.is_first_process();
  // A backup, and a process of a shard that is dissolved, receive nothing.
  if (layout.shard() >= move.shards || (server == nullptr && !is_new)) return Status::Ok();
  std::set<std::int32_t> owners;
  for (const ShardMap::Move& part : ShardMap::Moves(layout.map(), *next_map_)) {
    if (part.to == layout.shard()) owners.insert(part.from);
  }
  // A shard without elements still needs the state that does not belong to a range.
  if (owners.empty() && server == nullptr) owners.insert(0);
  std::vector<std::unique_ptr<Channel>> channels;
  for (const std::int32_t owner : owners) {
    const std::string endpoint = member.Endpoint(Role::kParamServer, member.Shard(owner).primary);
    TROOP_ASSIGN_OR_RETURN(
        auto channel, context_.network->Connect(
                          endpoint, {.origin = {.role = Role::kParamServer,
                                                .index = layout.index(),
                                                .incarnation = member.options().incarnation}}));
    channels.push_back(std::move(channel));
  }
  receiver_ = std::make_unique<ReshardReceiver>(move_, layout.shard(), std::move(channels),
                                                layout.StateBytesMax(*next_map_));
  return Status::Ok();
}

// Builds the next shard and writes it to disk in a job; it is reported as ready afterwards.
Status ReshardParticipant::FinishReceiver(ShardServer* server) {
  // Taken out first, so that an error below leaves no complete receiver to be finished again.
  const std::unique_ptr<ReshardReceiver> receiver = std::move(receiver_);
  TROOP_ASSIGN_OR_RETURN(auto shard,
                         receiver->Finish(context_.layout->OptionsFor(*next_map_),
                                          server != nullptr ? server->Snapshot() : Buffer(),
                                          server != nullptr ? server->lineage() : 0));
  moved_bytes_ += std::int64_t(receiver->bytes());
  successor_ = Successor{move_, {std::move(shard), receiver->lineage()}};
  prepare_ = std::make_unique<PrepareJob>(PrepareJob{
      .move = move_, .snapshots = ShardSnapshots(context_.run, context_.layout->shard(), move_)});
  // On disk before it is reported: once the new map is committed, a restart must find it.
  const auto id = context_.executor->Submit(
      "prepare", [job = prepare_.get(), snapshot = successor_->state.shard->Snapshot()] {
        job->status = job->snapshots.Save(job->move, snapshot);
      });
  TROOP_CHECK(id.ok(), "{}", id.status().ToString());
  prepare_->id = *id;
  return Status::Ok();
}

// A resharding that was canceled while the job ran is not reported.
bool ReshardParticipant::CollectPrepared() {
  if (!prepare_ || !context_.executor->TakeDone(prepare_->id)) return false;
  const std::unique_ptr<PrepareJob> job = std::move(prepare_);
  if (!job->status.ok()) {
    LogError("saving the resharded state of shard {} failed: {}", context_.layout->shard(),
             job->status.message());
    return false;
  }
  if (!successor_ || successor_->move != job->move) return false;
  context_.member->report().shard_move = job->move;
  context_.member->SendHeartbeatSoon();
  return true;
}

// Requests come from other processes: role, stage, number and range are checked in this order.
Result<Message> ReshardParticipant::Fetch(const Message& message, ShardServer* server) {
  TROOP_ASSIGN_OR_RETURN(const auto body, DecodeBody<ShardFetchBody>(message.body));
  if (message.origin.role != Role::kParamServer) {
    return InvalidArgument("{} may not fetch a shard's state",
                           PeerName(message.origin.role, message.origin.index));
  }
  // The receiver may be ahead of this process by a heartbeat, so kUnavailable makes it retry.
  if (server == nullptr || !server->is_paused() || !next_map_ || move_ != body.move) {
    return Unavailable("this shard is not paused for resharding {}", body.move);
  }
  const std::int32_t shard = context_.layout->shard();
  if (body.shard < 0 || body.shard == shard ||
      std::size_t(body.shard) >= next_map_->shards().size()) {
    return InvalidArgument("nothing moves from shard {} to {}", shard, body.shard);
  }
  const Buffer& state = OutgoingState(body.shard, server);
  if (body.offset >= state.size()) {
    return InvalidArgument("offset {} is beyond the state of {} bytes", body.offset, state.size());
  }
  Message answer{
      .type = MessageType::kShardFetchReply,
      .body = EncodeBody(ShardStateBody{move_, server->lineage(), body.offset, state.size()})};
  // One piece per reply bounds the size of a message; the receiver requests the next offset.
  answer.parts.push_back(
      state.Slice(body.offset, std::min(BackupClient::kPieceBytes, state.size() - body.offset)));
  return answer;
}

// The snapshot is made once per target; it stays until the resharding ends, for repeated requests.
const Buffer& ReshardParticipant::OutgoingState(std::int32_t target, ShardServer* server) {
  Buffer& state = outgoing_[target];
  if (!state.empty()) return state;
  std::vector<ParamRange> ranges;
  for (const ShardMap::Move& part : ShardMap::Moves(context_.layout->map(), *next_map_)) {
    if (part.from == context_.layout->shard() && part.to == target) ranges.push_back(part.range);
  }
  state = server->Snapshot(ranges);
  return state;
}

// Hands over the prepared shard, at most once. Move 0: no resharding has happened.
std::optional<ShardReplica> ReshardParticipant::TakeSuccessor(std::uint64_t move) {
  if (move == 0 || !successor_ || successor_->move != move) return std::nullopt;
  return std::move(std::exchange(successor_, std::nullopt)->state);
}

}  // namespace troop
