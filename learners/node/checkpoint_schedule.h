#pragma once

#include <optional>

#include "core/base/status.h"
#include "core/base/time.h"

namespace troop {

// Times of a learner's checkpoints, and the two attempts to write the final one. Owner: the node's
// thread.
class CheckpointSchedule {
 public:
  // every_s: checkpoint.every_s; 0: only the final checkpoint.
  explicit CheckpointSchedule(double every_s) : every_s_(every_s) {}

  // True if a checkpoint is due. The first interval begins with the first call.
  bool Poll(Time now);
  // The next interval begins now.
  void Restart(Time now) { next_ = After(now); }
  // Time of the next checkpoint; kForever: none. REQUIRES: Poll or Restart.
  Time next() const { return *next_; }

  // True if the final checkpoint was written or abandoned.
  bool final_done() const { return final_done_; }
  // The final checkpoint is not written at all.
  void SkipFinal() { final_done_ = true; }
  // Result of an attempt to write it; after the second failure it is abandoned.
  void EndFinal(const Status& status);
  // Error of the last attempt; ok: written, or not attempted.
  const Status& final_failure() const { return final_failure_; }

 private:
  Time After(Time now) const;

  const double every_s_;
  std::optional<Time> next_;
  bool final_done_ = false;
  Status final_failure_;
};

}  // namespace troop
