#pragma once

// Utilities for tests of whole parameter shards: slots that run ShardNodes, learners and readers,
// and a coordinator that only tracks members, in one thread over a simulated network.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/executor.h"
#include "core/storage/memory_storage.h"
#include "net/transport/sim_network.h"
#include "net/wire/codec.h"
#include "nn/models/model.h"
#include "paramserver/resharding/reshard_controller.h"
#include "paramserver/service/options_from_config.h"
#include "paramserver/service/shard_node.h"
#include "paramserver/service/shard_resolver.h"
#include "paramserver/service/shard_subscriber.h"
#include "tests/paramserver/shard_testing.h"

namespace troop {

inline EnvSpec SmallEnv() {
  return {.id = "Small",
          .observation = {DType::kF32, {4}},
          .action = {.kind = ActionSpec::Kind::kDiscrete, .count = 2}};
}

inline ShardConfig ShardConfigFor(int shards, bool backup, SyncMode mode = SyncMode::kBsp) {
  ShardConfig config;
  config.paramserver.shards = shards;
  config.paramserver.backup = backup;
  config.paramserver.mode = mode;
  config.optimizer.type = OptimizerType::kSgd;
  config.snapshot_every_s = 0;
  return config;
}

class ShardFleet : public Service {
 public:
  struct Slot {
    std::unique_ptr<Network> network;
    std::unique_ptr<FleetMember> member;
    std::unique_ptr<InlineExecutor> executor;
    std::unique_ptr<ShardNode> node;
    std::uint64_t incarnation = 0, move = 0;
    bool frozen = false;
  };
  struct Learner {
    std::int32_t index = 0;
    std::unique_ptr<Network> network;
    std::unique_ptr<FleetMember> member;
    std::unique_ptr<ShardResolver> resolver;
    std::unique_ptr<ShardClient> client;
    Floats value;
    std::uint64_t version = 0, weights_version = 0, left_for = 0;
    bool leaving = false;
    bool stays = false;  // it does not leave for a move
  };
  struct Reader {
    std::unique_ptr<Network> network;
    std::unique_ptr<FleetMember> member;
    std::unique_ptr<ShardSubscriber> weights;
    std::vector<WeightSnapshot> got;
  };

  explicit ShardFleet(const ShardConfig& config)
      : config_(config),
        module_(*MakeNetwork(config.model, SmallEnv())),
        map_(*ShardMapFor(config.paramserver, *module_)),
        terms_(TermOptions()),
        mover_(MoverOptions(), FirstEpochs(), &terms_) {
    network_ = hub_->MakeNetwork();
    listener_ = *network_->Listen("inproc://coordinator", this);
    for (std::int32_t i = 0; i < terms_.slots(); ++i) Start(i);
  }
  ~ShardFleet() override = default;

  void Start(std::int32_t index) {
    Slot& slot = slots_[index];
    slot.incarnation = ++numbers_;
    slot.network = hub_->MakeNetwork();
    slot.executor = std::make_unique<InlineExecutor>();
    slot.member = Member(slot.network.get(), Role::kParamServer, index, slot.incarnation);
    auto node = ShardNode::Make({.config = config_,
                                 .env = SmallEnv(),
                                 .network = slot.network.get(),
                                 .member = slot.member.get(),
                                 .executor = slot.executor.get(),
                                 .run = storage_.get(),
                                 .listen = "inproc://slot-" + std::to_string(index),
                                 .checkpoint_weights = checkpoint_weights_});
    ASSERT_TRUE(node.ok()) << node.status().ToString();
    slot.node = std::move(*node);
  }
  // Kills the process like kill -9; the coordinator is notified.
  void Kill(std::int32_t index) {
    Slot& slot = slots_[index];
    terms_.RecordExit(index, slot.incarnation);
    peers_.erase(PeerName(Role::kParamServer, index));
    slot = {};
  }
  // While frozen, the process does not run; afterwards it continues unaware of the pause.
  void Freeze(std::int32_t index, bool frozen) { slots_[index].frozen = frozen; }

  Learner* AddLearner(std::int32_t index) {
    Learner& learner = *learners_.emplace_back(std::make_unique<Learner>());
    const std::uint64_t incarnation = ++numbers_;
    learner.index = index;
    learner.network = hub_->MakeNetwork();
    learner.member = Member(learner.network.get(), Role::kLearner, index, incarnation);
    learner.resolver = std::make_unique<ShardResolver>(
        learner.network.get(), learner.member.get(), map_,
        Origin{.role = Role::kLearner, .index = index, .incarnation = incarnation});
    return &learner;
  }
  Reader* AddReader() {
    Reader& reader = *readers_.emplace_back(std::make_unique<Reader>());
    reader.network = hub_->MakeNetwork();
    reader.member =
        Member(reader.network.get(), Role::kActor, std::int32_t(readers_.size()), ++numbers_);
    return &reader;
  }

