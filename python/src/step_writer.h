#pragma once

#include <memory>
#include <vector>

#include "core/status.h"
#include "python/src/replay_ends.h"
#include "python/src/trajectory_cutter.h"

namespace troop {

// Steps in, pushes out: gathers what a cutter cuts and pushes it when it is worth a message.
// Owner: one thread at a time.
class StepWriter {
 public:
  // Pushes when `steps_per_push` steps of all environments came.
  StepWriter(const TrajectoryCutter::Options& options, int steps_per_push,
             std::unique_ptr<ExperienceSink> sink);

  // Errors: kInvalidArgument, and kDeadlineExceeded: no room for what came before. The step was not
  // taken then, and may be given again.
  Status Append(const TrajectoryCutter::Steps& steps, Time deadline);
  void Break(int environment) { cutter_.Break(environment); }
  // Pushes what is there, and waits until all was acknowledged. Items that are not complete wait
  // for their steps.
  Status Flush(Time deadline);
  const TrajectoryCutter::Options& options() const { return cutter_.options(); }
  std::uint64_t steps() const { return steps_; }
  std::uint64_t items() const { return items_; }  // pushed

 private:
  Status Push(Time deadline);

  TrajectoryCutter cutter_;
  const std::uint64_t steps_per_push_;
  std::unique_ptr<ExperienceSink> sink_;
  std::uint64_t steps_ = 0, due_ = 0, items_ = 0;  // due_: at so many steps the next push
  std::vector<Chunk> chunks_;  // taken from the cutter and not taken by the sink yet
  std::vector<Item> ready_;
};

}  // namespace troop
