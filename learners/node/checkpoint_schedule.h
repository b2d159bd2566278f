#pragma once

#include <optional>

#include "core/base/status.h"
#include "core/base/time.h"

namespace troop {

// Decides when a learner writes checkpoints, and counts the attempts to write the final one (at
// most two). Owner: the node's thread.
class CheckpointSchedule {
 public:
  // every_s: seconds between checkpoints (checkpoint.every_s); 0: only the final checkpoint.
  explicit CheckpointSchedule(double every_s) : every_s_(every_s) {}

  // True if a checkpoint is due. The first interval begins with the first call.
  bool Poll(Time now);
  // Begins the next interval at `now`.
  void Restart(Time now) { next_ = After(now); }
  // Time of the next checkpoint; kForever: none. REQUIRES: Poll or Restart was called.
  Time next() const { return *next_; }

  // True if the final checkpoint was written or abandoned.
  bool final_done() const { return final_done_; }
  // Marks the final checkpoint as done without an attempt to write it.
  void SkipFinal() { final_done_ = true; }
  // Records the result of an attempt to write the final checkpoint; the second failure abandons it.
  void EndFinal(const Status& status);
  // Error of the last attempt; ok if it succeeded or there was none.
  const Status& final_failure() const { return final_failure_; }

 private:
  Time After(Time now) const;

  const double every_s_;
  std::optional<Time> next_;
  bool final_done_ = false;
  Status final_failure_;
};

}  // namespace troop
