// Coordinator: resharding of the parameter server (`troop scale`, ReshardController).
#include "core/base/log.h"
#include "fleet/coordinator/coordinator.h"
#include "net/wire/codec.h"
#include "nn/models/model.h"
#include "paramserver/replication/shard_snapshots.h"
#include "paramserver/service/options_from_config.h"

namespace troop {

// Restores the shard map from its epochs on disk; a fresh run begins with paramserver.shards.
Status Coordinator::BeginShards() {
  const Config& config = options_.config;
  TROOP_ASSIGN_OR_RETURN(const auto network, MakeNetwork(config, env_));
  TROOP_ASSIGN_OR_RETURN(first_map_, ShardMapFor(config, *network));
  TROOP_ASSIGN_OR_RETURN(std::vector<ShardEpoch> epochs, ReadShardEpochs(options_.run));
  const auto first = std::int32_t(config.paramserver.shards);
  if (epochs.empty()) epochs.push_back({.shards = first});
  // Later maps derive from the first one, so its number of shards must stay.
  if (epochs[0].shards != first) {
    return InvalidArgument(
        "paramserver.shards is {}, but this run began with {} and has {} now; restore the value, "
        "and use troop scale to change the number of shards",
        first, epochs[0].shards, epochs.back().shards);
  }
  PrimaryElection::Options terms = PrimaryElectionOptionsFor(config);
  // Terms share the number space of incarnations, so that no two are equal.
  terms.shards = epochs.back().shards;
  terms.next_term = [this] {
    const Result<std::uint64_t> number = TakeNumber();
    return number.ok() ? *number : 0;
  };
  TROOP_RETURN_IF_ERROR(RemoveOtherShardStates(options_.run, epochs.back().move));
  shards_.emplace(std::move(terms));
  mover_.emplace(
      ReshardController::Options{.commit = [this](const auto& e) { return WriteEpochs(e); }},
      std::move(epochs), &*shards_);
  return Status::Ok();
}

// Commits a reshard. After a failed write the file may hold either map.
Status Coordinator::WriteEpochs(const std::vector<ShardEpoch>& epochs) {
  const Status written = WriteShardEpochs(options_.run, epochs);
  epochs_unsure_ = !written.ok();
  return written;
}

// Includes servers of both maps while a reshard is under way.
std::int32_t Coordinator::parameter_servers() const {
  return mover_ ? mover_->servers() : ParameterServersOf(options_.config);
}

// Starts a change and keeps the reply until it has completed or failed.
void Coordinator::HandleScale(const Message& message, Reply reply) {
  const Result<ScaleRequest> request = DecodeBody<ScaleRequest>(message.body);
  const std::optional<Role> role = request.ok() ? ScaledRole(request->role) : std::nullopt;
  if (role) {
    const Status begun = BeginFleetScale(*role, *request);
    if (!begun.ok()) return reply.Fail(begun);
    change_->reply = std::move(reply);
    return UpdateFleet();
  }
  const Status begun = request.ok() ? BeginScale(*request) : request.status();
  if (!begun.ok()) return reply.Fail(begun);
  scale_reply_ = std::move(reply);
  UpdateMove();
}

// Validates the request, counts the parameters that will move, and starts the reshard under a new
// number.
Status Coordinator::BeginScale(const ScaleRequest& request) {
  if (request.role != RoleName(Role::kParamServer)) {
    return InvalidArgument(
        "{} can't be scaled in a running fleet; use actors, replay, learners or paramserver",
        request.role);
  }
  if (!mover_) {
    return InvalidArgument(
        "this run has no parameter shards (learner.sync = \"{}\"); paramserver can't be scaled",
        options_.config.learner.sync);
  }
  if (request.count < 1 || request.count > kShardsMax) {
    return InvalidArgument("paramserver={}: must be from 1 to {}", request.count, kShardsMax);
  }
  if (stop_ || phase_ != Phase::kRunning) {
    return FailedPrecondition("the run is ending; its parameter shards can't be scaled");
  }
  TROOP_ASSIGN_OR_RETURN(const ShardMap map, ShardMapAfter(*first_map_, mover_->epochs()));
  const auto count = std::int32_t(request.count);
  if (count != mover_->shards()) {
    TROOP_ASSIGN_OR_RETURN(const ShardMap next, map.WithShards(count));
    TROOP_RETURN_IF_ERROR(CheckShardMap(next));
    scale_ = {.before = mover_->shards(), .after = count, .parameters = map.parameters()};
    for (const ShardMap::Move& move : ShardMap::Moves(map, next)) {
      scale_.parameters_moved += move.range.size();
    }
  }
  // No number is used twice, so states of an aborted reshard never count for this one.
  TROOP_ASSIGN_OR_RETURN(const std::uint64_t number, TakeNumber());
  TROOP_RETURN_IF_ERROR(mover_->Begin(now_, count, number));
  scale_began_ = now_;
  LogInfo("scaling from {} to {} parameter shards: reshard {}", mover_->shards(), count, number);
  return Status::Ok();
}

// Drives the reshard with the members that are present; gives up when the run ends.
void Coordinator::UpdateMove() {
  if (!mover_ || mover_->move().number == 0) return;
  if (stop_ || phase_ != Phase::kRunning) {
    mover_->Cancel();
    return EndMove(Aborted("the run ended first"));
  }
  // A server counts once it is bound; a learner counts as soon as it is registered.
  ReshardController::LiveProcesses present;
  for (const auto& [name, member] : members_) {
    const ReshardController::LiveProcess player{member.view.index, member.view.incarnation,
                                                member.shard_move};
    if (!member.present) continue;
    if (member.view.role == Role::kLearner) present.learners.push_back(player);
    if (member.view.role == Role::kParamServer && !member.endpoint.empty()) {
      present.servers.push_back(player);
    }
  }
  if (const std::optional<Status> over = mover_->Update(now_, present)) EndMove(*over);
}

// Removes the shard states of the unused map and replies. While epochs_unsure_, both maps' states
// stay, since either map may be the one on disk.
void Coordinator::EndMove(const Status& outcome) {
  if (!epochs_unsure_) {
    const Status removed = RemoveOtherShardStates(options_.run, mover_->epochs().back().move);
    if (!removed.ok()) LogWarning("shard states of other maps remain: {}", removed.message());
  }
  if (!outcome.ok()) {
    LogWarning("resharding aborted, {} parameter shards remain: {}", mover_->shards(),
               outcome.message());
    return scale_reply_.Fail(
        outcome.WithContext(fmt::format("aborted, {} parameter shards remain", mover_->shards())));
  }
  scale_.epoch = mover_->epochs().size();
  scale_.seconds = ToSeconds(now_ - scale_began_);
  LogInfo("{} parameter shards, epoch {}: {} of {} parameters moved in {:.2f} s", scale_.after,
          scale_.epoch, scale_.parameters_moved, scale_.parameters, scale_.seconds);
  scale_reply_.Send({.type = MessageType::kScaleReply, .body = EncodeBody(scale_)});
}

}  // namespace troop
