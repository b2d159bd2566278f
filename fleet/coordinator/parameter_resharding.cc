// Implements the election of shard primaries and the resharding of a running fleet (`troop scale`).
#include "fleet/coordinator/parameter_resharding.h"

#include <utility>

#include "core/base/log.h"
#include "fleet/config/role_configs.h"
#include "net/wire/codec.h"
#include "nn/models/model.h"
#include "paramserver/replication/shard_snapshots.h"
#include "paramserver/service/options_from_config.h"

namespace troop {

Result<std::unique_ptr<ParameterResharding>> ParameterResharding::Make(
    const Config& config, const EnvSpec& env, Storage* run, IncarnationSequence* numbers) {
  TROOP_ASSIGN_OR_RETURN(const auto network, MakeNetwork(ModelSetupOf(config), env));
  TROOP_ASSIGN_OR_RETURN(ShardMap map, ShardMapFor(config.paramserver, *network));
  TROOP_ASSIGN_OR_RETURN(std::vector<ShardEpoch> epochs, ReadShardEpochs(run));
  const auto first = std::int32_t(config.paramserver.shards);
  if (epochs.empty()) epochs.push_back({.shards = first});
  // Later maps derive from the first one, so its number of shards must stay.
  if (epochs[0].shards != first) {
    return InvalidArgument(
        "paramserver.shards is {}, but this run began with {} and has {} now; restore the value, "
        "and use troop scale to change the number of shards",
        first, epochs[0].shards, epochs.back().shards);
  }
  TROOP_RETURN_IF_ERROR(RemoveOtherShardStates(run, epochs.back().move));
  std::unique_ptr<ParameterResharding> made(new ParameterResharding(run, numbers, std::move(map)));
  PrimaryElection::Options terms = PrimaryElectionOptionsFor(ShardConfigOf(config));
  terms.shards = epochs.back().shards;
  // Terms and reshards share the numbers of incarnations, so one sequence orders all of them. 0:
  // the number could not be stored, and no primary is elected.
  terms.next_term = [numbers] {
    const Result<std::uint64_t> number = numbers->Take();
    return number.ok() ? *number : 0;
  };
  made->election_.emplace(std::move(terms));
  made->mover_.emplace(
      ReshardController::Options{
          .commit = [self = made.get()](const auto& e) { return self->WriteEpochs(e); }},
      std::move(epochs), &*made->election_);
  return made;
}

// Commits a reshard. After a failed write the file may hold either map.
Status ParameterResharding::WriteEpochs(const std::vector<ShardEpoch>& epochs) {
  const Status written = WriteShardEpochs(run_, epochs);
  epochs_unsure_ = !written.ok();
  return written;
}

Status ParameterResharding::CheckCount(const ScaleRequest& request) {
  if (request.count < 1 || request.count > kShardsMax) {
    return InvalidArgument("paramserver={}: must be from 1 to {}", request.count, kShardsMax);
  }
  return Status::Ok();
}

// Checks the new map before any process sees the request, since an abort costs a pause of all
// shards.
Status ParameterResharding::Begin(const ScaleRequest& request, Time now) {
  TROOP_ASSIGN_OR_RETURN(const ShardMap map, ShardMapAfter(first_map_, mover_->epochs()));
  const auto count = std::int32_t(request.count);
  if (count != mover_->shards()) {
    TROOP_ASSIGN_OR_RETURN(const ShardMap next, map.WithShards(count));
    TROOP_RETURN_IF_ERROR(CheckShardMap(next));
    // Kept for the reply, which is sent when the reshard is over.
    scale_ = {.before = mover_->shards(), .after = count, .parameters = map.parameters()};
    for (const ShardMap::Move& move : ShardMap::Moves(map, next)) {
      scale_.parameters_moved += move.range.size();
    }
  }
  // No number is used twice, so states of an aborted reshard never count for this one.
  TROOP_ASSIGN_OR_RETURN(const std::uint64_t number, numbers_->Take());
  TROOP_RETURN_IF_ERROR(mover_->Begin(now, count, number));
  began_ = now;
  LogInfo("scaling from {} to {} parameter shards: reshard {}", mover_->shards(), count, number);
  return Status::Ok();
}

void ParameterResharding::Update(Time now, const ReshardController::LiveProcesses& present) {
  if (const std::optional<Status> over = mover_->Update(now, present)) End(*over, now);
}

// The caller of `troop scale` still waits for a reply.
void ParameterResharding::Abort(Time now) {
  mover_->Cancel();
  End(Aborted("the run ended first"), now);
}

// Removes the shard states of the unused map and replies. While epochs_unsure_, both maps' states
// stay, since either map may be the one on disk.
void ParameterResharding::End(const Status& outcome, Time now) {
  if (!epochs_unsure_) {
    const Status removed = RemoveOtherShardStates(run_, mover_->epochs().back().move);
    if (!removed.ok()) LogWarning("shard states of other maps remain: {}", removed.message());
  }
  if (!outcome.ok()) {
    LogWarning("resharding aborted, {} parameter shards remain: {}", mover_->shards(),
               outcome.message());
    return reply_.Fail(
        outcome.WithContext(fmt::format("aborted, {} parameter shards remain", mover_->shards())));
  }
  // Epochs count from 1, so the newest has the number of all.
  scale_.epoch = mover_->epochs().size();
  scale_.seconds = ToSeconds(now - began_);
  LogInfo("{} parameter shards, epoch {}: {} of {} parameters moved in {:.2f} s", scale_.after,
          scale_.epoch, scale_.parameters_moved, scale_.parameters, scale_.seconds);
  reply_.Send({.type = MessageType::kScaleReply, .body = EncodeBody(scale_)});
}

}  // namespace troop
