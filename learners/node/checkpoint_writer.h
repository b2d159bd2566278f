#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/base/node.h"
#include "learners/algorithm.h"
#include "learners/node/batch_source.h"
#include "net/control/reward_statistics.h"

namespace troop {

// Writes one checkpoint at a time in a job of the executor. Owner: the node's thread; the job uses
// the algorithm.
class CheckpointWriter {
 public:
  struct Options {
    const TrainingConfig* config = nullptr;
    Executor* executor = nullptr;
    Storage* run = nullptr;          // the run folder
    const Module* module = nullptr;  // the whole model
    std::string policy;              // CheckpointState::policy
    Algorithm* algorithm = nullptr;
    const BatchSource* source = nullptr;
  };
  struct Written {
    Result<std::string> path = std::string();
    Status weights;  // not ok: a value is not finite, and nothing was written
    std::uint64_t updates = 0;
    bool final = false;
  };
  explicit CheckpointWriter(const Options& options) : options_(options) {}

  // Submits the job. final: of the run, with BatchSource::WriteFinalModel. agent_steps: made by the
  // actors so far. rewards: to be kept with the weights. REQUIRES: not busy().
  void Start(bool final, std::int64_t agent_steps, const RewardStatistics& rewards = {});
  // True from Start until Poll returns the result.
  bool busy() const { return job_ != nullptr; }
  // The result, once; nullopt: no job, or still running.
  std::optional<Written> Poll();

 private:
  struct Job {
    Executor::Job id = 0;
    std::int64_t agent_steps = 0;
    RewardStatistics rewards;
    Written written;
  };
  // Runs in the job.
  void Write(Job* job) const;

  const Options options_;
  std::unique_ptr<Job> job_;
};

}  // namespace troop