  // Begins a move; processes of shards that come are started.
  Status BeginMove(std::int32_t shards) {
    TROOP_RETURN_IF_ERROR(mover_.Begin(now_, shards, ++numbers_));
    moved_.reset();
    for (std::int32_t i = 0; i < mover_.servers(); ++i) {
      if (!slots_[i].node) Start(i);
    }
    return Status::Ok();
  }
  // Starts the next coordinator of the run: from the state on disk, with no member alive.
  void Resume() {
    const auto epochs = *ReadShardEpochs(storage_.get());
    if (!epochs.empty()) {
      auto options = TermOptions();
      options.shards = epochs.back().shards;
      std::destroy_at(&terms_), std::construct_at(&terms_, options);
      std::destroy_at(&mover_), std::construct_at(&mover_, MoverOptions(), epochs, &terms_);
    }
    for (std::int32_t i = 0; i < terms_.slots(); ++i) Start(i);
  }
  Status Move(std::int32_t shards) {
    TROOP_RETURN_IF_ERROR(BeginMove(shards));
    if (!Await([&] { return moved_.has_value(); }, 60000)) return Internal("it never ends");
    return *moved_;
  }
  // Advances the current move by one step.
  void Turn() {
    ReshardController::LiveProcesses present;
    for (const auto& [index, slot] : slots_) {
      if (!peers_.contains(PeerName(Role::kParamServer, index))) continue;
      present.servers.push_back({index, slot.incarnation, slot.move});
    }
    for (const auto& learner : learners_) {
      present.learners.push_back({learner->index, 0, learner->member->report().shard_move});
    }
    if (const auto over = mover_.Update(now_, present)) moved_ = *over;
  }

