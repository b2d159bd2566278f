// Implements the coordinator's state machine for resharding.
#include "paramserver/resharding/reshard_controller.h"

#include <fmt/format.h>

#include <algorithm>

#include "net/control/peer_info.h"

namespace troop {

std::int32_t ReshardController::servers() const {
  return std::max(shards(), move_.number == 0 ? 0 : move_.shards) * terms_->slots_per_shard();
}

// Stage 1 begins; nothing is paused yet.
Status ReshardController::Begin(Time now, std::int32_t shards, std::uint64_t number) {
  if (move_.number != 0) {
    return FailedPrecondition(
        "resharding from {} to {} parameter shards is under way; retry when it has ended",
        this->shards(), move_.shards);
  }
  if (shards == this->shards()) {
    return InvalidArgument("the run has {} parameter shards already", shards);
  }
  if (epochs_.size() >= kEpochsMax) {
    return ResourceExhausted("this run was resharded {} times, which is the limit", kEpochsMax - 1);
  }
  move_ = {.number = number, .shards = shards};
  deadline_ = now + options_.gather_max;
  return Status::Ok();
}

const ReshardController::LiveProcess* ReshardController::Find(const LiveProcesses& present,
                                                              std::int32_t index) const {
  const auto it = std::ranges::find(present.servers, index, &LiveProcess::index);
  return it == present.servers.end() ? nullptr : &*it;
}

// Slot of the process that will serve this shard of the next map.
std::int32_t ReshardController::TargetOf(std::int32_t shard) const {
  return shard < shards() ? terms_->terms()[std::size_t(shard)].primary
                          : shard * terms_->slots_per_shard();
}

// Checks that the primaries are still those of the time when learners left: a new primary may have
// settled other pushes.
Status ReshardController::CheckPrimariesUnchanged(const LiveProcesses& present) const {
  for (std::size_t k = 0; k < since_.size(); ++k) {
    const ShardTerm& term = terms_->terms()[k];
    const LiveProcess* primary = Find(present, term.primary);
    if (term.since != since_[k] || primary == nullptr ||
        primary->incarnation != term.primary_incarnation) {
      return Unavailable("the primary of parameter shard {} has changed or exited", k);
    }
  }
  return Status::Ok();
}

// Describes the first thing that this stage waits for; empty if the stage is complete.
std::string ReshardController::DescribePending(const LiveProcesses& present) const {
  // Stage 2: all learners must have acknowledged the resharding.
  if (move_.stage == ShardMoveStage::kPausing) {
    for (const LiveProcess& learner : present.learners) {
      if (learner.move != move_.number) {
        return PeerName(Role::kLearner, learner.index) + " has not left";
      }
    }
    return {};
  }
  // Stage 1: all processes must run. Stage 3: all must have prepared their shard.
  const bool is_gathering = move_.stage == ShardMoveStage::kGathering;
  const std::int32_t count = is_gathering ? std::max(shards(), move_.shards) : move_.shards;
  for (std::int32_t k = 0; k < count; ++k) {
    const std::int32_t target = TargetOf(k);
    const LiveProcess* server = Find(present, target);
    if (target < 0) return fmt::format("parameter shard {} has no primary", k);
    if (server == nullptr) return PeerName(Role::kParamServer, target) + " is not running";
    if (!is_gathering && server->move != move_.number) {
      return PeerName(Role::kParamServer, target) + " has not received its ranges";
    }
  }
  return {};
}

// Advances through all stages that are complete. A changed primary or a timeout cancels the
// resharding.
std::optional<Status> ReshardController::Update(Time now, const LiveProcesses& present) {
  while (move_.number != 0) {
    Status over;
    if (move_.stage != ShardMoveStage::kGathering) over = CheckPrimariesUnchanged(present);
    if (over.ok()) {
      const std::string awaited = DescribePending(present);
      if (!awaited.empty() && now < deadline_) return std::nullopt;
      if (!awaited.empty()) over = DeadlineExceeded("timed out: {}", awaited);
    }
    if (!over.ok() || move_.stage == ShardMoveStage::kHandingOver) {
      if (over.ok()) over = Commit(now, present);
      Cancel();
      return over;
    }
    // Entering the pause: its deadline, and the terms that must not change.
    if (move_.stage == ShardMoveStage::kGathering) {
      deadline_ = now + options_.pause_max;
      since_.clear();
      for (const ShardTerm& term : terms_->terms()) since_.push_back(term.since);
    }
    move_.stage = ShardMoveStage(int(move_.stage) + 1);
  }
  return std::nullopt;
}

// Writes the new epoch first: only then do the terms change.
Status ReshardController::Commit(Time now, const LiveProcesses& present) {
  std::vector<PrimaryElection::Successor> successors;
  for (std::int32_t k = 0; k < move_.shards; ++k) {
    const std::int32_t target = TargetOf(k);
    successors.push_back({target, Find(present, target)->incarnation});
  }
  epochs_.push_back({move_.shards, move_.number});
  const Status written = options_.commit(epochs_);
  if (!written.ok()) {
    epochs_.pop_back();
    return written;
  }
  terms_->ReplaceShards(now, successors, move_.number);
  return Status::Ok();
}

}  // namespace troop
