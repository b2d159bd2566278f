// tidy: long file, because all tests of a learner share its world
#include "learners/learner_node.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/executor.h"
#include "core/base/failpoint.h"
#include "core/base/philox.h"
#include "kernels/elementwise/is_finite.h"
#include "nn/models/model.h"
#include "paramserver/weights/weights_server.h"
#include "replay/service/options_from_config.h"
#include "replay/service/server.h"
#include "tests/testing/coordinator_fake.h"

namespace troop {
namespace {

constexpr std::int64_t kBatch = 8;

Config SmallConfig() {
  Config config;
  LayerConfig layer;
  layer.type = "linear";
  layer.units = 8;
  config.network.layers = {layer};
  config.learner.batch_size = kBatch;
  config.run.total_steps = 200;
  config.learner.publish_every_updates = 5;
  config.replay.min_items = 50;
  config.replay.samples_per_insert = kBatch;  // an update a step
  config.checkpoint.every_s = 1000;
  return config;
}

EnvSpec SmallEnv() {
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
    if (path.starts_with("checkpoints/") && refusals > 0) {
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
  explicit LearnerWorld(Config config, std::uint64_t incarnation = 4,
                        std::unique_ptr<Executor> executor = std::make_unique<InlineExecutor>())
      : config_(std::move(config)), coordinator_(hub_.get()), executor_(std::move(executor)) {
    network_ = hub_->MakeNetwork();
    servers_ = hub_->MakeNetwork();
    StartReplay();
    StartParameterServer(2);
    StartLearner(incarnation, "");
  }

  void StartReplay() {
    const Config& c = config_;
    const auto replay = ReplayOptionsFor(c, {env_.observation, env_.action.tensor()});
    replay_ = std::move(*MakeReplayServer(*replay));
    replay_listener_ = *servers_->Listen("inproc://replay", replay_.get());
    coordinator_.AddPeer(Role::kReplay, "inproc://replay", 1);
  }
  void StartParameterServer(std::uint64_t incarnation) {
    weights_listener_.reset();
    const auto module = MakeNetwork(config_, env_);
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
                                   .resume_checkpoint = checkpoint});
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
    for (float& x : reward.as<float>()) x = float(rng_.Normal());
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

 private:
  Config config_;
  const EnvSpec env_ = SmallEnv();
  std::unique_ptr<SimHub> hub_ = MakeSimHub();
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

TEST(LearnerNodeTest, PublishesInitialWeightsBeforeAnyExperience) {
  LearnerWorld world(SmallConfig());
  ASSERT_TRUE(world.Rounds(300));
  EXPECT_EQ(world.published(), WeightsVersion(4, 0));
  EXPECT_EQ(world.Updates(), 0);
}

TEST(LearnerNodeTest, FollowsRateLimiterAndUpdatesPriorities) {
  LearnerWorld world(SmallConfig());
  ASSERT_TRUE(world.Rounds(300));
  for (int i = 0; i < 10; ++i) {
    world.Insert(20);
    ASSERT_TRUE(world.Rounds(300));
  }
  // 200 items, those after the first 50 give an update each; the band is a tenth of 50.
  EXPECT_NEAR(world.Updates(), 150, 10);
  EXPECT_EQ(world.ReplayMetric("replay/samples"), world.ReplayMetric("replay/updates"));
  EXPECT_EQ(world.ReplayMetric("replay/stale_updates"), 0);
  EXPECT_GE(UpdatesOf(world.published()) + 5 + 32, std::uint64_t(world.Updates()));
}

TEST(LearnerNodeTest, DrainUsesRemainingSamplesAndCheckpoints) {
  LearnerWorld world(SmallConfig());
  world.Insert(200);
  ASSERT_TRUE(world.Rounds(300));
  world.coordinator().reply.phase = Phase::kDraining;
  world.coordinator().reply.steps_total_done = 200;
  ASSERT_TRUE(world.Rounds(1000));
  EXPECT_TRUE(world.coordinator().told.finished);
  const std::string path = world.coordinator().told.checkpoint;
  const auto checkpoint = ReadCheckpoint(world.run(), path);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
  EXPECT_EQ(double(checkpoint->updates), world.Updates());
  EXPECT_EQ(checkpoint->steps, 200);
  EXPECT_EQ(world.published(), WeightsVersion(4, checkpoint->updates));  // the final weights
  world.coordinator().reply.phase = Phase::kDone;
  EXPECT_FALSE(world.Rounds(1000));
  EXPECT_TRUE(world.node().result().ok());
}

// Regression: the second of two synchronous learners to end lost the counts of its last update. The
// reply to an earlier heartbeat announced the end of the run, and the learner left without another
// heartbeat.
TEST(LearnerNodeTest, ReportsLastUpdatesBeforeExit) {
  LearnerWorld world(SmallConfig());
  world.Insert(200);
  ASSERT_TRUE(world.Rounds(300));
  world.coordinator().reply.phase = Phase::kDraining;
  ASSERT_TRUE(world.Rounds(1000));
  const int before = world.coordinator().beats;
  world.coordinator().reply.phase = Phase::kDone;
  EXPECT_FALSE(world.Rounds(1000));
  EXPECT_EQ(world.coordinator().beats, before + 2) << "the one that was answered, and another";
}

TEST(LearnerNodeTest, EndsWithoutCoordinator) {
  LearnerWorld world(SmallConfig());
  world.Insert(200);
  ASSERT_TRUE(world.Rounds(300));
  world.coordinator().reply.phase = Phase::kDraining;
  ASSERT_TRUE(world.Rounds(1000));
  world.coordinator().reply.phase = Phase::kDone;
  const int before = world.coordinator().beats;
  for (int i = 0; world.coordinator().beats == before && i < 1000; ++i)
    ASSERT_TRUE(world.Rounds(1));
  world.silence();
  EXPECT_TRUE(world.Rounds(1000));
  EXPECT_FALSE(world.Rounds(5000));
  EXPECT_TRUE(world.node().result().ok()) << world.node().result().message();
}

TEST(LearnerNodeTest, DoesExactlyMaxUpdates) {
  Config config = SmallConfig();
  config.run.max_updates = 37;
  LearnerWorld world(config);
  world.Insert(200);
  ASSERT_TRUE(world.Rounds(1000));
  EXPECT_EQ(world.Updates(), 37);
  EXPECT_TRUE(world.coordinator().told.finished);
  EXPECT_EQ(world.coordinator().told.checkpoint_updates, 37u);
}

// Importance weights: Schaul et al. 2016, from β0 at the first update to 1 at the last one.
TEST(LearnerNodeTest, BetaRisesOverRunAndContinuesAfterResume) {
  Config config = SmallConfig();
  config.run.max_updates = 101;
  config.learner.prefetch = 1;
  config.learner.batches_per_request = 1;
  config.replay.beta = 0.4;
  config.replay.final_beta = 1;
  LearnerWorld world(config);
  const auto expected = [](double update) { return 0.4 + 0.6 * (update - 1) / 100; };
  world.Insert(60);
  ASSERT_TRUE(world.Rounds(300));
  const double before = world.Updates();
  ASSERT_GT(before, 1);
  ASSERT_LT(before, 100);
  EXPECT_NEAR(world.Told("learner/beta"), expected(before), 1e-9);
  world.coordinator().reply.stop = true;
  ASSERT_FALSE(world.Rounds(1000));
  const std::string checkpoint = world.coordinator().told.checkpoint;
  world.coordinator().reply.stop = false;
  world.StartLearner(5, checkpoint);
  world.Insert(10);
  ASSERT_TRUE(world.Rounds(300));
  const double version = world.Told("learner/version");
  ASSERT_GT(version, before);
  ASSERT_LT(version, 101);
  EXPECT_NEAR(world.Told("learner/beta"), expected(version), 1e-9);
  world.Insert(200);
  ASSERT_TRUE(world.Rounds(1000));
  ASSERT_EQ(world.Told("learner/version"), 101);
  EXPECT_EQ(world.Told("learner/beta"), 1);
}

// All updates of a job had the rate behind its last one: 0, where the rate falls to 0 and the run
// has few updates.
TEST(LearnerNodeTest, SingleUpdateUsesFullLearningRate) {
  Config config = SmallConfig();
  config.run.max_updates = 1;
  config.learner.max_grad_norm = 1e-3;  // less than the gradient's: a step is that times the rate
  config.optimizer.type = "sgd";
  config.optimizer.momentum = 0;
  config.optimizer.learning_rate = 0.5;
  config.optimizer.final_lr_fraction = 0;
  LearnerWorld world(config);
  const WeightSnapshot first = (world.Rounds(10), world.Published());
  world.Insert(200);
  ASSERT_TRUE(world.Rounds(1000));
  const WeightSnapshot last = world.Published();
  ASSERT_EQ(UpdatesOf(last.version), 1u);
  double squares = 0;
  for (std::size_t i = 0; i < first.value.as<float>().size(); ++i) {
    squares += std::pow(double(last.value.as<float>()[i]) - double(first.value.as<float>()[i]), 2);
  }
  EXPECT_NEAR(std::sqrt(squares), 5e-4, 1e-6);
}

// 0 wrote one after the other, and a huge number overflowed into the past.
TEST(LearnerNodeTest, WritesOnlyFinalCheckpointWithoutInterval) {
  for (const double every_s : {0.0, 1e12}) {
    Config config = SmallConfig();
    config.checkpoint.every_s = every_s;
    LearnerWorld world(config);
    world.Insert(200);
    ASSERT_TRUE(world.Rounds(1000));
    EXPECT_GT(world.Updates(), 0);
    EXPECT_EQ(world.coordinator().told.checkpoint, "");
    world.coordinator().reply.stop = true;
    EXPECT_FALSE(world.Rounds(1000));
    EXPECT_EQ(double(world.coordinator().told.checkpoint_updates), world.Updates());
    EXPECT_TRUE(world.coordinator().told.checkpoint_final);
  }
}

TEST(LearnerNodeTest, RetriesFinalCheckpoint) {
  LearnerWorld world(SmallConfig());
  world.Insert(200);
  ASSERT_TRUE(world.Rounds(300));
  world.run()->refusals = 1;
  world.coordinator().reply.stop = true;
  EXPECT_FALSE(world.Rounds(1000));
  EXPECT_TRUE(world.node().result().ok());
  EXPECT_TRUE(world.coordinator().told.checkpoint_final);
  EXPECT_TRUE(NewestCheckpoint(world.run()).ok());
}

// It counted as written.
TEST(LearnerNodeTest, FailsOrderlyWithoutFinalCheckpoint) {
  LearnerWorld world(SmallConfig());
  world.Insert(200);
  ASSERT_TRUE(world.Rounds(300));
  world.run()->refusals = 1000;
  world.coordinator().reply.phase = Phase::kDraining;
  ASSERT_TRUE(world.Rounds(1000));
  EXPECT_TRUE(world.coordinator().told.finished);  // the last weights are there to be judged
  EXPECT_EQ(double(UpdatesOf(world.published())), world.Updates());
  world.coordinator().reply.phase = Phase::kDone;
  EXPECT_FALSE(world.Rounds(1000));
  const std::string why = world.node().result().message();
  for (const char* part : {"final checkpoint", "the disk is full"}) {
    EXPECT_NE(why.find(part), std::string::npos) << why;
  }
  EXPECT_EQ(world.coordinator().told.checkpoint, "");
  EXPECT_FALSE(world.coordinator().told.checkpoint_final);
}

// They were counted over its whole life: a long run with a rare bad number ended. All bad, it goes
// back three times, which does not help: the replay is what is bad.
TEST(LearnerNodeTest, FailsOnlyAfterConsecutiveBadUpdates) {
  Config config = SmallConfig();
  config.replay.samples_per_insert = 0;  // no limit
  config.learner.loss = "mse";
  for (const bool all_bad : {false, true}) {
    LearnerWorld world(config);
    world.Insert(200, all_bad ? 1 : 25);  // else 1 - (24/25)^8 = 28 % of the batches are bad
    EXPECT_EQ(world.Rounds(2000), !all_bad);
    EXPECT_LE(world.Told("learner/quarantined_items"), Quarantine::kItemsMax);
    EXPECT_EQ(world.node().result().code(), all_bad ? Code::kCancelled : Code::kOk);
    if (!all_bad) {
      EXPECT_GT(world.Told("learner/quarantined_items"), 4);
      EXPECT_EQ(world.Told("learner/rollbacks"), 0);
      continue;
    }
    const std::string why = world.node().result().message();
    for (const char* part : {"after 3 rollbacks", "the gradient of layers.0.weight[",
                             "is 1e+38, observation[0] of item", "optimizer.learning_rate"}) {
      EXPECT_NE(why.find(part), std::string::npos) << why;
    }
  }
}

// One such item among 200: its priority outweighed all others and was never renewed, so that every
// batch was skipped, and after three roll-backs the run ended.
TEST(LearnerNodeTest, DropsItemWithHugeValueWithoutRollback) {
  Config config = SmallConfig();
  config.learner.loss = "mse";
  config.run.max_updates = 150;
  LearnerWorld world(config);
  world.Insert(100);
  world.InsertLoud();
  world.Insert(100);
  ASSERT_TRUE(world.Rounds(1000));
  EXPECT_EQ(world.Told("learner/quarantined_items"), 1);
  EXPECT_GE(world.Told("learner/skipped_updates"), 1);
  EXPECT_LT(world.Told("learner/skipped_updates"), 60);  // what was asked for ahead
  EXPECT_GT(world.Updates(), 80);
  EXPECT_EQ(world.Told("learner/rollbacks"), 0);
}

// Arms a failpoint for one test.
class Armed {
 public:
  explicit Armed(const std::string& order) {
    setenv("TROOP_FAILPOINT", order.c_str(), 1);
    ReloadFailpoint();
  }
  ~Armed() {
    unsetenv("TROOP_FAILPOINT");
    ReloadFailpoint();
  }
};

TEST(LearnerNodeTest, SkipsOneUpdateAfterOneBadGradient) {
  const Armed armed("learner.gradient:20");
  Config config = SmallConfig();
  config.run.max_updates = 60;
  LearnerWorld world(config);
  world.Insert(200);
  ASSERT_TRUE(world.Rounds(1000));
  EXPECT_EQ(world.Told("learner/skipped_updates"), 1);
  EXPECT_EQ(world.Updates(), 59);
  EXPECT_EQ(world.Told("learner/rollbacks"), 0);
}

// All numbers of all checkpoints.
bool CheckpointsAreFinite(Storage* run) {
  const std::vector<std::string> names = *run->List("checkpoints");
  for (const std::string& name : names) {
    const auto read = ReadCheckpoint(run, "checkpoints/" + name.substr(0, name.size() - 1));
    EXPECT_TRUE(read.ok()) << read.status().ToString();
    for (const auto& [tensor, values] : read->state.tensors) {
      if (!AllFinite(values.as<float>())) return false;
    }
  }
  return true;
}

// Found while it works, at a publication, or when it is about to write its last checkpoint.
TEST(LearnerNodeTest, RollsBackBadWeightWithoutPublishingIt) {
  for (const std::int64_t at : {1, 7, 20, 59, 60}) {
    for (const bool checkpoints : {false, true}) {
      const Armed armed(fmt::format("learner.weight:{}", at));
      Config config = SmallConfig();
      config.run.max_updates = 60;
      if (checkpoints) config.checkpoint.every_s = 0.001;
      LearnerWorld world(config, 4, std::make_unique<LateExecutor>());
      std::uint64_t version = 0;
      ASSERT_TRUE(world.Rounds(5));
      for (int i = 0; i < 1000; ++i) {
        if (i < 200 && i % 10 == 0) world.Insert(10);
        ASSERT_TRUE(world.Rounds(1));
        const WeightSnapshot seen = world.Published();
        ASSERT_GE(seen.version, version);
        version = seen.version;
        ASSERT_TRUE(AllFinite(seen.value.as<float>())) << at << " " << UpdatesOf(version);
        if (i % 10 == 0) {
          ASSERT_TRUE(CheckpointsAreFinite(world.run())) << at;
        }
      }
      EXPECT_TRUE(world.coordinator().told.finished);
      EXPECT_EQ(world.Told("learner/rollbacks"), 1);
      const std::uint64_t updates = world.coordinator().told.checkpoint_updates;
      EXPECT_EQ(version, WeightsVersion(4, updates));
      EXPECT_GE(updates, 28u);  // those of the jobs under way, twice 16, are lost
    }
  }
}

// A checkpoint with an infinite weight, as an older version could write it.
TEST(LearnerNodeTest, SkipsNonFiniteCheckpointOnResume) {
  Config config = SmallConfig();
  config.checkpoint.every_s = 0.05;
  LearnerWorld world(config);
  world.Insert(100);
  ASSERT_TRUE(world.Rounds(400));
  const std::string good = world.coordinator().told.checkpoint;
  auto checkpoint = *ReadCheckpoint(world.run(), good);
  Tensor spoilt(DType::kF32, checkpoint.state.tensors.at("value").shape());
  spoilt.as<float>()[3] = std::numeric_limits<float>::infinity();
  checkpoint.state.tensors["value"] = spoilt;
  checkpoint.updates += 1000;
  checkpoint.state.metadata["updates"] = std::to_string(checkpoint.updates);
  const auto module = MakeNetwork(config, SmallEnv());
  const auto bad = WriteCheckpoint(world.run(), **module, checkpoint, 10);
  world.StartLearner(9, *bad);
  ASSERT_TRUE(world.Rounds(20));
  const WeightSnapshot seen = world.Published();
  EXPECT_EQ(seen.version >> 32, 9u);
  EXPECT_GT(UpdatesOf(seen.version), checkpoint.updates);
  EXPECT_TRUE(AllFinite(seen.value.as<float>()));
}

TEST(LearnerNodeTest, PublishesRollbackAsNewerVersion) {
  const Armed armed("learner.weight:6");  // right after the publication of five
  Config config = SmallConfig();
  config.run.max_updates = 6;
  LearnerWorld world(config);
  const WeightSnapshot first = (world.Rounds(10), world.Published());
  world.Insert(200);
  ASSERT_TRUE(world.Rounds(1000));
  const WeightSnapshot last = world.Published();
  EXPECT_EQ(UpdatesOf(last.version), 7u);
  EXPECT_TRUE(std::ranges::equal(last.value.bytes(), first.value.bytes()));
}

TEST(LearnerNodeTest, FailsWithOriginOfRepeatedBadValues) {
  const std::pair<const char*, const char*> cases[] = {
      {"learner.gradient:30+:inf", "the gradient of layers.0.weight[0] is inf"},
      {"learner.weight:30+", "the weight layers.0.weight[0] is nan"}};
  for (const auto& [order, origin] : cases) {
    const Armed armed(order);
    Config config = SmallConfig();
    config.replay.samples_per_insert = 0;
    LearnerWorld world(config);
    world.Insert(200);
    EXPECT_FALSE(world.Rounds(2000));
    EXPECT_EQ(world.node().result().code(), Code::kCancelled);
    const std::string why = world.node().result().message();
    for (const char* part : {origin, "after 3 rollbacks", "learner.max_grad_norm"}) {
      EXPECT_NE(why.find(part), std::string::npos) << why;
    }
  }
}

// It waited for a replay and a parameter server that were gone already, till it was killed.
TEST(LearnerNodeTest, CheckpointsOnEarlyStopWithoutPeers) {
  LearnerWorld world(SmallConfig());
  world.coordinator().reply.peers.clear();
  world.coordinator().reply.stop = true;
  EXPECT_FALSE(world.Rounds(1000));
  EXPECT_TRUE(world.node().result().ok());
  EXPECT_TRUE(NewestCheckpoint(world.run()).ok());
}

// Its versions began below those that were published, and were ignored.
TEST(LearnerNodeTest, RestartPublishesNewerVersionDespiteFewerUpdates) {
  Config config = SmallConfig();
  config.checkpoint.every_s = 0.05;
  LearnerWorld world(config);
  world.Insert(60);
  ASSERT_TRUE(world.Rounds(1000));
  const std::string early = world.coordinator().told.checkpoint;
  ASSERT_FALSE(early.empty());
  const std::uint64_t early_updates = world.coordinator().told.checkpoint_updates;
  world.Insert(100);
  ASSERT_TRUE(world.Rounds(20));
  const std::uint64_t before = world.published();
  world.StartLearner(9, early);
  ASSERT_TRUE(world.Rounds(20));
  EXPECT_GT(world.published(), before);
  EXPECT_GE(UpdatesOf(world.published()), early_updates);
}

TEST(LearnerNodeTest, ContinuesFromCheckpoint) {
  LearnerWorld world(SmallConfig());
  world.Insert(150);
  ASSERT_TRUE(world.Rounds(500));
  world.coordinator().reply.stop = true;
  EXPECT_FALSE(world.Rounds(500));
  const auto path = NewestCheckpoint(world.run());
  const auto checkpoint = ReadCheckpoint(world.run(), *path);
  ASSERT_GT(checkpoint->updates, 0u);
  world.coordinator().reply.stop = false;
  world.StartLearner(7, *path);
  ASSERT_TRUE(world.Rounds(300));
  EXPECT_EQ(world.published() >> 32, 7u);
  EXPECT_GE(UpdatesOf(world.published()), checkpoint->updates);
}

// Regression: actors that started later waited permanently, while the learner waited for them.
TEST(LearnerNodeTest, RepublishesWeightsToRestartedServerWhileIdle) {
  LearnerWorld world(SmallConfig());
  ASSERT_TRUE(world.Rounds(300));
  world.StartParameterServer(8);
  EXPECT_EQ(world.published(), 0u);
  ASSERT_TRUE(world.Rounds(5000));
  EXPECT_EQ(world.published(), WeightsVersion(4, 0));
}

TEST(LearnerNodeTest, NamesDamagedCheckpoint) {
  LearnerWorld world(SmallConfig());
  ASSERT_TRUE(world.run()->WriteAtomic("checkpoints/000000000001/manifest.json", "{}").ok());
  const auto hub = MakeSimHub();
  const auto network = hub->MakeNetwork();
  CoordinatorFake coordinator(hub.get());
  const auto member = coordinator.Member(network.get(), Role::kLearner, 1);
  InlineExecutor executor;
  const auto node = LearnerNode::Make({.config = SmallConfig(),
                                       .env = SmallEnv(),
                                       .network = network.get(),
                                       .member = member.get(),
                                       .executor = &executor,
                                       .run = world.run(),
                                       .resume_checkpoint = "checkpoints/000000000001"});
  EXPECT_EQ(node.status().code(), Code::kDataLoss);
  EXPECT_NE(node.status().message().find("000000000001/manifest.json"), std::string::npos);
}

// It failed again and again, till the run was given up.
TEST(LearnerNodeTest, FallsBackToOlderCheckpoint) {
  Config config = SmallConfig();
  config.checkpoint.every_s = 0.05;
  LearnerWorld world(config);
  world.Insert(100);
  ASSERT_TRUE(world.Rounds(400));
  const std::string first = world.coordinator().told.checkpoint;
  world.Insert(50);
  ASSERT_TRUE(world.Rounds(400));
  const std::string newer = world.coordinator().told.checkpoint;
  ASSERT_NE(first, newer);
  ASSERT_TRUE(world.run()->WriteAtomic(newer + "/state.safetensors", "x").ok());
  const std::string older = *NewestCheckpoint(world.run());
  ASSERT_NE(older, newer);
  world.StartLearner(9, newer);
  ASSERT_TRUE(world.Rounds(2));
  EXPECT_EQ(world.coordinator().told.checkpoint, older);
}

// The previous learner died, or was disconnected, before it reported its last checkpoint.
TEST(LearnerNodeTest, ResumesFromNewerCheckpointThanReported) {
  Config config = SmallConfig();
  config.checkpoint.every_s = 0.05;
  for (const bool known : {false, true}) {
    LearnerWorld world(config);
    world.Insert(100);
    ASSERT_TRUE(world.Rounds(400));
    const std::string first = world.coordinator().told.checkpoint;
    world.Insert(50);
    ASSERT_TRUE(world.Rounds(400));
    const std::string newest = *NewestCheckpoint(world.run());
    ASSERT_LT(first, newest);
    world.StartLearner(9, known ? first : "");
    ASSERT_TRUE(world.Rounds(2));
    EXPECT_EQ(world.coordinator().told.checkpoint, newest);
  }
}

}  // namespace
}  // namespace troop
