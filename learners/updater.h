#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "collective/nccl.h"
#include "core/node.h"
#include "learners/algorithm.h"
#include "learners/learner_lobby.h"
#include "net/control.h"

namespace troop {

// A few updates, one after the other: what they are given, and what they leave.
struct UpdateJob {
  std::vector<SampleBatch> batches;
  double progress = 0;       // share of the run that is over before the first update
  double progress_step = 0;  // that one update adds
  bool publish = false;      // a copy of the weights is wanted
  bool want_state = false;   // of parts: the whole state (Algorithm::WholeState)
  std::size_t taken = 0;     // batches, at first: of those that a group lost nothing is left

  // [batches][B]; empty: that update was skipped, or the batch was no more than experience.
  std::vector<std::vector<float>> priority;
  LossReport last;
  Status status;   // of the last update that was skipped
  Status weights;  // not ok: CheckNumbers' answer
  std::uint64_t updates = 0;
  // Of the weights that its first update changed, where they may be others' (of a group, of the
  // shards): updates before that were adopted, not made. nullopt: those of the job before.
  std::optional<std::uint64_t> before;
  Buffer value;  // [P], where wanted, and if all are finite
  bool state_gathered = false;
  UpdateCost cost;
  double busy_s = 0;  // from its first update's begin to its last one's end; 0: not measured

  // Before that update, from 0, of those that are made of the job.
  double ProgressAt(std::size_t update) const { return progress + double(update) * progress_step; }
};

// Where a learner's updates are made: by itself, or in step with others. Owner: the node's thread;
// the algorithm is touched in jobs of the executor, which run in their order.
class Updater {
 public:
  virtual ~Updater() = default;
  // Once a step of the node. Errors: what no retry mends.
  virtual Status Poll(Time now) = 0;
  // When to call it again, beside what wakes the node; kForever: no need.
  virtual Time next_poll() const { return kForever; }
  virtual bool CanTake() const = 0;
  virtual std::size_t batches_max() const = 0;            // of a job
  virtual void Take(std::unique_ptr<UpdateJob> job) = 0;  // REQUIRES: CanTake
  // The oldest that is done; nullptr: none.
  virtual std::unique_ptr<UpdateJob> Collect() = 0;
  // Jobs that were not collected yet, or another one that changes the algorithm.
  virtual bool busy() const = 0;

  // exhausted: this learner has no more batches. Whether no more updates will be made.
  virtual bool Over(bool exhausted) { return exhausted; }
  // A job of the caller's is about to change the algorithm's state: others are to get the same.
  virtual void StateChanges() {}
  // The learner ends; who waits for it learns so.
  virtual void Leave() {}
  // The one of the learners that publishes and checkpoints.
  virtual bool leads() const { return true; }
  // Weights go to actors by the learner that leads; false: the shards have them.
  virtual bool publishes() const { return true; }
  // Grows with each learner that leads; WeightsVersion has it.
  virtual std::uint64_t generation() const = 0;
  // Batches behind each update, for schedules.
  virtual int learners() const { return 1; }
};

// For those who write one. Looks at the weights after a job's updates, and copies them where that
// is wanted. Within a job of the executor.
void FinishJob(Algorithm& algorithm, UpdateJob* job);

// Alone.
std::unique_ptr<Updater> MakeLocalUpdater(Algorithm* algorithm, Executor* executor,
                                          std::uint64_t incarnation);

// Alone, with several threads that compute gradients at once and step the same weights without
// locks: Hogwild! (Recht et al. 2011; nn/shared_arena.h). Each thread reads what the others have
// stepped to, half of a step perhaps, and has a target of its own, which follows as the
// algorithm's does. Not the same bytes twice, but with one thread. The algorithm has the weights
// and the optimizer's state behind each job.
struct HogwildUpdaterOptions {
  const Config* config = nullptr;  // learner.hogwild_threads
  const EnvSpec* env = nullptr;
  std::uint64_t incarnation = 0;
  Executor* executor = nullptr;
  Algorithm* algorithm = nullptr;
};
// Errors: as MakeAlgorithm.
Result<std::unique_ptr<Updater>> MakeHogwildUpdater(const HogwildUpdaterOptions& options);

// In step with the other learners of the run, by all-reduce: synchronous SGD over all that are
// there (LearnerGroup, GroupRound). Nothing is lost with one of them but its own batches.
struct GroupUpdaterOptions {
  int learners = 1;
  std::uint64_t max_updates = 0;  // 0: no limit; nobody makes more
  // An update without a batch of one's own is none: nobody takes part without.
  bool all_have_batches = false;
  int parts = 1;                    // LearnerGroup::Options
  std::optional<NcclOptions> nccl;  // the same
  std::function<Status()> go_back;  // the same
  LearnerLobby* lobby = nullptr;    // outlives it
  FleetMember* member = nullptr;
  Executor* executor = nullptr;
  Algorithm* algorithm = nullptr;
};
std::unique_ptr<Updater> MakeGroupUpdater(const GroupUpdaterOptions& options);

// With parameter shards, which step: pulls, computes, pushes (config.paramserver; Downpour SGD,
// Dean et al. 2012, and what SyncPolicy makes of it). The clip is each gradient's own, the target
// that of what was pulled. A learner without batches leaves, so that nobody waits for it.
struct ShardUpdaterOptions {
  const Config* config = nullptr;
  const Module* module = nullptr;  // whose parameters they are
  Network* network = nullptr;
  FleetMember* member = nullptr;
  Executor* executor = nullptr;
  Algorithm* algorithm = nullptr;
};
// Errors: as ShardMapFor.
Result<std::unique_ptr<Updater>> MakeShardUpdater(const ShardUpdaterOptions& options);

// The same of a model in parts, which are one worker (learners/partitioned_replica.h): rank 0
// pulls and pushes, the others do as it says. When one dies the update under way is lost, all meet
// again, and the shards wait no longer for them than for a learner without batches.
struct ReplicaUpdaterOptions {
  ShardUpdaterOptions shards;  // algorithm: of rank 0 a PartitionedReplica
  TensorPlace place;           // this learner's part
  const Module* part = nullptr;
  std::optional<NcclOptions> nccl;  // LearnerGroup::Options
  LearnerLobby* lobby = nullptr;    // outlives it
};
// Errors: as ShardMapFor. REQUIRES: the lobby waits().
Result<std::unique_ptr<Updater>> MakeReplicaUpdater(const ReplicaUpdaterOptions& options);

}  // namespace troop
