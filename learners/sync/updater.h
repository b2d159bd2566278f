#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "collective/nccl/nccl.h"
#include "core/base/node.h"
#include "learners/algorithm.h"
#include "learners/sync/rendezvous.h"
#include "net/control/fleet_member.h"

namespace troop {

class TensorParallelReplica;

// A job of one or more consecutive updates: inputs and results.
struct UpdateJob {
  std::vector<SampleBatch> batches;
  double progress = 0;       // completed share of the run before the first update
  double progress_step = 0;  // added by each update
  bool publish = false;      // return a copy of the weights
  bool want_state = false;   // tensor parallelism: gather TensorParallelMember::WholeState
  std::size_t taken = 0;     // number of batches submitted; batches of a failed group are dropped

  // [batches][B]; empty: that update was skipped, or the batch only carried experience.
  std::vector<std::vector<float>> priority;
  std::map<std::size_t, Status> skipped;  // by batch: why its update was skipped; kCancelled: an
                                          // external program refused the batch
  LossReport last;
  Status status;   // of the last update that was skipped, or batch that could not be taken
  Status weights;  // result of CheckFinite
  std::uint64_t updates = 0;
  // Update count before the first update, where other learners or shards may have changed the
  // weights: earlier updates were adopted, not made. nullopt: continues from the previous job.
  std::optional<std::uint64_t> before;
  Buffer value;  // [P], if requested and finite
  bool state_gathered = false;
  UpdateCost cost;
  double busy_s = 0;  // from the start of its first update to the end of its last; 0: not measured

  // Records that the update with this batch was skipped. REQUIRES: the batch has priorities.
  void Skip(std::size_t batch, const Status& why) {
    priority[batch].clear();
    skipped[batch] = status = why;
  }
  // Progress before that update of the job, counted from 0.
  double ProgressAt(std::size_t update) const { return progress + double(update) * progress_step; }
};

// Strategy for making a learner's updates: alone, or together with other learners. Owner: the
// node's thread; only jobs of the executor, which run in order, use the algorithm.
class Updater {
 public:
  virtual ~Updater() = default;
  // Called once per step of the node. Errors: those that a retry does not fix.
  virtual Status Poll(Time now) = 0;
  // Latest time for the next call, in addition to the node's wake-ups; kForever: none needed.
  virtual Time next_poll() const { return kForever; }
  // True if another job may be submitted.
  virtual bool CanTake() const = 0;
  virtual std::size_t batches_max() const = 0;            // per job
  virtual void Take(std::unique_ptr<UpdateJob> job) = 0;  // REQUIRES: CanTake
  // The oldest completed job; nullptr: none.
  virtual std::unique_ptr<UpdateJob> Collect() = 0;
  // True if jobs are not collected yet, or another one changes the algorithm.
  virtual bool busy() const = 0;

  // True if no more updates will be made. exhausted: this learner has no more batches.
  virtual bool Finished(bool exhausted) { return exhausted; }
  // Announces that a job of the caller will change the algorithm's state, which the other learners
  // must then receive.
  virtual void StateChanges() {}
  // Announces this learner's end to learners that wait for it.
  virtual void Deregister() {}
  // True for the learner that publishes and checkpoints.
  virtual bool is_leader() const { return true; }
  // True if the leading learner publishes weights to actors; false: the shards do.
  virtual bool publishes() const { return true; }
  // Increases with each new leader; part of WeightsVersion.
  virtual std::uint64_t generation() const = 0;
  // Number of batches per update, for schedules.
  virtual int learners() const { return 1; }
};

// For implementations: checks the weights after a job's updates, and copies them if requested. Runs
// in a job of the executor.
void FinishJob(Algorithm& algorithm, UpdateJob* job);

// Makes an updater of a single learner.
std::unique_ptr<Updater> MakeLocalUpdater(Algorithm* algorithm, Executor* executor,
                                          std::uint64_t incarnation);

// A single learner with several threads that compute gradients concurrently and step shared weights
// without locks: Hogwild! (Recht et al. 2011; nn/parallel/hogwild_arena.h). Each thread reads the
// others' steps, possibly partially written, and has its own target network, which follows as the
// algorithm's does. Deterministic only with one thread. After each job the algorithm holds the
// weights and the optimizer state.
struct HogwildUpdaterOptions {
  const TrainingConfig* config = nullptr;  // learner.hogwild_threads
  const EnvSpec* env = nullptr;
  std::uint64_t incarnation = 0;
  Executor* executor = nullptr;
  Algorithm* algorithm = nullptr;  // with an ExternalOptimizer
};
// Makes such an updater. Errors: as MakeAlgorithm; kInvalidArgument: another kind of algorithm.
Result<std::unique_ptr<Updater>> MakeHogwildUpdater(const HogwildUpdaterOptions& options);

// Synchronous SGD by all-reduce with all learners present (LearnerGroup, AllReduceStep). If a
// learner fails, only its own batches are lost.
struct AllReduceUpdaterOptions {
  int learners = 1;
  std::uint64_t max_updates = 0;  // 0: no limit; applies to all learners
  // Every learner must contribute a batch to each update.
  bool all_have_batches = false;
  int parts = 1;  // this and the next two: LearnerGroup::Options
  std::optional<NcclOptions> nccl;
  std::function<Status()> go_back;
  Rendezvous* rendezvous = nullptr;  // must outlive the updater
  FleetMember* member = nullptr;
  Executor* executor = nullptr;
  Algorithm* algorithm = nullptr;
};
std::unique_ptr<Updater> MakeAllReduceUpdater(const AllReduceUpdaterOptions& options);

// Updates through parameter shards, which apply the steps: pull, compute, push (config.paramserver;
// Downpour SGD, Dean et al. 2012, with the synchronization of SyncPolicy). Each gradient is clipped
// separately, and the target follows the pulled weights. A learner without batches leaves, so that
// the shards do not wait for it.
struct ParamserverUpdaterOptions {
  const TrainingConfig* config = nullptr;
  const Module* module = nullptr;  // owner of the parameters
  Network* network = nullptr;
  FleetMember* member = nullptr;
  Executor* executor = nullptr;
  Algorithm* algorithm = nullptr;  // with an ExternalOptimizer
};
// Makes such an updater. Errors: as ShardMapFor; kInvalidArgument: another kind of algorithm.
Result<std::unique_ptr<Updater>> MakeParamserverUpdater(const ParamserverUpdaterOptions& options);

// Updates through parameter shards with a tensor-parallel model as one worker
// (learners/sync/tensor_parallel_worker.h): rank 0 pulls and pushes, the others follow its orders.
// If a rank dies, the current update is lost and all ranks rejoin; meanwhile the shards treat the
// worker like a learner without batches.
struct TensorParallelUpdaterOptions {
  ParamserverUpdaterOptions shards;          // algorithm: `replica` on rank 0, otherwise the part
  TensorParallelReplica* replica = nullptr;  // on rank 0
  TensorParallelRank place;                  // this learner's part
  const Module* part = nullptr;
  std::optional<NcclOptions> nccl;   // LearnerGroup::Options
  Rendezvous* rendezvous = nullptr;  // must outlive the updater
};
// Makes such an updater. Errors: as ShardMapFor. REQUIRES: the rendezvous waits().
Result<std::unique_ptr<Updater>> MakeTensorParallelUpdater(
    const TensorParallelUpdaterOptions& options);

}  // namespace troop
