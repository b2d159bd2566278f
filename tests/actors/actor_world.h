#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "actors/actor_node.h"
#include "actors/inference/inference_server.h"
#include "core/base/executor.h"
#include "nn/models/model.h"
#include "paramserver/weights/weights_server.h"
#include "replay/replay_setup.h"
#include "replay/service/options_from_config.h"
#include "replay/service/server.h"
#include "tests/testing/coordinator_fake.h"

namespace troop {

// An actor with a real replay and parameter server; the test plays the coordinator.
class ActorWorld {
 public:
  explicit ActorWorld(ActingConfig config, std::uint64_t incarnation = 3,
                      double samples_per_insert = 0, Storage* episodes = nullptr)
      : config_(std::move(config)), coordinator_(hub_.get()) {
    network_ = hub_->MakeNetwork();
    servers_ = hub_->MakeNetwork();
    const auto env = MakeEnvironment(config_.env.id, EnvOptionsFor(config_.env, config_.serial));
    spec_ = (*env)->spec();
    config_.replay.samples_per_insert = samples_per_insert;
    const auto replay = ReplayOptionsFor(Setup(), TrajectoryFor(Setup(), spec_));
    replay_ = std::move(*MakeReplayServer(*replay));
    const auto module = MakeNetwork(config_.model, spec_);
    weights_.resize(std::size_t(ParameterCount(**module)));
    InitParameters(**module, 1, weights_);
    parameters_ = MakeWeightsServer({.parameters = std::int64_t(weights_.size())});
    replay_listener_ = *servers_->Listen("inproc://replay", replay_.get());
    second_ = std::move(*MakeReplayServer(*replay));
    second_listener_ = *servers_->Listen("inproc://replay-1", second_.get());
    weights_listener_ = *servers_->Listen("inproc://weights", parameters_.get());
    coordinator_.AddPeer(Role::kReplay, "inproc://replay", 1);
    coordinator_.AddPeer(Role::kParamServer, "inproc://weights", 2);
    if (InferenceServersOf(config_) > 0) StartInference();
    member_ = coordinator_.Member(network_.get(), Role::kActor, incarnation);
    const auto connect = [this](const EnvSpec&) -> Result<std::unique_ptr<WeightSubscriber>> {
      const std::string endpoint = member_->Endpoint(Role::kParamServer, 0);
      if (endpoint.empty()) return std::unique_ptr<WeightSubscriber>();
      TROOP_ASSIGN_OR_RETURN(
          auto channel,
          network_->Connect(endpoint, {.origin = {.role = Role::kActor,
                                                  .incarnation = member_->options().incarnation}}));
      return MakeWeightSubscriber(std::move(channel));
    };
    auto node = ActorNode::Make(config_, {.network = network_.get(),
                                          .member = member_.get(),
                                          .connect_weights = connect,
                                          .episodes = episodes});
    EXPECT_TRUE(node.ok()) << node.status().ToString();
    node_ = std::move(*node);
  }

  // Starts the inference server, if the config asks for one.
  void StartInference() {
    const auto connect = [this]() -> Result<std::unique_ptr<WeightSubscriber>> {
      TROOP_ASSIGN_OR_RETURN(
          auto channel, network_->Connect("inproc://weights", {.origin = {.role = Role::kInference,
                                                                          .incarnation = 1}}));
      return MakeWeightSubscriber(std::move(channel));
    };
    inference_ = std::move(*MakeInferenceServer(config_, spec_, &executor_, connect));
    inference_listener_ = *servers_->Listen("inproc://inference", inference_.get());
    coordinator_.AddPeer(Role::kInference, "inproc://inference", 1);
  }

  // The network's outputs for observations [n, ...], with the published weights. A recurrent
  // network needs sequences.
  Tensor Forward(const ConstTensor& observation, const Sequences* sequences = nullptr) const {
    const auto network = *MakeNetwork(config_.model, spec_);
    const TensorSpec in = observation.spec();
    const Plan plan = *network->MakePlan({&in, 1});
    Tensor out(DType::kF32, plan.out[0].shape);
    MutableBuffer workspace(plan.workspace_bytes);
    network->Forward({.value = weights_, .workspace = workspace.bytes(), .sequences = sequences},
                     {&observation, 1}, {&out, 1}, {});
    return out;
  }

  // The settings of the replay.
  ReplaySetup Setup() const {
    return {.seed = config_.seed,
            .replay = config_.replay,
            .n_step = config_.actor.n_step,
            .unroll_length = config_.actor.unroll_length,
            .numbers_per_step =
                NumbersPerStep(config_.model.algorithm, config_.value_clip, config_.synchronous),
            .state_columns = StateColumns(config_.model.network.layers),
            .burn_in = config_.actor.burn_in,
            .frame_stack = config_.env.frame_stack};
  }

