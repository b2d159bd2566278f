#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "core/base/philox.h"
#include "learners/rl/dqn.h"
#include "learners/rl/gpu_dqn.h"
#include "nn/models/model.h"
#include "replay/replica/delta_sampler.h"
#include "tests/replay/replay_world.h"

// A learner that draws from its GPU's copy of the replay (here the emulated one), against the CPU's
// updates of the same items, looked up in a log that forgets nothing.
namespace troop {
namespace {

constexpr std::int64_t kBatch = 8;

struct Problem {
  TrainingConfig config;
  EnvSpec env;
};

// Numbers; numbers in a stack; pictures in a stack; pictures with channels, in a stack.
Problem MakeProblem(int which) {
  Problem p;
  p.env.id = "test";
  p.env.action.count = 4;
  p.env.observation = {DType::kF32, {5}};
  p.config.network.layers = {LayerConfig{.type = LayerType::kLinear, .units = 12}};
  if (which == 1) p.config.frame_stack = 3;
  if (which >= 2) {
    LayerConfig conv;
    conv.type = LayerType::kConv2d;
    conv.filters = 4;
    conv.kernel = 3;
    p.env.observation =
        which == 2 ? TensorSpec{DType::kU8, {6, 5}} : TensorSpec{DType::kU8, {6, 5, 2}};
    p.env.observation_scale = 1.0f / 255;
    p.config.frame_stack = which == 2 ? 4 : 2;
    p.config.network.layers = {conv, LayerConfig{.type = LayerType::kLinear, .units = 12}};
  }
  p.config.network.dueling = which == 1;
  p.config.replay.placement = ReplayPlacement::kGpu;
  p.config.replay.capacity_items = 50;
  p.config.learner.device = DeviceChoice::kCuda;
  p.config.learner.batch_size = kBatch;
  p.config.learner.target_update_every_updates = 7;
  p.config.optimizer.learning_rate = 1e-3;
  p.config.n_step = 3;
  return p;
}

class World {
 public:
  explicit World(const Problem& problem)
      : config_(problem.config), env_(problem.env), world_(Options()) {
    EnvSpec seen = env_;
    seen.observation = NetworkInput(ModelSetupOf(config_), env_);
    cpu_ = *MakeDqn(config_, seen, *MakeNetwork(ModelSetupOf(config_), env_));
    auto device = MakeGpuDqn(config_, env_, *MakeNetwork(ModelSetupOf(config_), env_));
    TROOP_CHECK(device.ok(), "{}", device.status().ToString());
    device_ = std::move(*device);
    writer_ = world_.Writer();
    mirror_ = MakeDeltaSampler(
        world_.Connect(Role::kLearner), world_.spec(),
        {.batch_size = kBatch, .prefetch = 2, .view = View(), .codec = Codec::kLz4});
  }

  // Some frames of a stream, with the items that they complete.
  void Play(int calls) {
    for (; calls > 0; --calls) {
      const StreamId stream = rng_.Below(3);
      Stream& s = streams_[stream];
      const bool ends = rng_.Below(3) == 0;
      const auto n = std::uint32_t(2 + rng_.Below(5));
      Chunk chunk = ends ? MakeEpisodeEnd(stream, s.next, n, 0) : MakeChunk(stream, s.next, n);
      const std::size_t bytes = env_.observation.bytes();
      MutableBuffer observation(n * bytes), action(n * 4);
      std::vector<Item> items;
      for (std::uint32_t i = 0; i < n; ++i) {
        Frame frame{std::vector<std::byte>(bytes), std::int32_t(rng_.Below(4)),
                    chunk.reward.as<float>()[i] * 0.1f, chunk.discount.as<float>()[i]};
        FillObservation(&frame);
        std::ranges::copy(frame.observation, observation.data() + i * bytes);
        action.as<std::int32_t>()[i] = frame.action;
        s.frames.push_back(frame);
        const std::uint64_t t = s.next + i;
        for (std::uint64_t length = 3; length >= 1; --length) {
          if (t < s.episode + length || (length < 3 && !(ends && i + 1 == n))) continue;
          const float priority = 0.1f + rng_.UniformF32();
          items.push_back({.stream = stream,
                           .first_frame = t - length,
                           .length = std::uint32_t(length),
                           .priority = priority,
                           .policy_version = known_.size()});
          known_.push_back(
              {stream, t - length, length, s.episode, priority + config_.replay.priority_epsilon});
        }
      }
      MutableBuffer reward(n * 4);
      for (std::uint32_t i = 0; i < n; ++i) reward.as<float>()[i] = s.frames[s.next + i].reward;
      chunk.observation = std::move(observation).Freeze();
      chunk.action = std::move(action).Freeze();
      chunk.reward = std::move(reward).Freeze();
      s.next += n;
      if (ends) s.episode = s.next;
      ASSERT_TRUE(writer_->Push({chunk}, items).ok());
      world_.Pump();
      writer_->Poll(world_.now());
      ASSERT_TRUE(writer_->error().ok()) << writer_->error().ToString();
    }
  }

