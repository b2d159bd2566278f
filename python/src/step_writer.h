#pragma once

#include <memory>
#include <vector>

#include "core/base/status.h"
#include "python/src/replay_ends.h"
#include "python/src/trajectory_cutter.h"

namespace troop {

// Buffers the output of a TrajectoryCutter and pushes it when it is large enough for a message.
// Owner: one thread at a time.
class StepWriter {
 public:
  // Pushes after every `steps_per_push` steps of all environments.
  StepWriter(const TrajectoryCutter::Options& options, int steps_per_push,
             std::unique_ptr<ExperienceSink> sink);

  // Appends one step. Errors: kInvalidArgument; kDeadlineExceeded: no room for earlier steps. The
  // step was not taken then and may be appended again.
  Status Append(const TrajectoryCutter::Steps& steps, Time deadline);
  // Ends an episode early: TrajectoryCutter::Break.
  void Break(int environment) { cutter_.Break(environment); }
  // Pushes all buffered steps and waits until they are acknowledged. Incomplete items remain
  // buffered.
  Status Flush(Time deadline);
  const TrajectoryCutter::Options& options() const { return cutter_.options(); }
  std::uint64_t steps() const { return steps_; }
  std::uint64_t items() const { return items_; }  // pushed

 private:
  Status Push(Time deadline);

  TrajectoryCutter cutter_;
  const std::uint64_t steps_per_push_;
  std::unique_ptr<ExperienceSink> sink_;
  std::uint64_t steps_ = 0, due_ = 0, items_ = 0;  // due_: value of steps_ at the next push
  std::vector<Chunk> chunks_;  // taken from the cutter, not yet accepted by the sink
  std::vector<Item> ready_;
};

}  // namespace troop
