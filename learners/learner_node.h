#pragma once

#include <memory>
#include <optional>
#include <string>

#include "core/base/event_history.h"
#include "core/base/node.h"
#include "core/storage/storage.h"
#include "learners/node/batch_source.h"
#include "learners/node/checkpoint_schedule.h"
#include "learners/node/checkpoint_writer.h"
#include "learners/node/learner_model.h"
#include "learners/node/rollback_control.h"
#include "learners/node/state_gathering.h"
#include "learners/node/updater_factory.h"
#include "learners/node/weight_publication.h"
#include "learners/rl/beta_schedule.h"
#include "learners/sync/topology.h"
#include "learners/sync/updater.h"
#include "learners/training_config.h"
#include "net/control/fleet_member.h"

namespace troop {

// The learner role: samples batches ahead, updates in jobs of the executor, writes priorities back,
// publishes weights and writes checkpoints. When the run drains, it uses the remaining batches of
// the replay, publishes and checkpoints the final weights, and reports its end.
// Updates with a NaN or infinite value are skipped; such weights are neither published nor
// checkpointed, and the learner rolls back to the last good ones (RollbackRule). If that does not
// help, it ends with kCancelled; if the device has failed, with kUnavailable, and the restarted
// learner resumes.
// The node connects its parts (learners/node) and counts updates: BatchSource has the batches,
// Updater makes the updates by the run's Topology, WeightPublication, CheckpointSchedule,
// CheckpointWriter, StateGathering and RollbackControl have one duty each.
// Owner: the node's thread. One job at a time uses `algorithm_` (jobs of one executor thread run in
// order); the node uses it only while no job is pending.
class LearnerNode final : public Node {
 public:
  struct Context {
    TrainingConfig config;
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
  LearnerNode(Context context, LearnerModel model,
              std::shared_ptr<const Demonstrations> demonstrations);
  Status Resume();
  Status MakeUpdater(int learners);
  // The steps of one turn: connect, poll the parts, collect results, submit updates. An error that
  // ends the learner is kept in result_.
  Status Connect();
  void PollParts(Time now);
  void JoinOthers();
  void SubmitUpdates();
  std::unique_ptr<UpdateJob> NextJob();
  void CollectUpdates();
  void CollectCheckpoint();
  void CollectRollback();
  void PollCheckpoint(Time now);
  StepStatus Idle(Time until = kForever) const;
  // The end: true if no more updates are submitted; the final checkpoint, weights and heartbeat.
  bool Finishing(Time now);
  StepStatus Finish(Time now);
  StepStatus FinishPublication();
  StepStatus FinishHeartbeats(Time now);
  // Counts of updates: made or taken from others, with the reports that follow from them.
  void SeeUpdates(std::uint64_t updates);
  void AdoptUpdates(std::uint64_t updates);
  void ReportMetrics(const UpdateJob& job);
  // Publication of a given value, or of the algorithm's.
  void Publish(Buffer value);
  void PublishNow();
  void StartRollback(const Status& why);
  void StartCheckpoint(Time now, bool final);
  void Note(HistoryEvent::What what, std::uint64_t version) const;
  std::uint64_t Version() const;
  // True if this learner publishes weights and writes checkpoints: the leader of its group, or the
  // learner that was alone until now, while the first group is being formed.
  bool Leads() const { return updater_->is_leader() || sole_state_; }
  // Statistics by which rewards are normalized: the run's, or before those are received the ones of
  // the checkpoint.
  const RewardStatistics& Rewards() const;
  void NormalizeRewards(SampleBatch* batch) const;
  // Share of the run, [0, 1], that is complete after `updates` updates.
  double Progress(std::uint64_t updates) const;
  ReplaySampler* sampler() const { return source_->sampler(); }

  const Context context_;
  Metrics metrics_;
  const std::unique_ptr<BatchSource> source_;
  LearnerModel model_;
  Algorithm* const algorithm_;  // model_'s
  UpdaterFactory updaters_;
  Topology topology_;
  std::unique_ptr<Updater> updater_;
  WeightPublication publication_;
  CheckpointSchedule schedule_;
  CheckpointWriter writer_;
  StateGathering gathering_;
  RollbackControl rollback_;
  const BetaSchedule beta_{context_.config};
  std::uint64_t updates_ = 0;        // completed, as seen by the node
  std::uint64_t led_ = 0;            // made since the start while this learner was the leader
  std::uint64_t submitted_ = 0;      // updates in all jobs so far
  std::size_t batches_waiting_ = 0;  // batches in pending jobs
  bool exhausted_ = false;           // the source is exhausted, or max_updates is reached
  bool draining_ = false;
  bool sole_state_ = false;              // no other learner has the state of the run yet
  std::optional<Time> last_beat_until_;  // deadline of its reply
  Status result_;
};

}  // namespace troop