  // One update here and there, of what was sampled here.
  void Update() {
    Result<std::optional<SampleBatch>> batch = std::optional<SampleBatch>();
    std::uint64_t oldest = 0;  // of what the copy has when it is sampled from
    beta_ = std::min(1.0, 0.4 + 0.1 * double(updates_));  // of the weights; constant in the end
    mirror_->SetBeta(beta_);
    while (true) {
      batch = Take(&world_, mirror_.get());
      ASSERT_TRUE(batch.ok()) << batch.status().ToString();
      if (!batch->has_value()) continue;
      oldest = oldest_;
      NoteKeys(**batch);
      if (!(*batch)->key.empty()) break;
      ASSERT_TRUE(device_->gpu_replay()->ApplyTableDelta(**batch).ok());
    }
    EXPECT_EQ((*batch)->beta, beta_);
    std::vector<float> found(kBatch), want(kBatch);
    const auto report = device_->Update(**batch, 0.25, found);
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    ASSERT_EQ(device_->gpu_replay()->sampled().size(), std::size_t(kBatch));
    const auto theirs = cpu_->Update(Assemble(), 0.25, want);
    ASSERT_TRUE(theirs.ok()) << theirs.status().ToString();
    EXPECT_NEAR(report->loss, theirs->loss, 1e-5 * std::abs(theirs->loss) + 1e-6);
    EXPECT_NEAR(report->gradient_norm, theirs->gradient_norm, 1e-4 * theirs->gradient_norm);
    std::vector<ItemKey> keys;
    for (std::size_t i = 0; i < found.size(); ++i) {
      const GpuReplayConsumer::SampledItem& item = device_->gpu_replay()->sampled()[i];
      EXPECT_NEAR(found[i], want[i], 1e-4 * want[i] + 1e-5) << i;
      ASSERT_EQ(id_of_.at(KeyOf(item.key)), item.policy_version) << "the key is another item's";
      EXPECT_GE(number_of_.at(KeyOf(item.key)), std::min(oldest, oldest_)) << "it had left";
      known_[item.policy_version].priority = double(found[i]) + config_.replay.priority_epsilon;
      keys.push_back(item.key);
    }
    mirror_->UpdatePriorities(keys, found);
    ++updates_;
  }

  void ExpectSameWeights() {
    const auto here = device_->value(), there = cpu_->value();
    ASSERT_EQ(here.size(), there.size());
    double error = 0, norm = 0;
    for (std::size_t i = 0; i < here.size(); ++i) {
      error += std::pow(double(here[i]) - double(there[i]), 2);
      norm += std::pow(double(there[i]), 2);
    }
    EXPECT_LT(std::sqrt(error / norm), 1e-4);
    EXPECT_EQ(device_->updates(), updates_);
  }

