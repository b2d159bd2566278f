// Implements the backup of a parameter shard: the check of the primary's messages, and the replica.
#include "paramserver/replication/shard_backup.h"

#include <span>
#include <utility>

#include "net/control/peer_info.h"
#include "net/wire/codec.h"

namespace troop {

void ShardBackup::BeginEpoch(const ParameterShard::Options& shard, std::size_t bytes_max) {
  replica_ = {};
  shard_options_ = shard;
  assembler_.emplace(bytes_max);
}

Result<std::uint64_t> ShardBackup::Handle(const Message& message, const Assignment& assignment) {
  if (message.type == MessageType::kShardState) {
    TROOP_ASSIGN_OR_RETURN(const auto head, DecodeBody<ShardStateBody>(message.body));
    TROOP_RETURN_IF_ERROR(CheckPrimary(message.origin, head.term, assignment));
    if (message.parts.size() != 1)
      return DataLoss("a state message has {} parts, must have 1", message.parts.size());
    return TakeState(head, message.parts[0]);
  }
  TROOP_ASSIGN_OR_RETURN(auto body, DecodeBody<ShardUpdateBody>(message.body));
  TROOP_RETURN_IF_ERROR(CheckPrimary(message.origin, body.term, assignment));
  TROOP_RETURN_IF_ERROR(TakeUpdate(&body, message.parts));
  return 0;
}

// Checks that a message comes from the primary of the current term. A primary may learn its term
// before its backup does; the backup accepts a term only from the coordinator, so it requests a
// retry from the primary.
Status ShardBackup::CheckPrimary(const Origin& from, std::uint64_t term,
                                 const Assignment& assignment) {
  const bool other = from.role == Role::kParamServer && from.index != options_.index;
  if (!other || from.index / options_.servers_per_shard != options_.shard) {
    return InvalidArgument("{} cannot be a primary of shard {}", PeerName(from.role, from.index),
                           options_.shard);
  }
  if (term < newest_term_) {
    return Aborted("term {} of shard {} has ended, the current one is {}", term, options_.shard,
                   newest_term_);
  }
  // The coordinator's decision must have arrived here, too.
  const ShardTerm& current = assignment.term;
  if (!assignment.may_follow || current.term < term) {
    return Unavailable("term {} has not arrived here yet", term);
  }
  if (current.term == term &&
      (from.index != current.primary || from.incarnation != current.primary_incarnation)) {
    return InvalidArgument("{} incarnation {} is not the primary of term {}",
                           PeerName(from.role, from.index), from.incarnation, term);
  }
  newest_term_ = term;
  return Status::Ok();
}

// Restores the state once its last piece has arrived.
Result<std::uint64_t> ShardBackup::TakeState(const ShardStateBody& head, const Buffer& piece) {
  TROOP_ASSIGN_OR_RETURN(const std::optional<Buffer> snapshot, assembler_->Add(head, piece));
  if (!snapshot) return 0;
  TROOP_ASSIGN_OR_RETURN(replica_.shard,
                         ParameterShard::Restore(shard_options_, std::span(&*snapshot, 1)));
  replica_term_ = head.term;
  replica_.lineage = head.lineage;
  return head.term;
}

// An update is only valid on top of the state of its term.
Status ShardBackup::TakeUpdate(ShardUpdateBody* body, const std::vector<Buffer>& parts) {
  if (!replica_.shard || replica_term_ != body->term) {
    return FailedPrecondition("an update arrived before the state of term {}", body->term);
  }
  if (parts.size() > 1)
    return DataLoss("an update has {} parts, must have at most 1", parts.size());
  if (!parts.empty()) body->update.sum = parts[0];
  return replica_.shard->Follow(body->update);
}

std::optional<ShardReplica> ShardBackup::TakeReplica(std::uint64_t term) {
  ShardReplica replica = std::move(replica_);
  Discard();
  if (term == 0 || !replica.shard || replica_term_ != term) return std::nullopt;
  return replica;
}

void ShardBackup::Discard() {
  replica_ = {};
  if (assembler_) assembler_->Clear();
}

}  // namespace troop
