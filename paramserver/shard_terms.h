#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/time.h"
#include "net/control.h"

namespace troop {

// The coordinator's word on who serves each parameter shard. Shard k has the seat k or, with
// backups, the two from 2 k on; whoever plays there beats. A new term begins when the primary is
// gone (a backup that had its state takes over; else whoever is there begins from the disk), when
// the backup is gone, and when one more could be the backup. (A view service: primary and backup as
// of Alsberg & Day 1976, terms as in viewstamped replication, Oki & Liskov 1988.)
//
// Invariants: terms only grow. A primary with a backup answers nothing that this one has not; so
// the only one that may follow it without loss is that backup, if it has this term's whole state,
// and no other is made primary while it may live. A primary that is alone is followed only when its
// process has ended, or was replaced and silent for `alone_max`, which is longer than it answers
// without a word from the coordinator (ShardNode). So two never both acknowledge.
// Owner: the coordinator's thread. No clock, no files.
class ShardTerms {
 public:
  struct Options {
    int shards = 1;
    bool backup = false;
    Duration silent_max = Seconds(3);  // then somebody else is looked for
    Duration alone_max = Seconds(31);
    // A number for a new term, larger than all before, also those of an earlier coordinator; 0:
    // none can be had now.
    std::function<std::uint64_t()> next_term;
  };
  explicit ShardTerms(Options options);
  int seats_per_shard() const { return options_.backup ? 2 : 1; }
  int seats() const { return int(terms_.size()) * seats_per_shard(); }

  // `held`: the newest term of which it has the whole state. REQUIRES: seat >= 0. One beyond
  // seats() is of a shard that comes or goes, and means nothing here.
  void Beat(Time now, std::int32_t seat, std::uint64_t incarnation, std::uint64_t held);
  // Its process is known to have ended.
  void Ended(std::int32_t seat, std::uint64_t incarnation);
  // Time in which nobody listened was no silence.
  void Forgive(Duration pause);
  // Begins the terms that are due.
  void Update(Time now);
  // Who has the state of a shard of the next map, and will serve it.
  struct Heir {
    std::int32_t seat = -1;
    std::uint64_t incarnation = 0;
  };
  // From now on there are as many shards as `heirs`, each in a term of its own whose `from` is
  // `move`, a number from next_term. Backups follow as ever.
  void Reshape(Time now, const std::vector<Heir>& heirs, std::uint64_t move);
  const std::vector<ShardTerm>& terms() const { return terms_; }

 private:
  struct Seat {
    std::uint64_t incarnation = 0;  // 0: nobody
    std::uint64_t held = 0;
    Time last_beat{};
    int beats_alone = 0;  // since the primary was gone
  };
  // Of a term.
  struct Holder {
    Time last_beat{};
    bool ended = false;
  };
  void UpdateShard(std::size_t k, Time now);
  bool IsGone(const Holder& holder, Time now, Duration silence) const;
  bool PrimaryIsGone(std::size_t k, Time now) const;
  // The seat of the shard, other than `not_seat`, whose player may serve; -1: none.
  std::int32_t Ready(std::size_t k, Time now, std::int32_t not_seat) const;
  void GoOn(std::size_t k, std::int32_t backup);
  void Hand(std::size_t k, std::int32_t seat);
  bool Begin(std::size_t k, ShardTerm term);

  const Options options_;
  std::vector<ShardTerm> terms_;
  std::vector<Holder> primaries_, backups_;  // of terms_
  std::vector<Seat> seats_;
};

}  // namespace troop
