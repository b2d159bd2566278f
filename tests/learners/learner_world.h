#pragma once

// A learner with real servers, for tests that play its coordinator and its actors.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "core/base/executor.h"
#include "core/base/philox.h"
#include "learners/learner_node.h"
#include "learners/sync/rendezvous.h"
#include "nn/models/model.h"
#include "paramserver/weights/weights_server.h"
#include "replay/service/options_from_config.h"
#include "replay/service/server.h"
#include "tests/testing/coordinator_fake.h"

namespace troop {

inline TrainingConfig WorldConfig() {
  TrainingConfig config;
  LayerConfig layer;
  layer.type = LayerType::kLinear;
  layer.units = 8;
  config.network.layers = {layer};
  config.learner.batch_size = 8;
  config.run.total_steps = 200;
  config.learner.publish_every_updates = 5;
  config.replay.min_items = 50;
  config.replay.samples_per_insert = 8;  // an update a step
  config.checkpoint.every_s = 1000;
  return config;
}

inline EnvSpec LearnerEnv() {
  EnvSpec env;
  env.id = "test";
  env.observation = {DType::kF32, {3}};
  env.action.count = 2;
  return env;
}

// A disk that refuses its next writes of checkpoints.
class FullDisk final : public Storage {
 public:
  Status WriteAtomic(std::string_view path, std::span<const std::byte> bytes) override {
    const bool checkpoint = path.starts_with("checkpoints/") || path.starts_with("best");
    if (checkpoint && refusals > 0 && accepted-- <= 0) {
      --refusals;
      return ResourceExhausted("{}: the disk is full", path);
    }
    return disk_->WriteAtomic(path, bytes);
  }
  Result<std::unique_ptr<AppendFile>> OpenAppend(std::string_view path) override {
    return disk_->OpenAppend(path);
  }
  Result<Buffer> Read(std::string_view path, std::size_t bytes_max) override {
    return disk_->Read(path, bytes_max);
  }
  Result<std::vector<std::string>> List(std::string_view folder) override {
    return disk_->List(folder);
  }
  bool Exists(std::string_view path) override { return disk_->Exists(path); }
  Status Rename(std::string_view from, std::string_view to) override {
    return disk_->Rename(from, to);
  }
  Status Remove(std::string_view path) override { return disk_->Remove(path); }
  Result<std::unique_ptr<StorageLock>> Lock(std::string_view path,
                                            std::string_view holder) override {
    return disk_->Lock(path, holder);
  }
  using Storage::WriteAtomic;
  int refusals = 0;
  int accepted = 0;  // writes before the first refusal

 private:
  std::unique_ptr<Storage> disk_ = MakeMemoryStorage();
};

// Its jobs are not done at once, as those of a thread aren't.
class LateExecutor final : public Executor {
 public:
  Result<Job> Submit(std::string_view, std::function<void()> work) override {
    work();
    asked_[next_] = 0;
    return next_++;
  }
  bool TakeDone(Job job) override {
    if (++asked_.at(job) < 4) return false;
    asked_.erase(job);
    return true;
  }

 private:
  Job next_ = 1;
  std::map<Job, int> asked_;
};

// A learner with a real replay and parameter server; the test plays coordinator and actor.
class LearnerWorld {
 public:
  explicit LearnerWorld(TrainingConfig config, std::uint64_t incarnation = 4,
                        std::unique_ptr<Executor> executor = std::make_unique<InlineExecutor>())
      : config_(std::move(config)), coordinator_(hub_.get()), executor_(std::move(executor)) {
    network_ = hub_->MakeNetwork();
    servers_ = hub_->MakeNetwork();
    StartReplay();
    StartParameterServer(2);
    StartLearner(incarnation, "");
  }

  void StartReplay() {
    const TrainingConfig& c = config_;
    const auto replay = ReplayOptionsFor({.seed = c.seed,
                                          .replay = c.replay,
                                          .n_step = c.n_step,
                                          .frame_stack = c.frame_stack,
                                          .batch_size = c.learner.batch_size},
                                         {env_.observation, env_.action.tensor()});
    replay_ = std::move(*MakeReplayServer(*replay));
    replay_listener_ = *servers_->Listen("inproc://replay", replay_.get());
    coordinator_.AddPeer(Role::kReplay, "inproc://replay", 1);
  }
  void StartParameterServer(std::uint64_t incarnation) {
    weights_listener_.reset();
    const auto module = MakeNetwork(ModelSetupOf(config_), env_);
    parameters_ = MakeWeightsServer({.parameters = ParameterCount(**module)});
    weights_listener_ = *servers_->Listen("inproc://weights", parameters_.get());
    coordinator_.AddPeer(Role::kParamServer, "inproc://weights", incarnation);
  }
  void StartLearner(std::uint64_t incarnation, const std::string& checkpoint) {
    node_.reset();
    member_ = coordinator_.Member(network_.get(), Role::kLearner, incarnation);
    auto node = LearnerNode::Make({.config = config_,
                                   .env = env_,
                                   .network = network_.get(),
                                   .member = member_.get(),
                                   .executor = executor_.get(),
                                   .run = &run_,
                                   .resume_checkpoint = checkpoint,
                                   .rendezvous = rendezvous_.get()});
    EXPECT_TRUE(node.ok()) << node.status().ToString();
    node_ = std::move(*node);
  }

