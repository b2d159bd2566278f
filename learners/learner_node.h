#pragma once

#include <memory>
#include <optional>

#include "core/config.h"
#include "core/history.h"
#include "core/node.h"
#include "core/storage.h"
#include "learners/algorithm.h"
#include "learners/beta_schedule.h"
#include "learners/checkpoint.h"
#include "learners/quarantine.h"
#include "learners/rollback.h"
#include "learners/updater.h"
#include "net/control.h"
#include "paramserver/client.h"
#include "replay/client.h"

namespace troop {

// Makes weights: draws batches ahead, updates in jobs of the executor, writes priorities back,
// publishes weights, checkpoints. When the run drains it uses up what the replay still gives,
// publishes and checkpoints the final weights, and says so. Updates with a number that is NaN or
// infinite are skipped, such weights are neither published nor checkpointed, and the learner goes
// back to the last good ones (RollbackRule); where that does not help it ends with kCancelled, and
// with kUnavailable where the device that computes has failed: the next one resumes.
// Owner: the node's thread; `algorithm_` is touched by one job at a time (jobs of one executor
// thread run in their order), and by the node only while no job is under way. How updates are made,
// alone or with other learners, is the Updater's.
class LearnerNode final : public Node {
 public:
  struct Context {
    Config config;
    EnvSpec env;
    Network* network = nullptr;
    FleetMember* member = nullptr;
    Executor* executor = nullptr;   // one thread: updates run in the order they were submitted
    Storage* run = nullptr;         // the run's folder
    std::string resume_checkpoint;  // empty: fresh
    // Where it meets the other learners; nullptr: it makes its own, between processes.
    LearnerLobby* lobby = nullptr;
    std::string group_listen = "127.0.0.1:0";  // there, where it makes its own
    std::string group_secret;                  // 32 bytes that the others have too; empty: none
    History* history = nullptr;
  };
  static Result<std::unique_ptr<LearnerNode>> Make(Context context);
  Turn Step(Time now) override;
  void Drain() override { draining_ = true; }
  Status result() const override { return result_; }

 private:
  struct CheckpointJob {
    Executor::Job id = 0;
    Result<std::string> path = std::string();
    Status weights;  // not ok: a number is not finite, and nothing was written
    std::uint64_t updates = 0;
    bool final = false;
  };
  struct RollbackJob {
    Executor::Job id = 0;
    Status why;
    Result<std::string> to = std::string();  // in words
    std::uint64_t updates = 0;
    Buffer value;
  };

  explicit LearnerNode(Context context) : context_(std::move(context)) {}
  Status Build();
  Status Connect();
  Status ConnectReplay(ChannelOptions options);
  Status AddShards(const ChannelOptions& options);
  Status MakeReplica();
  Status MakeUpdater();
  std::optional<NcclOptions> Nccl() const;
  void JoinOthers();
  Turn Idle(Time until = kForever) const;
  void CollectUpdates();
  void SeeUpdates(std::uint64_t updates);
  void AdoptUpdates(std::uint64_t updates);
  void CountUpdates(const UpdateJob& job);
  void StartRollback(const Status& why);
  void CollectRollback();
  Turn Finish(Time now);
  void Publish(Buffer value);
  void PublishNow();
  void PublishAgain();
  std::uint64_t Version() const;
  void SubmitUpdates();
  Time CheckpointAfter(Time now) const;
  void StartCheckpoint(Time now, bool final);
  void CollectCheckpoint();
  void Note(HistoryEvent::What what, std::uint64_t version) const;
  void ReportMetrics(const UpdateJob& job);
  double Progress(std::uint64_t updates) const;
  bool EndsWithTheSteps() const;
  Status GoBackToCheckpoint();
  std::int64_t StepsAt(std::uint64_t updates) const;  // behind so many updates; thread safe where
                                                      // supervised
  bool Finishing(Time now);
  bool AwaitsState(Time now);
  bool sharded() const { return context_.config.learner.sync == "paramserver"; }
  bool grouped() const { return learners_ > 1 && !sharded(); }
  bool alone() const { return !grouped() && !sharded(); }
  // One part of a model that is one worker of the parameter shards.
  bool replicated() const { return sharded() && tensor_.ranks > 1; }
  bool supervised() const { return IsSupervised(context_.config); }

  Context context_;
  Metrics metrics_;
  TensorPlace tensor_;              // the part of the model that this learner has
  std::unique_ptr<Module> module_;  // the whole
  std::unique_ptr<Module> part_;    // of replicated()
  std::unique_ptr<Algorithm> algorithm_;
  std::unique_ptr<ReplaySampler> sampler_;
  std::int32_t shards_ = 0;    // of the replay, that the sampler knows
  std::int64_t learners_ = 1;  // of the run; more than one: a group was made, also for one alone
  std::unique_ptr<WeightPublisher> publisher_;
  std::unique_ptr<LearnerLobby> lobby_;
  std::unique_ptr<Updater> updater_;
  std::unique_ptr<CheckpointJob> checkpoint_;
  std::unique_ptr<RollbackJob> rollback_;
  RollbackRule rule_;
  Quarantine quarantine_;
  const BetaSchedule beta_{context_.config};
  std::uint64_t updates_ = 0;        // done, as far as the node knows
  std::uint64_t led_ = 0;            // made since the start, while this learner led
  std::uint64_t submitted_ = 0;      // updates in all jobs up to now
  std::size_t batches_waiting_ = 0;  // in jobs
  std::uint64_t publish_at_ = 0;     // `submitted_` when the last publication was ordered
  std::uint64_t published_ = 0;      // version of the last weights handed to the publisher
  std::uint64_t published_to_ = 0;   // incarnation of the parameter server that got them
  std::uint64_t skipped_ = 0;        // updates of which a number was not finite
  std::optional<Time> next_checkpoint_;
  bool state_wanted_ = false;  // of a model in parts: for a checkpoint
  bool state_came_ = false;
  std::optional<Time> stopped_;  // since when a stop waits for the state
  bool state_since_stop_ = false;
  bool exhausted_ = false;               // the replay gives no more, or max_updates is reached
  bool final_checkpoint_ = false;        // written, or given up
  std::optional<Time> last_beat_until_;  // its answer is awaited
  Status final_failure_;                 // of the last try to write it
  bool draining_ = false;
  Status result_;
};

}  // namespace troop
