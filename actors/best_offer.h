#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "actors/acting_context.h"
#include "core/base/buffer.h"
#include "core/base/node.h"
#include "net/control/evaluation_report.h"

namespace troop {

// Offers evaluated weights to the best checkpoint of the run (evaluator.keep_best), one at a time,
// in a job of the executor: the node does not wait for the disk. Owner: the node's thread.
class BestOffer {
 public:
  // keep: empty: nothing is kept, and executor may be null.
  BestOffer(Executor* executor, BestKeeper keep) : executor_(executor), keep_(std::move(keep)) {}

  bool enabled() const { return keep_ != nullptr; }
  // Submits the job. value: [P] f32, shared with the job. REQUIRES: enabled(), not busy().
  void Start(const EvaluationReport& report, const Buffer& value);
  // True from Start until Poll returns the result.
  bool busy() const { return job_ != nullptr; }
  // The result of BestKeeper, once; nullopt: no job, or still running.
  std::optional<Result<bool>> Poll();

 private:
  struct Job {
    Executor::Job id = 0;
    EvaluationReport report;
    Buffer value;
    Result<bool> kept = false;
  };

  Executor* const executor_;
  const BestKeeper keep_;
  std::shared_ptr<Job> job_;  // shared with the executor
};

}  // namespace troop