  // The learner sends the updates' priorities to the replay; updates of items evicted meanwhile
  // count as stale.
  void ExpectPrioritiesThere() {
    mirror_->Poll(world_.now());
    world_.Pump();
    EXPECT_EQ(world_.Metric("replay/updates") + world_.Metric("replay/stale_updates"),
              double(updates_ - before_) * kBatch);
    EXPECT_GT(world_.Metric("replay/updates"), 0);
  }

  void RestartReplay() {
    ExpectPrioritiesThere();
    before_ = updates_;
    world_.Advance(Milliseconds(1));
    ++world_.options().incarnation;
    world_.RestartServer();
    first_of_life_ = known_.size();
    for (int i = 0; i < 10; ++i) {
      world_.Advance(Milliseconds(200));
      writer_->Poll(world_.now());
      mirror_->Poll(world_.now());
    }
  }

  Algorithm& device() { return *device_; }
  ReplaySampler& mirror() { return *mirror_; }
  ReplayWorld& replay() { return world_; }

 private:
  struct Frame {
    std::vector<std::byte> observation;
    std::int32_t action = 0;
    float reward = 0, discount = 1;
  };
  struct Stream {
    std::vector<Frame> frames;
    std::uint64_t next = 0, episode = 0;
  };
  struct Known {
    StreamId stream = 0;
    std::uint64_t first = 0, length = 0, episode = 0;
    double priority = 0;
  };

  ViewSpec View() const { return {.length_max = 3, .stack = int(config_.frame_stack)}; }
  ReplayServer::Options Options() const {
    ReplayServer::Options options = SmallOptions();
    Table::Options& table = options.tables[0].table;
    table.trajectory = {.observation = env_.observation, .action = {DType::kI32, {}}};
    table.view = View();
    table.codec = Codec::kLz4;
    table.capacity_items = config_.replay.capacity_items;
    table.frames = 150;  // so that places are given out again
    table.trim_every_samples = 5 * kBatch;
    table.priority_epsilon = config_.replay.priority_epsilon;
    table.feed = true;
    return options;
  }
  static std::uint64_t KeyOf(const ItemKey& key) {
    return std::uint64_t{key.generation} << 32 | key.slot;
  }
  void NoteKeys(const SampleBatch& batch) {
    for (const auto& experience : batch.experience) {
      oldest_ = experience->oldest;
      for (std::size_t i = 0; i < experience->feed.key.size(); ++i) {
        id_of_[experience->feed.key[i]] = experience->feed.policy_version[i];
        number_of_[experience->feed.key[i]] = experience->feed.number[i];
      }
    }
  }
  void FillObservation(Frame* frame) {
    for (std::size_t i = 0; i < frame->observation.size();) {
      if (env_.observation.dtype == DType::kU8) {
        frame->observation[i++] = std::byte(rng_.Below(256));
      } else {
        const float x = float(rng_.Normal());
        std::memcpy(frame->observation.data() + i, &x, 4);
        i += 4;
      }
    }
  }
  // The stack that ends in frame t.
  void PutStack(const Known& item, std::uint64_t t, std::byte* to) const {
    const std::size_t bytes = env_.observation.bytes();
    const auto stack = std::uint64_t(config_.frame_stack);
    for (std::uint64_t k = 0; k < stack; ++k, to += bytes) {
      const std::uint64_t back = stack - 1 - k;
      if (t < item.episode + back) continue;  // zeros
      std::ranges::copy(streams_.at(item.stream).frames[t - back].observation, to);
    }
  }
  SampleBatch Assemble() const {
    SampleBatch batch;
    const TensorSpec seen = NetworkInput(ModelSetupOf(config_), env_);
    const auto zeros = [](DType dtype, Shape shape) {
      Tensor t(dtype, shape);
      std::ranges::fill(t.bytes(), std::byte{0});
      return t;
    };
    batch.observation = zeros(seen.dtype, seen.shape.Prepend(kBatch));
    batch.next_observation = zeros(seen.dtype, seen.shape.Prepend(kBatch));
    batch.action = zeros(DType::kI32, {kBatch});
    batch.reward = zeros(DType::kF32, {kBatch, 3});
    batch.discount = zeros(DType::kF32, {kBatch, 3});
    double least = INFINITY;
    for (const GpuReplayConsumer::SampledItem& sampled : device_->gpu_replay()->sampled())
      least = std::min(least, known_[sampled.policy_version].priority);
    for (std::size_t i = 0; i < std::size_t(kBatch); ++i) {
      const GpuReplayConsumer::SampledItem& sampled = device_->gpu_replay()->sampled()[i];
      EXPECT_GE(sampled.policy_version, first_of_life_);
      const Known& item = known_[sampled.policy_version];
      const auto& frames = streams_.at(item.stream).frames;
      PutStack(item, item.first, batch.observation.bytes().data() + i * seen.bytes());
      PutStack(item, item.first + item.length,
               batch.next_observation.bytes().data() + i * seen.bytes());
      batch.action.as<std::int32_t>()[i] = frames[item.first].action;
      for (std::size_t k = 0; k < 3; ++k) {
        const bool inside = k < item.length;
        batch.reward.as<float>()[3 * i + k] = inside ? frames[item.first + k].reward : 0;
        batch.discount.as<float>()[3 * i + k] = inside ? frames[item.first + k].discount : 1;
      }
      batch.key.push_back(sampled.key);
      batch.length.push_back(std::int32_t(item.length));
      batch.weight.push_back(
          float(std::pow(std::pow(least / item.priority, config_.replay.alpha), beta_)));
      batch.probability.push_back(0.1);
      batch.policy_version.push_back(sampled.policy_version);
    }
    batch.burn_in.resize(std::size_t(kBatch));
    return batch;
  }

