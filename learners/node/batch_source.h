#pragma once

#include <cstdint>
#include <memory>

#include "core/base/node.h"
#include "core/metrics/metrics.h"
#include "core/storage/storage.h"
#include "core/tensor/spec.h"
#include "learners/rl/demonstrations.h"
#include "learners/sync/updater.h"
#include "learners/training_config.h"
#include "net/control/fleet_member.h"
#include "net/control/heartbeat_request.h"
#include "nn/module.h"
#include "replay/service/client.h"

namespace troop {

// Source of a learner's batches, with all that depends on it: the replay's shards, recorded
// episodes, both in a fixed ratio, or a data set whose samples the algorithm chooses. Owner: the
// node's thread.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  // Sets the number of updates of a resumed run, from which sampling continues. Called before the
  // first Connect.
  virtual void Begin(std::uint64_t updates) { (void)updates; }
  // Connects to what the coordinator has reported since the last call. Errors: a wrong endpoint.
  virtual Status Connect(ChannelOptions options) = 0;
  virtual ReplaySampler* sampler() = 0;  // nullptr until it is connected

  // True if every learner must contribute a batch to each update.
  virtual bool all_have_batches() const = 0;
  // True if only the agent steps limit the run: neither a replay ratio nor max_updates does.
  virtual bool ends_with_steps() const = 0;
  // True, once, after the last batch of a rollout (RolloutSampler): its weights are due.
  virtual bool TakeRolloutEnd() { return false; }
  // Number of batches per job, where the updater allows `updater_max`.
  virtual std::size_t batches_max(std::size_t updater_max) const = 0;
  // Steps of the run after `updates` updates, where actors have made `agent_steps`. Thread-safe.
  virtual std::int64_t StepsAt(std::uint64_t updates, std::int64_t agent_steps) const = 0;
  // Reports the steps that follow from `updates` to the coordinator, where no actor does.
  virtual void ReportSteps(std::uint64_t updates, HeartbeatRequest* report) const = 0;
  // State of the learner that the metrics of a job refer to.
  struct Queue {
    std::uint64_t updates = 0;        // completed
    std::size_t batches_waiting = 0;  // in pending jobs
  };
  // Reports the metrics of a job's batches. REQUIRES: the job has some.
  virtual void ReportBatches(const UpdateJob& job, const Queue& queue, Metrics* metrics) = 0;
  // Writes the model in the format of other programs with the final checkpoint. module, value: the
  // whole model. Thread-safe; blocks on the disk.
  virtual Status WriteFinalModel(Storage* run, const Module& module,
                                 std::span<const float> value) const = 0;
};

struct BatchSourceOptions {
  const TrainingConfig* config = nullptr;
  const EnvSpec* env = nullptr;
  Network* network = nullptr;
  const FleetMember* member = nullptr;
  std::shared_ptr<const Demonstrations> demonstrations;  // nullptr: none
};
// Reads learner.demonstrations; nullptr without them. Errors: those of Demonstrations::Load.
Result<std::shared_ptr<const Demonstrations>> LoadDemonstrations(const TrainingConfig& config,
                                                                 const EnvSpec& env);
// Makes the source of a config: the replay, recorded episodes, or a data set in supervised mode.
std::unique_ptr<BatchSource> MakeBatchSource(const BatchSourceOptions& options);
std::unique_ptr<BatchSource> MakeReplayBatchSource(const BatchSourceOptions& options);
std::unique_ptr<BatchSource> MakeOfflineBatchSource(const BatchSourceOptions& options);
std::unique_ptr<BatchSource> MakeDatasetBatchSource(const TrainingConfig& config);

}  // namespace troop