  // `count` one-step items with random content, of which each `bad_every`th has a gradient
  // that is not finite.
  void Insert(std::uint32_t count, std::size_t bad_every = 0) {
    if (!writer_) {
      writer_ =
          MakeReplayWriter(*network_->Connect("inproc://replay",
                                              {.origin = {.role = Role::kActor, .incarnation = 1}}),
                           {env_.observation, env_.action.tensor()}, {.window = 1000});
    }
    const std::uint32_t frames = count + 1;
    Chunk chunk{.stream = 1, .first_frame = next_frame_, .frames = frames};
    MutableBuffer observation(frames * 12), reward(frames * 4), discount(frames * 4);
    for (float& x : observation.as<float>()) x = float(rng_.Normal());
    for (std::size_t i = bad_every; bad_every > 0 && i <= count; i += bad_every) {
      for (float& x : observation.as<float>().subspan((i - 1) * 3, 3)) x = 1e38f;
    }
    for (float& x : reward.as<float>()) x = float(rng_.Normal()) * reward_factor;
    if (loud_) std::ranges::fill(observation.as<float>(), 1e38f);
    for (float& x : discount.as<float>()) x = 1;
    chunk.observation = std::move(observation).Freeze();
    chunk.reward = std::move(reward).Freeze();
    chunk.discount = std::move(discount).Freeze();
    chunk.action = MutableBuffer::Zeros(frames * 4).Freeze();
    chunk.final = MutableBuffer::Zeros(frames).Freeze();
    std::vector<Item> items;
    for (std::uint32_t i = 0; i < count; ++i) {
      if (bad_every > 1 && (i + 2) % bad_every == 0) continue;  // only its target would be huge
      items.push_back({.stream = 1,
                       .first_frame = next_frame_ + i,
                       .length = 1,
                       .priority = loud_ ? 1e30f : 1.0f});
    }
    next_frame_ += frames;
    ASSERT_TRUE(writer_->Push({chunk}, items).ok());
  }

  // One item with observations that are too large, and the priority that an actor gives it.
  void InsertLoud() {
    loud_ = true;
    Insert(1);
    loud_ = false;
  }

  bool Rounds(int count) {
    for (int i = 0; i < count; ++i) {
      now_ += Milliseconds(1);
      if (writer_) writer_->Poll(now_);
      network_->Pump(now_);
      if (!silent_) coordinator_.Pump(now_);
      servers_->Pump(now_);
      if (node_->Step(now_).what == StepStatus::kDone) return false;
    }
    return true;
  }
  double ReplayMetric(const char* name) const {
    Metrics metrics;
    replay_->Report(&metrics);
    return metrics.Get(name);
  }
  double Updates() const {
    const auto it = coordinator_.told.metrics.find("learner/updates");
    return it == coordinator_.told.metrics.end() ? 0 : it->second.value;
  }
  // The metric that the learner last reported; 0 if it reported none.
  double Told(const char* name) const {
    const auto it = coordinator_.told.metrics.find(name);
    return it == coordinator_.told.metrics.end() ? 0 : it->second.value;
  }
  std::uint64_t published() const { return parameters_->version(); }
  // Returns the weights that an actor would pull now.
  WeightSnapshot Published() {
    const auto network = hub_->MakeNetwork();
    const auto subscriber = MakeWeightSubscriber(
        *network->Connect("inproc://weights", {.origin = {.role = Role::kTool}}));
    subscriber->Request(now_);
    for (int i = 0; i < 1000; ++i) {
      network->Pump(now_);
      servers_->Pump(now_);
      if (const auto snapshot = subscriber->Poll(now_)) return *snapshot;
    }
    ADD_FAILURE() << "no weights";
    return {};
  }
  CoordinatorFake& coordinator() { return coordinator_; }
  void silence() { silent_ = true; }  // the coordinator answers no more
  LearnerNode& node() { return *node_; }
  FullDisk* run() { return &run_; }
  float reward_factor = 1;  // of all rewards inserted from now on

 private:
  TrainingConfig config_;
  const EnvSpec env_ = LearnerEnv();
  std::unique_ptr<SimHub> hub_ = MakeSimHub();
  SimRendezvousFactory groups_;
  const std::unique_ptr<Rendezvous> rendezvous_ = groups_.Make();
  CoordinatorFake coordinator_;
  std::unique_ptr<Network> network_, servers_;
  std::unique_ptr<ReplayServer> replay_;
  std::unique_ptr<WeightsServer> parameters_;
  std::unique_ptr<Listener> replay_listener_, weights_listener_;
  FullDisk run_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<ReplayWriter> writer_;
  std::unique_ptr<FleetMember> member_;
  std::unique_ptr<LearnerNode> node_;
  Rng rng_{{}};
  bool loud_ = false, silent_ = false;
  std::uint64_t next_frame_ = 0;
  Time now_{Seconds(1)};
};

}  // namespace troop
