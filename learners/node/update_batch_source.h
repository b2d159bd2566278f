#pragma once

#include <cstdint>

#include "learners/node/batch_source.h"

namespace troop {

// Base of the sources whose batches are always ready, so that the number of updates ends the run:
// run.total_steps is spread over run.max_updates, because there are no agent steps.
class UpdateBatchSource : public BatchSource {
 public:
  bool all_have_batches() const final { return true; }
  bool ends_with_steps() const final { return false; }
  std::int64_t StepsAt(std::uint64_t updates, std::int64_t agent_steps) const final;
  void ReportSteps(std::uint64_t updates, HeartbeatRequest* report) const final;

 protected:
  // `config` must outlive this object.
  explicit UpdateBatchSource(const TrainingConfig& config) : config_(config) {}
  const TrainingConfig& config() const { return config_; }

 private:
  const TrainingConfig& config_;
};

}  // namespace troop
