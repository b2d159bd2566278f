#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/base/time.h"
#include "net/control/shard_term.h"

namespace troop {

// Election of the primary and the backup of each parameter shard, by the coordinator. Shard k has
// the slot k or, with backups, the two slots from 2 k on; the process in a slot sends heartbeats. A
// new term begins when the primary is lost (a backup with its state takes over; otherwise any live
// process of the shard starts from disk), when the backup is lost, and when another process can
// become the backup. (A view service: primary and backup as in Alsberg & Day 1976, terms as in
// viewstamped replication, Oki & Liskov 1988.)
//
// Invariants: terms only grow. A primary with a backup answers nothing that the backup does not
// have. So the only successor without data loss is that backup, if it has this term's whole state;
// no other process is made primary while it may be alive. A primary without a backup is succeeded
// only when its process has ended, or was replaced and silent for `alone_max`, which is longer than
// it answers without contact to the coordinator (ShardPrimary). So two primaries never both
// acknowledge.
// Owner: the coordinator's thread. Uses no clock and no files.
class PrimaryElection {
 public:
  struct Options {
    int shards = 1;
    bool backup = false;
    Duration silent_max = Seconds(3);  // silence after which another process is chosen
    Duration alone_max = Seconds(31);
    // Returns a number for a new term, larger than all before it, those of an earlier coordinator
    // included; 0 if none can be issued now.
    std::function<std::uint64_t()> next_term;
  };
  explicit PrimaryElection(Options options);
  int slots_per_shard() const { return options_.backup ? 2 : 1; }
  int slots() const { return int(terms_.size()) * slots_per_shard(); }

  // Handles a heartbeat. `held`: the newest term whose whole state the process has. REQUIRES: slot
  // >= 0. A slot beyond slots() belongs to a shard that is being added or removed; it is ignored.
  void RecordHeartbeat(Time now, std::int32_t slot, std::uint64_t incarnation, std::uint64_t held);
  // Records that the process is known to have exited.
  void RecordExit(std::int32_t slot, std::uint64_t incarnation);
  // Extends all leases by a pause of the coordinator, which received no heartbeats then.
  void ExtendLeases(Duration pause);
  // Begins the terms that are due.
  void Update(Time now);
  // A process that has the state of a shard of the next map and will serve it.
  struct Successor {
    std::int32_t slot = -1;
    std::uint64_t incarnation = 0;
  };
  // Replaces the shards by one per given process, each in a new term whose `from` is `move`, a
  // number from next_term. Backups are chosen afterwards as usual.
  void ReplaceShards(Time now, const std::vector<Successor>& successors, std::uint64_t move);
  const std::vector<ShardTerm>& terms() const { return terms_; }

 private:
  struct Slot {
    std::uint64_t incarnation = 0;  // 0: the slot is empty
    std::uint64_t held = 0;
    Time last_beat{};
    int heartbeats_alone = 0;  // heartbeats since the primary was lost
  };
  // Liveness of the primary or backup of a term.
  struct Holder {
    Time last_beat{};
    bool ended = false;
  };
  void UpdateShard(std::size_t k, Time now);
  bool IsGone(const Holder& holder, Time now, Duration silence) const;
  bool PrimaryIsGone(std::size_t k, Time now) const;
  // Slot of the shard, other than `excluded_slot`, with a live process; -1: none.
  std::int32_t Ready(std::size_t k, Time now, std::int32_t excluded_slot) const;
  void ReplaceBackup(std::size_t k, std::int32_t backup);
  void AssignPrimary(std::size_t k, std::int32_t slot);
  bool Begin(std::size_t k, ShardTerm term);

  const Options options_;
  std::vector<ShardTerm> terms_;
  std::vector<Holder> primaries_, backups_;  // in the order of terms_
  std::vector<Slot> slots_;
};

}  // namespace troop
