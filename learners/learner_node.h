#pragma once

#include <memory>
#include <optional>

#include "core/base/event_history.h"
#include "core/base/node.h"
#include "core/config/config.h"
#include "core/storage/storage.h"
#include "learners/algorithm.h"
#include "learners/checkpoint.h"
#include "learners/rl/beta_schedule.h"
#include "learners/rl/quarantine.h"
#include "learners/rollback.h"
#include "learners/sync/updater.h"
#include "net/control_messages.h"
#include "paramserver/weights/weights_client.h"
#include "replay/service/client.h"

namespace troop {

// The learner role: samples batches ahead, updates in jobs of the executor, writes priorities back,
// publishes weights and writes checkpoints. When the run drains, it uses the remaining batches of
// the replay, publishes and checkpoints the final weights, and reports its end.
// Updates with a NaN or infinite value are skipped; such weights are neither published nor
// checkpointed, and the learner rolls back to the last good ones (RollbackRule). If that does not
// help, it ends with kCancelled; if the device has failed, with kUnavailable, and the restarted
// learner resumes.
// Owner: the node's thread. One job at a time uses `algorithm_` (jobs of one executor thread run in
// order); the node uses it only while no job is pending. The Updater decides how updates are made,
// alone or with other learners.
class LearnerNode final : public Node {
 public:
  struct Context {
    Config config;
    EnvSpec env;
    Network* network = nullptr;
    FleetMember* member = nullptr;
    Executor* executor = nullptr;   // one thread: updates run in submission order
    Storage* run = nullptr;         // the run folder
    std::string resume_checkpoint;  // empty: a new run
    // Rendezvous of the learners; nullptr: the node creates one, between processes.
    Rendezvous* rendezvous = nullptr;
    std::string group_listen = "127.0.0.1:0";  // listen address of the rendezvous that it creates
    std::string group_secret;                  // 32 bytes, shared by all learners; empty: no secret
    EventHistory* history = nullptr;
  };
  static Result<std::unique_ptr<LearnerNode>> Make(Context context);
  StepStatus Step(Time now) override;
  void Drain() override { draining_ = true; }
  Status result() const override { return result_; }

 private:
  // A checkpoint that a job writes, from submission to collection.
  struct CheckpointJob {
    Executor::Job id = 0;
    Result<std::string> path = std::string();
    Status weights;  // not ok: a value is not finite, and nothing was written
    std::uint64_t updates = 0;
    bool final = false;
  };
  // A rollback that a job performs.
  struct RollbackJob {
    Executor::Job id = 0;
    Status why;
    Result<std::string> to = std::string();  // human-readable
    std::uint64_t updates = 0;
    Buffer value;
  };

  explicit LearnerNode(Context context) : context_(std::move(context)) {}
  // Set-up: network, algorithm, replay connections and updater.
  Status Build();
  Status Connect();
  Status ConnectReplay(ChannelOptions options);
  Status AddShards(const ChannelOptions& options);
  Status MakeReplica();
  Status MakeUpdater();
  std::optional<NcclOptions> Nccl() const;
  void JoinOthers();
  StepStatus Idle(Time until = kForever) const;
  // After update jobs: write priorities, count, publish, and roll back if needed.
  void CollectUpdates();
  void SeeUpdates(std::uint64_t updates);
  void AdoptUpdates(std::uint64_t updates);
  void CountUpdates(const UpdateJob& job);
  void StartRollback(const Status& why);
  void CollectRollback();
  StepStatus Finish(Time now);
  // Publication of weights to actors: a given value, the algorithm's, or the last one to a
  // restarted parameter server.
  void Publish(Buffer value);
  void PublishNow();
  void PublishAgain();
  std::uint64_t Version() const;
  void SubmitUpdates();
  // Checkpoint steps: decide when, start the job, collect its result.
  Time CheckpointAfter(Time now) const;
  void StartCheckpoint(Time now, bool final);
  void CollectCheckpoint();
  void Note(HistoryEvent::What what, std::uint64_t version) const;
  void ReportMetrics(const UpdateJob& job);
  // Share of the run, [0, 1], that is complete after `updates` updates.
  double Progress(std::uint64_t updates) const;
  bool EndsWithTheSteps() const;
  Status GoBackToCheckpoint();
  // Agent steps after `updates` updates. Thread-safe in supervised mode.
  std::int64_t StepsAt(std::uint64_t updates) const;
  bool Finishing(Time now);
  bool AwaitsState(Time now);
  // Exactly one of the three is true: how this learner exchanges gradients.
  bool sharded() const { return context_.config.learner.sync == "paramserver"; }
  bool grouped() const { return learners_ > 1 && !sharded(); }
  bool alone() const { return !grouped() && !sharded(); }
  // True if this learner is a tensor-parallel part of one parameter-server worker.
  bool replicated() const { return sharded() && tensor_.ranks > 1; }
  bool supervised() const { return IsSupervised(context_.config); }

  Context context_;
  Metrics metrics_;
  TensorParallelRank tensor_;       // the part of the model that this learner holds
  std::unique_ptr<Module> module_;  // the whole model
  std::unique_ptr<Module> part_;    // if replicated()
  std::unique_ptr<Algorithm> algorithm_;
  TensorParallelReplica* replica_ = nullptr;  // algorithm_, on rank 0 if replicated()
  std::unique_ptr<ReplaySampler> sampler_;
  std::int32_t shards_ = 0;    // replay shards that the sampler uses
  std::int64_t learners_ = 1;  // of the run; a group is formed if it was ever above 1
  std::unique_ptr<WeightPublisher> publisher_;
  std::unique_ptr<Rendezvous> rendezvous_;
  std::unique_ptr<Updater> updater_;
  std::unique_ptr<CheckpointJob> checkpoint_;
  std::unique_ptr<RollbackJob> rollback_;
  RollbackRule rule_;
  Quarantine quarantine_;
  const BetaSchedule beta_{context_.config};
  std::uint64_t updates_ = 0;        // completed, as seen by the node
  std::uint64_t led_ = 0;            // made since the start while this learner was the leader
  std::uint64_t submitted_ = 0;      // updates in all jobs so far
  std::size_t batches_waiting_ = 0;  // batches in pending jobs
  std::uint64_t publish_at_ = 0;     // `submitted_` at the last publication request
  std::uint64_t published_ = 0;      // version of the last weights passed to the publisher
  std::uint64_t published_to_ = 0;   // incarnation of the parameter server that received them
  std::uint64_t skipped_ = 0;        // updates skipped because of a non-finite value
  std::optional<Time> next_checkpoint_;
  bool state_wanted_ = false;  // with tensor parallelism: for a checkpoint
  bool state_came_ = false;
  std::optional<Time> stopped_;  // start of a stop's wait for the state
  bool state_since_stop_ = false;
  bool exhausted_ = false;               // the replay is exhausted, or max_updates is reached
  bool final_checkpoint_ = false;        // written, or abandoned
  std::optional<Time> last_beat_until_;  // deadline of its reply
  Status final_failure_;                 // of the last attempt to write it
  bool draining_ = false;
  Status result_;
};

}  // namespace troop