  // Zeros: the greedy action is the first.
  void PublishZeros() {
    std::ranges::fill(weights_, 0.0f);
    PublishWeights(1);
  }
  // Returns batches sampled uniformly from the replay.
  std::vector<SampleBatch> Draw(std::int64_t batch_size = ReplaySetup().batch_size) {
    ReplaySetup setup = Setup();
    setup.batch_size = batch_size;
    const TrajectorySpec trajectory = TrajectoryFor(setup, spec_);
    const auto sampler = MakeReplaySampler(
        *network_->Connect("inproc://replay", {.origin = {.role = Role::kLearner}}), trajectory,
        SamplerOptionsFor(setup, trajectory));
    std::vector<SampleBatch> batches;
    // At most one batch per round; a queue may have many small ones.
    for (int i = 0; i < (batch_size == 1 ? 200 : 20); ++i) {
      sampler->Poll(now_);
      while (network_->Pump(now_) || servers_->Pump(now_)) {
      }
      sampler->Poll(now_);
      auto batch = sampler->Next();
      if (batch.ok() && batch->has_value()) batches.push_back(std::move(**batch));
    }
    EXPECT_FALSE(batches.empty());
    return batches;
  }
  std::set<std::int32_t> Actions() {
    std::set<std::int32_t> actions;
    for (const SampleBatch& batch : Draw()) {
      const auto taken = batch.action.as<std::int32_t>();
      actions.insert(taken.begin(), taken.end());
    }
    return actions;
  }

  // True if batches sampled uniformly from the replay contain finite values only.
  bool ObservationsAreFinite() {
    for (const SampleBatch& batch : Draw()) {
      for (const Tensor* t : {&batch.observation, &batch.next_observation, &batch.reward}) {
        for (const float x : t->as<float>()) {
          if (!std::isfinite(x)) return false;
        }
      }
    }
    return true;
  }
  void PublishFilled(std::uint64_t version, float value) {
    std::ranges::fill(weights_, value);
    PublishWeights(version);
  }
  void PublishWeights(std::uint64_t version) {
    if (!publisher_) {
      publisher_ = MakeWeightPublisher(*network_->Connect(
          "inproc://weights", {.origin = {.role = Role::kLearner, .incarnation = 1}}));
    }
    publisher_->Publish({version, Buffer::Copy(std::as_bytes(std::span<const float>(weights_)))});
  }

  // Rounds of virtual time; false when the node is done.
  bool Rounds(int count) {
    for (int i = 0; i < count; ++i) {
      now_ += Milliseconds(1);
      network_->Pump(now_);
      coordinator_.Pump(now_);
      servers_->Pump(now_);
      if (publisher_) publisher_->Poll(now_);
      if (inference_) inference_->Tick(now_);
      if (node_->Step(now_).what == StepStatus::kDone) return false;
    }
    return true;
  }
  // Grants all requested steps, up to `total`.
  void GrantUpTo(std::int64_t total) {
    coordinator_.on_beat = [total](const HeartbeatRequest& told, HeartbeatReply* reply) {
      reply->steps_granted = std::max(reply->steps_granted, std::min(told.steps_wanted, total));
      reply->steps_over = reply->steps_granted >= total;
    };
  }
  double Metric(const char* name) const {
    Metrics metrics;
    replay_->Report(&metrics);
    return metrics.Get(name);
  }
  double SecondMetric(const char* name) const {
    Metrics metrics;
    second_->Report(&metrics);
    return metrics.Get(name);
  }
  // So many shards take items from now on.
  void UseShards(std::int32_t shards, std::uint64_t epoch) {
    coordinator_.reply.peers[PeerName(Role::kReplay, 1)] = {"inproc://replay-1", 1};
    coordinator_.reply.fleet = {.epoch = epoch, .learners = 1, .replay = shards};
  }
  // The metric that the actor last reported; 0 if it reported none.
  double Told(const char* name) const {
    const auto it = coordinator_.told.metrics.find(name);
    return it == coordinator_.told.metrics.end() ? 0 : it->second.value;
  }
  const EnvSpec& spec() const { return spec_; }
  const std::vector<float>& weights() const { return weights_; }
  CoordinatorFake& coordinator() { return coordinator_; }
  ActorNode& node() { return *node_; }
  Network* servers() { return servers_.get(); }

 private:
  ActingConfig config_;
  EnvSpec spec_;
  std::unique_ptr<SimHub> hub_ = MakeSimHub();
  CoordinatorFake coordinator_;
  std::unique_ptr<Network> network_, servers_;
  std::unique_ptr<ReplayServer> replay_, second_;
  std::unique_ptr<WeightsServer> parameters_;
  InlineExecutor executor_;
  std::unique_ptr<InferenceServer> inference_;
  std::unique_ptr<Listener> replay_listener_, second_listener_, weights_listener_;
  std::unique_ptr<Listener> inference_listener_;
  std::vector<float> weights_;
  std::unique_ptr<WeightPublisher> publisher_;
  std::unique_ptr<FleetMember> member_;
  std::unique_ptr<ActorNode> node_;
  Time now_{Seconds(1)};
};

inline ActingConfig Catch() {
  ActingConfig config;
  config.env.id = "Catch-v0";
  config.actor.envs = 4;
  config.actor.insert_batch_size = 20;
  config.replay.capacity_items = 10000;
  return config;
}

}  // namespace troop