  void Pump(int rounds = 1, Duration step = Milliseconds(1)) {
    for (int i = 0; i < rounds; ++i) {
      now_ += step;
      network_->Pump(now_);
      terms_.Update(now_);
      Turn();
      for (auto& [index, slot] : slots_) {
        if (!slot.node || slot.frozen) continue;
        slot.network->Pump(now_);
        const troop::StepStatus turn = slot.node->Step(now_);
        if (turn.what != troop::StepStatus::kDone) continue;
        done_[index] = slot.node->result();
        if (index >= mover_.servers()) Kill(index);
      }
      for (const auto& learner : learners_) PumpLearner(learner.get());
      for (const auto& reader : readers_) PumpReader(reader.get());
    }
  }
  // Pumps until it is so; false: not within `rounds`.
  template <class Condition>
  bool Await(Condition condition, int rounds = 4000, Duration step = Milliseconds(1)) {
    for (int i = 0; i < rounds && !condition(); ++i) Pump(1, step);
    return condition();
  }
  bool Pull(Learner* learner) {
    if (!Await([&] { return learner->client != nullptr; })) return false;
    if (!learner->client->RequestPull(now_).ok()) return false;
    return Await([&] { return !learner->client->pulling() || !learner->client->error().ok(); }) &&
           learner->client->error().ok();
  }
  void Push(Learner* learner, std::uint64_t step) {
    ASSERT_TRUE(Await([&] { return learner->client->CanPush(); }));
    const Status status =
        learner->client->Push(now_, GradientAt(learner->value, learner->index, step), 0.01f, 1);
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
  // Returns the slot of this shard's primary, or -1 if there is no primary.
  std::int32_t PrimaryOf(std::int32_t shard) {
    for (auto& [index, slot] : slots_) {
      if (slot.node && slot.node->server() && index / terms_.slots_per_shard() == shard) {
        return index;
      }
    }
    return -1;
  }
  bool InSync(std::int32_t shard) {
    const std::int32_t primary = PrimaryOf(shard);
    if (primary < 0 || terms_.terms()[std::size_t(shard)].backup < 0) return false;
    const BackupClient* backup = slots_[primary].node->server()->backup();
    return backup != nullptr && backup->has_all();
  }
  Floats FirstOfRun() const {
    Floats value(std::size_t(map_.parameters()));
    InitParameters(*module_, std::uint64_t(config_.seed), value);
    return value;
  }
  // Returns the weights after the learners' pushes of these steps, applied synchronously.
  Floats Plain(int learners, std::uint64_t steps) const {
    auto optimizer = *MakeOptimizer(config_.optimizer, map_.parameters());
    Floats value = FirstOfRun();
    for (std::uint64_t t = 0; t < steps; ++t) {
      Floats sum(value.size());
      for (int i = 0; i < learners; ++i) {
        const Floats g = GradientAt(value, i, t);
        for (std::size_t p = 0; p < sum.size(); ++p) sum[p] += g[p];
      }
      optimizer->Step(sum, 1 / float(learners), 0.01f, value);
    }
    return value;
  }

  void Handle(Message message, Reply reply) override {
    const auto beat = DecodeBody<HeartbeatRequest>(message.body);
    ASSERT_TRUE(beat.ok());
    const Origin& from = message.origin;
    if (from.role == Role::kParamServer) {
      Slot& slot = slots_[from.index];
      if (slot.incarnation != from.incarnation) return reply.Fail(Aborted("replaced"));
      peers_[PeerName(from.role, from.index)] = {beat->endpoint, from.incarnation};
      slot.move = beat->shard_move;
      terms_.RecordHeartbeat(now_, from.index, from.incarnation, beat->shard_term);
    }
    HeartbeatReply body{.phase = phase_,
                        .stop = from.role == Role::kParamServer && from.index >= mover_.servers(),
                        .peers = peers_,
                        .shards = terms_.terms(),
                        .shard_epochs = mover_.epochs(),
                        .shard_move = mover_.move(),
                        .issued = std::vector<std::uint64_t>(int(Role::kTool), numbers_)};
    reply.Send({.type = MessageType::kMemberHeartbeatReply, .body = EncodeBody(body)});
  }

  ShardConfig config_;
  std::unique_ptr<SimHub> hub_ = MakeSimHub();
  std::unique_ptr<Storage> storage_ = MakeMemoryStorage();
  std::function<Result<std::uint64_t>(std::span<float>)> checkpoint_weights_;  // of slots to come
  std::unique_ptr<Module> module_;
  ShardMap map_;
  std::uint64_t numbers_ = 0;
  PrimaryElection terms_;
  ReshardController mover_;
  std::optional<Status> moved_;  // how the last move ended
  Status disk_;                  // what writing the epochs down comes to
  Phase phase_ = Phase::kRunning;
  std::map<std::string, PeerInfo> peers_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<Listener> listener_;
  std::map<std::int32_t, Slot> slots_;
  std::map<std::int32_t, Status> done_;
  std::vector<std::unique_ptr<Learner>> learners_;
  std::vector<std::unique_ptr<Reader>> readers_;
  Time now_{Seconds(1)};

 private:
  ReshardController::Options MoverOptions() {
    return {.commit = [this](const std::vector<ShardEpoch>& epochs) {
      TROOP_RETURN_IF_ERROR(disk_);
      return WriteShardEpochs(storage_.get(), epochs);
    }};
  }
  std::vector<ShardEpoch> FirstEpochs() { return {{std::int32_t(config_.paramserver.shards), 0}}; }
  PrimaryElection::Options TermOptions() {
    PrimaryElection::Options options = PrimaryElectionOptionsFor(config_);
    options.next_term = [this] { return ++numbers_; };
    return options;
  }
  std::unique_ptr<FleetMember> Member(Network* network, Role role, std::int32_t index,
                                      std::uint64_t incarnation) {
    auto channel =
        network->Connect("inproc://coordinator",
                         {.origin = {.role = role, .index = index, .incarnation = incarnation}});
    return std::make_unique<FleetMember>(
        std::move(*channel),
        FleetMember::Options{.role = role, .index = index, .incarnation = incarnation});
  }
  void PumpLearner(Learner* learner) {
    learner->network->Pump(now_);
    learner->member->Poll(now_, metrics_);
    if (!learner->client) {
      auto channels = learner->resolver->Connect();
      ASSERT_TRUE(channels.ok());
      if (channels->empty()) return;
      learner->client =
          std::make_unique<ShardClient>(learner->resolver->map(), std::move(*channels),
                                        ShardClientOptionsFor(config_.paramserver));
    }
    ASSERT_TRUE(learner->resolver->Update(learner->client.get()).ok());
    learner->client->Poll(now_);
    const auto pulled = learner->client->TakePull();
    LeaveForMove(learner, pulled.has_value());
    if (pulled && pulled->changed) {
      learner->version = pulled->version;
      learner->weights_version = pulled->weights_version;
      learner->value.assign(pulled->value.begin(), pulled->value.end());
    }
  }
  // Leaves for a move, like a learner between two batches.
  void LeaveForMove(Learner* learner, bool pulled) {
    if (pulled && std::exchange(learner->leaving, false)) {
      learner->member->report().shard_move = learner->left_for;
      learner->member->SendHeartbeatSoon();
    }
    const ShardMove& move = learner->member->shard_move();
    const bool open = learner->client->pulling() || learner->client->pushes_open() > 0;
    if (learner->stays || move.number == 0 || move.stage == ShardMoveStage::kGathering || open)
      return;
    if (std::exchange(learner->left_for, move.number) == move.number) return;
    learner->leaving = learner->client->RequestLeave(now_).ok();
  }
  void PumpReader(Reader* reader) {
    reader->network->Pump(now_);
    reader->member->Poll(now_, metrics_);
    if (!reader->weights) {
      const FleetMember::Options& own = reader->member->options();
      auto resolver = std::make_unique<ShardResolver>(
          reader->network.get(), reader->member.get(), map_,
          Origin{.role = own.role, .index = own.index, .incarnation = own.incarnation});
      auto channels = *resolver->Connect();
      if (channels.empty()) return;
      reader->weights = std::make_unique<ShardSubscriber>(resolver->map(), std::move(channels),
                                                          HasSynchronousShards(config_.paramserver),
                                                          std::move(resolver));
    }
    reader->weights->Request(now_);
    if (auto snapshot = reader->weights->Poll(now_)) reader->got.push_back(std::move(*snapshot));
  }

  Metrics metrics_;
};

}  // namespace troop
