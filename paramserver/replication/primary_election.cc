// Implements the election of primaries and backups of the parameter shards.
#include "paramserver/replication/primary_election.h"

#include "core/base/check.h"
#include "core/base/log.h"

namespace troop {

PrimaryElection::PrimaryElection(Options options)
    : options_(std::move(options)),
      terms_(std::size_t(options_.shards)),
      primaries_(terms_.size()),
      backups_(terms_.size()),
      seats_(std::size_t(seats())) {}

// Commits a resharding: each new primary begins a term that refers to it.
void PrimaryElection::ReplaceShards(Time now, const std::vector<Successor>& successors,
                                    std::uint64_t move) {
  terms_.resize(successors.size());
  primaries_.assign(successors.size(), {.last_beat = now});
  backups_.assign(successors.size(), {});
  seats_.resize(std::size_t(seats()));
  for (std::size_t k = 0; k < successors.size(); ++k) {
    const Successor& successor = successors[k];
    Seat& seat = seats_[std::size_t(successor.seat)];
    seat = {.incarnation = successor.incarnation, .last_beat = now};
    const ShardTerm term{
        .from = move, .primary = successor.seat, .primary_incarnation = successor.incarnation};
    if (!Begin(k, term)) terms_[k] = {};  // a later Update chooses a primary, which loads from disk
  }
}

// A new incarnation replaces the slot's process and loses what the old one held.
void PrimaryElection::Beat(Time now, std::int32_t seat, std::uint64_t incarnation,
                           std::uint64_t held) {
  if (seat >= seats()) return;
  Seat& player = seats_[std::size_t(seat)];
  if (player.incarnation != incarnation) player = {.incarnation = incarnation};
  player.held = held;
  player.last_beat = now;
  ++player.beats_alone;
  const std::size_t k = std::size_t(seat / seats_per_shard());
  const ShardTerm& term = terms_[k];
  if (term.primary == seat && term.primary_incarnation == incarnation) {
    primaries_[k].last_beat = now;
  }
  if (term.backup == seat && term.backup_incarnation == incarnation) backups_[k].last_beat = now;
  Update(now);
}

// A known exit needs no timeout: the successor is chosen at the next Update.
void PrimaryElection::Ended(std::int32_t seat, std::uint64_t incarnation) {
  if (seat >= seats()) return;
  Seat& player = seats_[std::size_t(seat)];
  if (player.incarnation == incarnation) player = {};
  const std::size_t k = std::size_t(seat / seats_per_shard());
  const ShardTerm& term = terms_[k];
  if (term.backup == seat && term.backup_incarnation == incarnation) backups_[k].ended = true;
  if (term.primary == seat && term.primary_incarnation == incarnation) {
    primaries_[k].ended = true;
    // Earlier heartbeats may predate the backup's complete state: count from here.
    for (Seat& other : seats_) other.beats_alone = 0;
  }
}

// A restarted or suspended coordinator must not mistake its own pause for failures.
void PrimaryElection::ExtendLeases(Duration pause) {
  for (Seat& seat : seats_) seat.last_beat += pause;
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
  if (term.backup >= 0 && seats_[std::size_t(term.backup)].held == term.term) {
    return IsGone(primaries_[k], now, options_.silent_max);
  }
  const bool replaced = seats_[std::size_t(term.primary)].incarnation > term.primary_incarnation;
  return replaced && IsGone(primaries_[k], now, options_.alone_max);
}

// The first slot with a recent heartbeat.
std::int32_t PrimaryElection::Ready(std::size_t k, Time now, std::int32_t not_seat) const {
  const auto own = std::size_t(seats_per_shard());
  for (std::size_t seat = k * own; seat < (k + 1) * own; ++seat) {
    const Seat& player = seats_[seat];
    const bool there = player.incarnation != 0 && now - player.last_beat <= options_.silent_max;
    if (there && std::int32_t(seat) != not_seat) return std::int32_t(seat);
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
    const bool took_up = seats_[std::size_t(term.primary)].held == term.term;
    const std::int32_t other = took_up ? Ready(k, now, term.primary) : -1;
    if (other >= 0) ReplaceBackup(k, other);
    return;
  }
  if (!has_backup) {
    const std::int32_t next = Ready(k, now, -1);
    if (next >= 0) AssignPrimary(k, next);
    return;
  }
  const Seat& backup = seats_[std::size_t(term.backup)];
  // The second heartbeat since the loss was sent when no more data from that primary could arrive.
  // A backup without the state by then never had it, and nothing was acknowledged in this term.
  if (backup.held == term.term || backup.beats_alone >= 2) AssignPrimary(k, term.backup);
}

// Begins a term with the same primary, even if its slot has a new process, and another backup.
void PrimaryElection::ReplaceBackup(std::size_t k, std::int32_t backup) {
  ShardTerm term = terms_[k];
  term.backup = backup;
  term.backup_incarnation = backup < 0 ? 0 : seats_[std::size_t(backup)].incarnation;
  if (!Begin(k, term)) return;
  backups_[k] = {};
  if (backup >= 0) backups_[k].last_beat = seats_[std::size_t(backup)].last_beat;
}

// Begins a term with a new primary. `from` is set only if that process has the whole state.
void PrimaryElection::AssignPrimary(std::size_t k, std::int32_t seat) {
  const Seat& player = seats_[std::size_t(seat)];
  const ShardTerm& before = terms_[k];
  const bool has_all = before.backup == seat && player.held == before.term;
  ShardTerm term{.from = has_all ? before.term : 0, .primary = seat};
  term.primary_incarnation = player.incarnation;
  if (!Begin(k, term)) return;
  primaries_[k] = {.last_beat = player.last_beat};
  backups_[k] = {};
}

// Begins a term if a number can be issued; otherwise a later Update retries.
bool PrimaryElection::Begin(std::size_t k, ShardTerm term) {
  term.term = options_.next_term ? options_.next_term() : 0;
  if (term.term == 0) return false;
  TROOP_CHECK(term.term > terms_[k].term, "term {} after {}", term.term, terms_[k].term);
  if (term.since == 0) term.since = term.term;
  terms_[k] = term;
  const auto name = [](std::int32_t seat) { return PeerName(Role::kParamServer, seat); };
  LogInfo("parameter shard {}, term {}: primary {}, {}", k, term.term, name(term.primary),
          term.backup < 0 ? "no backup" : name(term.backup) + " is the backup");
  return true;
}

}  // namespace troop