  const TrainingConfig config_;
  const EnvSpec env_;
  ReplayWorld world_;
  Rng rng_{{.run_seed = 11}};
  std::unique_ptr<Algorithm> cpu_, device_;
  std::unique_ptr<ReplayWriter> writer_;
  std::unique_ptr<ReplaySampler> mirror_;
  std::map<StreamId, Stream> streams_;
  std::vector<Known> known_;  // by their policy versions, which are numbers here
  std::map<std::uint64_t, std::uint64_t> id_of_, number_of_;  // by key
  double beta_ = 0;
  std::uint64_t oldest_ = 0;
  std::uint64_t updates_ = 0, before_ = 0, first_of_life_ = 0;
};

class DeviceReplayTest : public testing::TestWithParam<int> {};

// Slots and frames are given out again several times while updates go on.
TEST_P(DeviceReplayTest, UpdatesMatchCpuOnSampledItems) {
  World world(MakeProblem(GetParam()));
  ASSERT_NO_FATAL_FAILURE(world.Play(8));
  for (int i = 0; i < 40; ++i) {
    ASSERT_NO_FATAL_FAILURE(world.Update()) << i;
    // At 20 all of it is new.
    ASSERT_NO_FATAL_FAILURE(world.Play(i == 20 ? 40 : i % 2 == 0 ? i % 3 : 0));
  }
  world.ExpectSameWeights();
  world.ExpectPrioritiesThere();
}

TEST_P(DeviceReplayTest, SamplesOnlyFromRestartedReplay) {
  World world(MakeProblem(GetParam()));
  ASSERT_NO_FATAL_FAILURE(world.Play(20));
  for (int i = 0; i < 5; ++i) ASSERT_NO_FATAL_FAILURE(world.Update()) << i;
  world.RestartReplay();
  ASSERT_NO_FATAL_FAILURE(world.Play(7));  // slots enough stay empty
  for (int i = 0; i < 15; ++i) ASSERT_NO_FATAL_FAILURE(world.Update()) << i;
  world.ExpectSameWeights();
  world.ExpectPrioritiesThere();
}

INSTANTIATE_TEST_SUITE_P(Problems, DeviceReplayTest, testing::Range(0, 4));

// A restarted replay with other sizes: the table is replaced and its graph is captured again.
TEST(DeviceReplaySizeTest, AdoptsReplayOfAnotherSize) {
  World world(MakeProblem(0));
  ASSERT_NO_FATAL_FAILURE(world.Play(20));
  for (int i = 0; i < 3; ++i) ASSERT_NO_FATAL_FAILURE(world.Update()) << i;
  world.replay().options().tables[0].table.capacity_items = 70;
  world.RestartReplay();
  ASSERT_NO_FATAL_FAILURE(world.Play(30));
  for (int i = 0; i < 6; ++i) ASSERT_NO_FATAL_FAILURE(world.Update()) << i;
  world.ExpectSameWeights();
}

// A table that is made and then can't be filled: what was recorded of the one before is not used
// when a good feed of its sizes comes.
TEST(DeviceReplaySizeTest, DropsRecordedGraphWhenTableFillFails) {
  World world(MakeProblem(0));
  ASSERT_NO_FATAL_FAILURE(world.Play(20));
  for (int i = 0; i < 4; ++i) ASSERT_NO_FATAL_FAILURE(world.Update()) << i;
  auto made = std::make_shared<DecodedDelta>();
  made->anew = true;
  made->sizes = {4000, 4000};  // so that its arrays are not in the memory of the first table's
  made->observation = Tensor(DType::kF32, {2, 5});
  made->feed.place = {1, 4009};  // beyond the table
  made->feed.reward = {0, 0};
  made->feed.discount = {1, 0};
  made->feed.action.resize(8);
  SampleBatch batch;
  batch.experience = {made};
  batch.key.resize(kBatch);
  std::vector<float> priority(kBatch);
  EXPECT_EQ(world.device().Update(batch, 0, priority).status().code(), Code::kDataLoss);
  auto good = std::make_shared<DecodedDelta>(*made);
  good->feed.place = {1, 2};
  good->feed.number = {0};
  good->feed.key = {std::uint64_t{7} << 32 | 3};
  good->feed.policy_version = {11};
  good->feed.priority = {1};
  good->feed.length = {1};
  good->feed.lead = {0};
  good->feed.window = {1, 2};
  batch.experience = {good};
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(world.device().Update(batch, 0, priority).ok());
    ASSERT_EQ(world.device().gpu_replay()->sampled().size(), std::size_t(kBatch));
    for (const GpuReplayConsumer::SampledItem& item : world.device().gpu_replay()->sampled()) {
      EXPECT_EQ(item.key.slot, 3u);
      EXPECT_EQ(item.policy_version, 11u);
    }
    batch.experience.clear();
  }
}

// A feed that does not fit the copy is reported, and again with each update, until a feed restarts.
TEST(DeviceReplaySizeTest, MismatchedFeedEndsUpdates) {
  World world(MakeProblem(0));
  SampleBatch batch;
  auto bad = std::make_shared<DecodedDelta>();
  bad->sizes = {5, 5};
  batch.experience.push_back(bad);
  batch.key.resize(kBatch);
  std::vector<float> priority(kBatch);
  EXPECT_EQ(world.device().Update(batch, 0, priority).status().code(), Code::kDataLoss);
  batch.experience.clear();
  EXPECT_EQ(world.device().Update(batch, 0, priority).status().code(), Code::kDataLoss);
  auto huge = std::make_shared<DecodedDelta>();
  huge->anew = true;
  huge->sizes = {std::uint64_t{1} << 30, 5};
  batch.experience.push_back(huge);
  EXPECT_EQ(world.device().Update(batch, 0, priority).status().code(), Code::kDataLoss);
  auto empty = std::make_shared<DecodedDelta>();
  empty->anew = true;
  empty->sizes = {5, 5};
  batch.experience = {empty};
  const Status nothing = world.device().Update(batch, 0, priority).status();
  EXPECT_NE(nothing.message().find("nothing to sample"), std::string::npos) << nothing.ToString();
  ASSERT_NO_FATAL_FAILURE(world.Play(20));
  for (int i = 0; i < 3; ++i) ASSERT_NO_FATAL_FAILURE(world.Update()) << i;
  world.ExpectSameWeights();
}

}  // namespace
}  // namespace troop
