#include "paramserver/shard_mover.h"

#include <fmt/format.h>

#include <algorithm>

namespace troop {

std::int32_t ShardMover::servers() const {
  return std::max(shards(), move_.number == 0 ? 0 : move_.shards) * terms_->seats_per_shard();
}

Status ShardMover::Begin(Time now, std::int32_t shards, std::uint64_t number) {
  if (move_.number != 0) {
    return FailedPrecondition(
        "the run goes from {} to {} parameter shards; wait until that is over", this->shards(),
        move_.shards);
  }
  if (shards == this->shards()) {
    return InvalidArgument("the run has {} parameter shards already", shards);
  }
  if (epochs_.size() >= kEpochsMax) {
    return ResourceExhausted("the parameter shards of this run were moved {} times, the most",
                             kEpochsMax - 1);
  }
  move_ = {.number = number, .shards = shards};
  deadline_ = now + options_.gather_max;
  return Status::Ok();
}

const ShardMover::Player* ShardMover::Find(const Present& present, std::int32_t index) const {
  const auto it = std::ranges::find(present.servers, index, &Player::index);
  return it == present.servers.end() ? nullptr : &*it;
}

// Who will serve this shard of the next map.
std::int32_t ShardMover::TargetOf(std::int32_t shard) const {
  return shard < shards() ? terms_->terms()[std::size_t(shard)].primary
                          : shard * terms_->seats_per_shard();
}

// Those who stand still are who they were when learners left.
Status ShardMover::Undisturbed(const Present& present) const {
  for (std::size_t k = 0; k < since_.size(); ++k) {
    const ShardTerm& term = terms_->terms()[k];
    const Player* primary = Find(present, term.primary);
    if (term.since != since_[k] || primary == nullptr ||
        primary->incarnation != term.primary_incarnation) {
      return Unavailable("who served parameter shard {} is gone", k);
    }
  }
  return Status::Ok();
}

// What this stage waits for; empty: nothing.
std::string ShardMover::Awaited(const Present& present) const {
  if (move_.stage == ShardMoveStage::kPausing) {
    for (const Player& learner : present.learners) {
      if (learner.move != move_.number) {
        return PeerName(Role::kLearner, learner.index) + " has not left";
      }
    }
    return {};
  }
  const bool gathers = move_.stage == ShardMoveStage::kGathering;
  const std::int32_t count = gathers ? std::max(shards(), move_.shards) : move_.shards;
  for (std::int32_t k = 0; k < count; ++k) {
    const std::int32_t target = TargetOf(k);
    const Player* player = Find(present, target);
    if (target < 0) return fmt::format("nobody serves parameter shard {}", k);
    if (player == nullptr) return PeerName(Role::kParamServer, target) + " is not there";
    if (!gathers && player->move != move_.number) {
      return PeerName(Role::kParamServer, target) + " has not got its share";
    }
  }
  return {};
}

std::optional<Status> ShardMover::Update(Time now, const Present& present) {
  while (move_.number != 0) {
    Status over;
    if (move_.stage != ShardMoveStage::kGathering) over = Undisturbed(present);
    if (over.ok()) {
      const std::string awaited = Awaited(present);
      if (!awaited.empty() && now < deadline_) return std::nullopt;
      if (!awaited.empty()) over = DeadlineExceeded("{}, and is waited for no longer", awaited);
    }
    if (!over.ok() || move_.stage == ShardMoveStage::kHandingOver) {
      if (over.ok()) over = Commit(now, present);
      GiveUp();
      return over;
    }
    if (move_.stage == ShardMoveStage::kGathering) {
      deadline_ = now + options_.pause_max;
      since_.clear();
      for (const ShardTerm& term : terms_->terms()) since_.push_back(term.since);
    }
    move_.stage = ShardMoveStage(int(move_.stage) + 1);
  }
  return std::nullopt;
}

Status ShardMover::Commit(Time now, const Present& present) {
  std::vector<ShardTerms::Heir> heirs;
  for (std::int32_t k = 0; k < move_.shards; ++k) {
    const std::int32_t target = TargetOf(k);
    heirs.push_back({target, Find(present, target)->incarnation});
  }
  epochs_.push_back({move_.shards, move_.number});
  const Status written = options_.commit(epochs_);
  if (!written.ok()) {
    epochs_.pop_back();
    return written;
  }
  terms_->Reshape(now, heirs, move_.number);
  return Status::Ok();
}

}  // namespace troop
