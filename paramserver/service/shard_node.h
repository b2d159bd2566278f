#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "core/base/event_history.h"
#include "core/base/node.h"
#include "core/metrics/metrics.h"
#include "core/storage/storage.h"
#include "core/tensor/spec.h"
#include "net/control/fleet_member.h"
#include "net/control/issued_incarnations.h"
#include "net/control/shard_term.h"
#include "net/network.h"
#include "nn/module.h"
#include "paramserver/replication/shard_backup.h"
#include "paramserver/replication/shard_loader.h"
#include "paramserver/replication/shard_snapshots.h"
#include "paramserver/service/reshard_participant.h"
#include "paramserver/service/shard_layout.h"
#include "paramserver/service/shard_primary.h"
#include "paramserver/service/shard_saver.h"
#include "paramserver/service/shard_server.h"
#include "paramserver/shard/parameter_shard.h"
#include "paramserver/shard_config.h"

namespace troop {

// A parameter server process (learner.sync = "paramserver"): serves its shard as the primary
// (ShardPrimary) or follows it as the backup (ShardBackup), as the coordinator's terms assign
// (PrimaryElection), and takes part in resharding (ReshardParticipant). Adopts epochs and terms,
// chooses the state of a new primary, and dispatches messages to these parts. A new primary starts
// from the shard that it built in a resharding, or from the state that it followed as backup, or
// from the run folder (ShardLoader). A process that is not the primary answers requests with
// kUnavailable. Owner: the node's thread. Step is slow, O(n), during an update, a snapshot or a
// takeover.
class ShardNode final : public Node, public Service {
 public:
  struct Context {
    ShardConfig config;
    EnvSpec env;
    Network* network = nullptr;
    FleetMember* member = nullptr;
    Executor* executor = nullptr;  // one thread
    Storage* run = nullptr;        // the run's folder
    std::string listen;
    // Fills in the weights that a new run begins with; empty: random initialization from the seed.
    // Called in a job.
    std::function<Status(const Module&, std::span<float>)> first_weights;
    // Fills in the weights of the run's newest intact checkpoint and returns its number of updates;
    // empty: there are no checkpoints. Called in a job. Errors: kNotFound.
    std::function<Result<std::uint64_t>(std::span<float>)> checkpoint_weights;
    EventHistory* history = nullptr;
  };
  static Result<std::unique_ptr<ShardNode>> Make(Context context);

  StepStatus Step(Time now) override;
  void Drain() override { draining_ = true; }
  Status result() const override { return result_; }
  void Handle(Message message, Reply reply) override;
  Status CheckOrigin(const Origin& caller, Time now) override { return issued_.Check(caller, now); }
  void PeerChanged(const Origin& peer, PeerState state) override;

  // The served shard; null: this process is not the primary.
  const ShardServer* server() const { return primary_ ? &primary_->server() : nullptr; }
  const Metrics& metrics() const { return metrics_; }
  const ParameterShard* followed() const { return backup_.replica(); }

 private:
  ShardNode(Context context, std::unique_ptr<Module> module, std::unique_ptr<Executor> appliers,
            ShardLayout layout);
  Status AdoptEpoch();
  void FollowTerms();
  void BecomePrimary();
  void StartLoad();
  void CollectLoad();
  void Serve(ShardReplica state, bool is_failover);
  void StepDown();
  Status Replicate(const Message& message);
  // True if the coordinator's term names this process.
  bool IsPrimaryOf(const ShardTerm& term) const;
  bool IsBackupOf(const ShardTerm& term) const;
  bool EndRun();
  ShardServer* served() { return primary_ ? &primary_->server() : nullptr; }
  void Report();

  Context context_;
  IssuedIncarnations issued_;
  std::unique_ptr<Module> module_;
  std::unique_ptr<Executor> appliers_;  // paramserver.hogwild_threads; outlives the shards
  ShardLayout layout_;
  std::unique_ptr<Listener> listener_;         // outlives primary_, whose end answers callers
  std::unique_ptr<ShardSnapshots> snapshots_;  // of the adopted epoch; null: before the first
  ShardTerm term_;                             // last adopted
  ShardLoader loader_;
  ShardSaver saver_;
  ShardBackup backup_;
  ReshardParticipant reshard_;
  std::unique_ptr<ShardPrimary> primary_;    // null: not the primary
  std::map<std::int32_t, Origin> learners_;  // connected learners, for a later primary
  std::int64_t takeovers_ = 0;
  Metrics metrics_;
  bool draining_ = false;
  Status result_;
};

}  // namespace troop
