#pragma once

#include <cstdint>

#include "core/base/status.h"
#include "core/storage/storage.h"

namespace troop {

// The numbers of a run that are never reused: incarnations, shard terms and reshards.
//
// Invariant: numbers only grow, also after a crash; a block of them is reserved on disk before its
// first number is issued, and numbers of the block that are unused at the end are skipped.
// Owner: the coordinator. One disk write per 32 numbers; everything else O(1).
class IncarnationSequence {
 public:
  // `run`: the run folder, borrowed.
  explicit IncarnationSequence(Storage* run) : run_(run) {}

  // Continues after the numbers that earlier processes reserved. `fresh`: the run has issued none
  // yet, so the file may be missing. Errors: kDataLoss: the file is damaged, which would allow
  // numbers to repeat and so break fencing.
  Status Load(bool fresh);
  // Issues the next number. Errors: those of the disk write; no number is issued then.
  Result<std::uint64_t> Take();
  // The number that Take returns next; all numbers below it may have been issued.
  std::uint64_t next() const { return next_; }

 private:
  Storage* const run_;
  std::uint64_t next_ = 1;
  std::uint64_t kept_ = 0;  // numbers below it are reserved on disk
};

}  // namespace troop
