#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/buffer.h"
#include "core/base/event_history.h"
#include "core/base/executor.h"
#include "core/base/node.h"
#include "core/config/config.h"
#include "core/metrics/metrics.h"
#include "core/storage/storage.h"
#include "core/tensor/spec.h"
#include "net/control_messages.h"
#include "net/network.h"
#include "net/rpc/issued_incarnations.h"
#include "nn/module.h"
#include "paramserver/protocol/messages.h"
#include "paramserver/replication/shard_snapshots.h"
#include "paramserver/resharding/reshard_receiver.h"
#include "paramserver/service/shard_server.h"
#include "paramserver/shard/parameter_shard.h"
#include "paramserver/shard/shard_map.h"

namespace troop {

// A parameter server process (learner.sync = "paramserver"): serves the shard with number index /
// ServersPerShard as its primary or its backup, as the coordinator's terms assign
// (PrimaryElection). A new primary starts from the state that it followed as backup, or from the
// newest intact snapshot of ShardSnapshots, or from the newest checkpoint's weights, or from a new
// run's weights; it writes its state every checkpoint.every_s and at the end. A backup restores the
// primary's state and repeats each update. A process that is not the primary answers requests with
// kUnavailable. Owner: the node's thread. Step is slow, O(n), during an update, a snapshot or a
// takeover.
class ShardNode final : public Node, public Service {
 public:
  struct Context {
    Config config;
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

  const ShardServer* server() const { return server_.get(); }  // null: not the primary
  const Metrics& metrics() const { return metrics_; }
  const ParameterShard* followed() const { return replica_.get(); }

 private:
  struct LoadJob {
    Executor::Job id = 0;
    std::uint64_t since = 0;  // the term that it is for
    Result<std::unique_ptr<ParameterShard>> shard = Internal("not run");
  };
  struct SaveJob {
    Executor::Job id = 0;
    Status status;
    std::uint64_t version = 0;
    bool final = false;
  };

  // A shard of the next map, ready to be served.
  struct Successor {
    std::uint64_t move = 0;
    std::unique_ptr<ParameterShard> shard;
    std::uint64_t lineage = 0;
  };
  struct PrepareJob {
    Executor::Job id = 0;
    std::uint64_t move = 0;
    ShardSnapshots store;
    Status status;
  };

  explicit ShardNode(Context context) : context_(std::move(context)), issued_(context_.member) {}
  Status Build();
  Result<std::unique_ptr<ParameterShard>> LoadFromCheckpoint() const;
  ParameterShard::Options OptionsFor(const ShardMap& map) const;
  Status AdoptEpoch();
  void FollowMove(Time now);
  Status StartReshardReceiver();
  Status FinishReshardReceiver();
  void CollectPrepared();
  Result<Message> Fetch(const Message& message);
  void FollowTerms();
  void BecomePrimary();
  void Serve(std::unique_ptr<ParameterShard> shard, std::uint64_t lineage, bool is_failover);
  Status ConnectBackup();
  void StepDown();
  Status Replicate(Message* message);
  Status CheckPrimary(const Origin& from, std::uint64_t term);
  Status TakeState(const ShardStateBody& head, const Buffer& piece);
  Status TakeUpdate(ShardUpdateBody* body, const std::vector<Buffer>& parts);
  void CollectLoad();
  void TickServer(Time now);
  void Save(bool final);
  void CollectSave();
  void Hold(std::uint64_t term);
  Result<std::unique_ptr<ParameterShard>> Load() const;
  void Report();

  Context context_;
  IssuedIncarnations issued_;
  std::int32_t seat_ = 0, shard_ = 0;
  std::unique_ptr<Module> module_;
  std::unique_ptr<Executor> appliers_;  // paramserver.hogwild_threads; outlives the shards
  std::optional<ShardMap> first_map_, map_, next_map_;  // first epoch; newest; resharding
  std::size_t epochs_ = 0;                              // number of epochs map_ is based on
  ParameterShard::Options options_;
  std::size_t elements_ = 0, slots_ = 0;  // of options_
  std::unique_ptr<ShardSnapshots> store_;
  std::unique_ptr<Listener> listener_;
  ShardTerm term_;               // last adopted
  std::uint64_t heard_ = 0;      // primaries of older terms are refused
  std::uint64_t connected_ = 0;  // the term whose backup the server is connected to
  std::unique_ptr<ShardServer> server_;
  std::unique_ptr<ParameterShard> replica_;
  std::uint64_t replica_term_ = 0, replica_lineage_ = 0;
  std::unique_ptr<StateAssembler> assembler_;
  std::unique_ptr<LoadJob> load_;
  std::unique_ptr<SaveJob> save_;
  std::unique_ptr<ReshardReceiver> receiver_;
  std::unique_ptr<PrepareJob> prepare_;
  std::optional<Successor> successor_;
  std::map<std::int32_t, Buffer> outgoing_;  // snapshots to hand over, by target shard
  std::uint64_t moving_ = 0;                 // the resharding that next_map_ belongs to
  std::map<std::int32_t, Origin> learners_;  // connected learners
  std::uint64_t saved_version_ = 0;
  std::optional<Time> next_save_;
  std::int64_t takeovers_ = 0, saves_ = 0, save_failures_ = 0, moved_bytes_ = 0;
  Metrics metrics_;
  bool draining_ = false, saved_final_ = false;
  Status result_;
};

}  // namespace troop
