// Implements the election of primaries and backups of the parameter shards.
#include "paramserver/replication/primary_election.h"

#include "core/base/check.h"
#include "core/base/log.h"
#include "net/control/peer_info.h"

namespace troop {

PrimaryElection::PrimaryElection(Options options)
    : options_(std::move(options)),
      terms_(std::size_t(options_.shards)),
      primaries_(terms_.size()),
      backups_(terms_.size()),
      slots_(std::size_t(slots())) {}

// Commits a resharding: each new primary begins a term that refers to it.
void PrimaryElection::ReplaceShards(Time now, const std::vector<Successor>& successors,
                                    std::uint64_t move) {
  terms_.resize(successors.size());
  primaries_.assign(successors.size(), {.last_beat = now});
  backups_.assign(successors.size(), {});
  slots_.resize(std::size_t(slots()));
  for (std::size_t k = 0; k < successors.size(); ++k) {
    const Successor& successor = successors[k];
    slots_[std::size_t(successor.slot)] = {.incarnation = successor.incarnation, .last_beat = now};
    const ShardTerm term{
        .from = move, .primary = successor.slot, .primary_incarnation = successor.incarnation};
    if (!Begin(k, term)) terms_[k] = {};  // a later Update chooses a primary, which loads from disk
  }
}

// A new incarnation replaces the slot's process and loses what the old one held.
void PrimaryElection::RecordHeartbeat(Time now, std::int32_t slot, std::uint64_t incarnation,
                                      std::uint64_t held) {
  if (slot >= slots()) return;
  Slot& state = slots_[std::size_t(slot)];
  if (state.incarnation != incarnation) state = {.incarnation = incarnation};
  state.held = held;
  state.last_beat = now;
  ++state.heartbeats_alone;
  const std::size_t k = std::size_t(slot / slots_per_shard());
  const ShardTerm& term = terms_[k];
  if (term.primary == slot && term.primary_incarnation == incarnation) {
    primaries_[k].last_beat = now;
  }
  if (term.backup == slot && term.backup_incarnation == incarnation) backups_[k].last_beat = now;
  Update(now);
}

// A known exit needs no timeout: the successor is chosen at the next Update.
void PrimaryElection::RecordExit(std::int32_t slot, std::uint64_t incarnation) {
  if (slot >= slots()) return;
  Slot& state = slots_[std::size_t(slot)];
  if (state.incarnation == incarnation) state = {};
  const std::size_t k = std::size_t(slot / slots_per_shard());
  const ShardTerm& term = terms_[k];
  if (term.backup == slot && term.backup_incarnation == incarnation) backups_[k].ended = true;
  if (term.primary == slot && term.primary_incarnation == incarnation) {
    primaries_[k].ended = true;
    // Earlier heartbeats may predate the backup's complete state: count from here.
    for (Slot& other : slots_) other.heartbeats_alone = 0;
  }
}

// A restarted or suspended coordinator must not mistake its own pause for failures.
void PrimaryElection::ExtendLeases(Duration pause) {
  for (Slot& slot : slots_) slot.last_beat += pause;
  for (Holder& holder : primaries_) holder.last_beat += pause;
  for (Holder& holder : backups_) holder.last_beat += pause;
}

void PrimaryElection::Update(Time now) {
  for (std::size_t k = 0; k < terms_.size(); ++k) UpdateShard(k, now);
}

bool PrimaryElection::IsGone(const Holder& holder, Time now, Duration silence) const {
  return holder.ended || now - holder.last_beat > silence;
}

// True if the primary may be replaced. With a synchronized backup silence is enough; without one a
// silent primary may return with the only copy of the state, so it must be replaced by a new
// incarnation first.
bool PrimaryElection::PrimaryIsGone(std::size_t k, Time now) const {
  const ShardTerm& term = terms_[k];
  if (term.primary < 0 || primaries_[k].ended) return true;
  if (term.backup >= 0 && slots_[std::size_t(term.backup)].held == term.term) {
    return IsGone(primaries_[k], now, options_.silent_max);
  }
  const bool replaced = slots_[std::size_t(term.primary)].incarnation > term.primary_incarnation;
  return replaced && IsGone(primaries_[k], now, options_.alone_max);
}

// The first slot with a recent heartbeat.
std::int32_t PrimaryElection::Ready(std::size_t k, Time now, std::int32_t excluded_slot) const {
  const auto own = std::size_t(slots_per_shard());
  for (std::size_t slot = k * own; slot < (k + 1) * own; ++slot) {
    const Slot& state = slots_[slot];
    const bool is_live = state.incarnation != 0 && now - state.last_beat <= options_.silent_max;
    if (is_live && std::int32_t(slot) != excluded_slot) return std::int32_t(slot);
  }
  return -1;
}

// Case 1: the primary lives; drop a lost backup, or add one. Case 2: no primary and no backup; any
// live process takes over. Case 3: the backup takes over.
void PrimaryElection::UpdateShard(std::size_t k, Time now) {
  const ShardTerm term = terms_[k];
  const bool has_backup = term.backup >= 0 && !IsGone(backups_[k], now, options_.silent_max);
  if (!PrimaryIsGone(k, now)) {
    if (has_backup) return;
    if (term.backup >= 0) return ReplaceBackup(k, -1);
    const bool has_state = slots_[std::size_t(term.primary)].held == term.term;
    const std::int32_t other = has_state ? Ready(k, now, term.primary) : -1;
    if (other >= 0) ReplaceBackup(k, other);
    return;
  }
  if (!has_backup) {
    const std::int32_t next = Ready(k, now, -1);
    if (next >= 0) AssignPrimary(k, next);
    return;
  }
  const Slot& backup = slots_[std::size_t(term.backup)];
  // The second heartbeat since the loss was sent when no more data from that primary could arrive.
  // A backup without the state by then never had it, and nothing was acknowledged in this term.
  if (backup.held == term.term || backup.heartbeats_alone >= 2) AssignPrimary(k, term.backup);
}

// Begins a term with the same primary, even if its slot has a new process, and another backup.
void PrimaryElection::ReplaceBackup(std::size_t k, std::int32_t backup) {
  ShardTerm term = terms_[k];
  term.backup = backup;
  term.backup_incarnation = backup < 0 ? 0 : slots_[std::size_t(backup)].incarnation;
  if (!Begin(k, term)) return;
  backups_[k] = {};
  if (backup >= 0) backups_[k].last_beat = slots_[std::size_t(backup)].last_beat;
}

// Begins a term with a new primary. `from` is set only if that process has the whole state.
void PrimaryElection::AssignPrimary(std::size_t k, std::int32_t slot) {
  const Slot& state = slots_[std::size_t(slot)];
  const ShardTerm& before = terms_[k];
  const bool has_all = before.backup == slot && state.held == before.term;
  ShardTerm term{.from = has_all ? before.term : 0, .primary = slot};
  term.primary_incarnation = state.incarnation;
  if (!Begin(k, term)) return;
  primaries_[k] = {.last_beat = state.last_beat};
  backups_[k] = {};
}

// Begins a term if a number can be issued; otherwise a later Update retries.
bool PrimaryElection::Begin(std::size_t k, ShardTerm term) {
  term.term = options_.next_term ? options_.next_term() : 0;
  if (term.term == 0) return false;
  TROOP_CHECK(term.term > terms_[k].term, "term {} after {}", term.term, terms_[k].term);
  if (term.since == 0) term.since = term.term;
  terms_[k] = term;
  const auto name = [](std::int32_t slot) { return PeerName(Role::kParamServer, slot); };
  LogInfo("parameter shard {}, term {}: primary {}, {}", k, term.term, name(term.primary),
          term.backup < 0 ? "no backup" : name(term.backup) + " is the backup");
  return true;
}

}  // namespace troop
