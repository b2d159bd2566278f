#include "learners/rl/demonstrations.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <vector>

#include "tests/core/temp_folder.h"
#include "tests/testing/captured_log.h"

namespace troop {
namespace {

template <class T>
Buffer BytesOf(const std::vector<T>& values) {
  return Buffer::Copy(std::as_bytes(std::span<const T>(values)));
}

EnvSpec TestEnv() {
  return {.id = "Test-v0", .observation = {DType::kF32, {2}}, .action = {.count = 5}};
}

// Frame t of episode `number` is {number, t}; the action of step t is t % 5, its reward
// 100 · number + t.
Episode Numbered(int number, int steps, bool terminated) {
  std::vector<float> observations, rewards;
  std::vector<std::int32_t> actions;
  for (int t = 0; t <= steps; ++t) {
    observations.push_back(float(number));
    observations.push_back(float(t));
    if (t == steps) break;
    actions.push_back(t % 5);
    rewards.push_back(float(100 * number + t));
  }
  return {.env = "Test-v0",
          .observation = {DType::kF32, {2}},
          .action = {.count = 5},
          .steps = steps,
          .terminated = terminated,
          .truncated = !terminated,
          .policy_updates = std::uint64_t(number),
          .observations = BytesOf(observations),
          .actions = BytesOf(actions),
          .rewards = BytesOf(rewards)};
}

void WriteFile(const std::string& path, const std::vector<Episode>& episodes, std::size_t cut = 0) {
  std::string bytes;
  for (const Episode& e : episodes) {
    const auto record = EncodeEpisode(e);
    bytes.append(reinterpret_cast<const char*>(record.data()), record.size());
  }
  std::ofstream(path, std::ios::binary) << bytes.substr(0, bytes.size() - cut);
}

class DemonstrationsTest : public ::testing::Test {
 protected:
  Result<std::unique_ptr<Demonstrations>> Load(std::int64_t n_step = 3, std::int64_t stack = 1) {
    return Demonstrations::Load(folder_.path(),
                                {.env = TestEnv(), .n_step = n_step, .frame_stack = stack});
  }
  // The error of a dataset with these episodes.
  Status ErrorOf(const std::vector<Episode>& episodes) {
    WriteFile(folder_.path() + "/a.episodes", episodes);
    const auto loaded = Load();
    EXPECT_FALSE(loaded.ok());
    return loaded.status();
  }
  const TempFolder folder_;
};

// Checks a row against the formula of Numbered, and returns its episode and step.
std::pair<int, int> CheckRow(const SampleBatch& batch, std::size_t row, std::int64_t n_step,
                             std::int64_t stack, const std::vector<int>& steps) {
  const auto frame = [&](const Tensor& t, std::int64_t k) {
    return t.as<float>().subspan((row * std::size_t(stack) + std::size_t(k)) * 2, 2);
  };
  const auto newest = frame(batch.observation, stack - 1);
  const int number = int(newest[0]), t = int(newest[1]);
  const int length = std::min(int(n_step), steps[std::size_t(number)] - t);
  EXPECT_GT(length, 0);
  EXPECT_EQ(batch.length[row], length);
  EXPECT_EQ(batch.action.as<std::int32_t>()[row], t % 5);
  for (int k = 0; k < int(stack); ++k) {
    // Frames before the start are zeros; frame 0 is {number, 0}.
    for (const auto& [tensor, at] :
         {std::pair{&batch.observation, t - int(stack) + 1 + k},
          std::pair{&batch.next_observation, t + length - int(stack) + 1 + k}}) {
      EXPECT_EQ(frame(*tensor, k)[0], float(at < 0 ? 0 : number));
      EXPECT_EQ(frame(*tensor, k)[1], float(at < 0 ? 0 : at));
    }
  }
  for (int k = 0; k < int(n_step); ++k) {
    const std::size_t at = row * std::size_t(n_step) + std::size_t(k);
    EXPECT_EQ(batch.reward.as<float>()[at], k < length ? float(100 * number + t + k) : 0);
    // Even episodes terminate, odd ones are truncated.
    const bool terminal = number % 2 == 0 && t + k == steps[std::size_t(number)] - 1;
    EXPECT_EQ(batch.discount.as<float>()[at], terminal ? 0 : 1);
  }
  EXPECT_EQ(batch.policy_version[row], std::uint64_t(number));
  EXPECT_EQ(batch.weight[row], 1);
  EXPECT_EQ(batch.key[row], ItemKey{});
  return {number, t};
}

TEST_F(DemonstrationsTest, EveryStepIsOneTransition) {
  const std::vector<int> steps = {4, 1, 7};
  WriteFile(folder_.path() + "/a.episodes", {Numbered(0, 4, true), Numbered(1, 1, false)});
  WriteFile(folder_.path() + "/b.episodes", {Numbered(2, 7, true)});
  for (const std::int64_t n_step : {1, 3, 9}) {
    for (const std::int64_t stack : {1, 3}) {
      const auto dataset = *Load(n_step, stack);
      ASSERT_EQ(dataset->episodes(), 3);
      ASSERT_EQ(dataset->transitions(), 12);
      SampleBatch batch = dataset->Prepare(12);
      std::map<std::pair<int, int>, int> seen;
      for (int i = 0; i < 12; ++i) {
        dataset->Fill(i, i, &batch);
        ++seen[CheckRow(batch, std::size_t(i), n_step, stack, steps)];
      }
      EXPECT_EQ(seen.size(), 12u);
    }
  }
}

TEST_F(DemonstrationsTest, TornEndIsLeftOutAndLogged) {
  WriteFile(folder_.path() + "/a.episodes", {Numbered(0, 4, true), Numbered(1, 3, false)}, 1);
  const CapturedLog log;
  EXPECT_EQ((*Load())->episodes(), 1);
  EXPECT_NE(log.text().find("ignored an incomplete episode"), std::string::npos);
  // Nothing else is left.
  WriteFile(folder_.path() + "/a.episodes", {Numbered(0, 4, true)}, 1);
  EXPECT_NE(Load().status().message().find("no complete episode"), std::string::npos);
}

// The bytes of a loaded dataset do not depend on its files, which other programs may truncate,
// overwrite or remove.
TEST_F(DemonstrationsTest, ChangesOfFilesHaveNoEffect) {
  const std::string path = folder_.path() + "/a.episodes";
  const std::vector<int> steps = {2000, 2000};
  WriteFile(path, {Numbered(0, 2000, true), Numbered(1, 2000, false)});
  const auto dataset = *Load(3, 2);
  const auto check = [&] {
    SampleBatch batch = dataset->Prepare(1);
    for (int i = 0; i < 4000; ++i) {
      dataset->Fill(i, 0, &batch);
      ASSERT_EQ(CheckRow(batch, 0, 3, 2, steps), (std::pair{i / 2000, i % 2000}));
    }
  };
  std::filesystem::resize_file(path, 0);
  check();
  std::filesystem::resize_file(path, 1 << 20);  // zeros
  check();
  std::filesystem::remove(path);
  check();
}

TEST_F(DemonstrationsTest, RefusesWhatDoesNotFitTheEnvironment) {
  const auto expect = [](const Status& status, Code code, const std::string& part) {
    EXPECT_EQ(status.code(), code) << status.ToString();
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
    EXPECT_EQ(status.message().find('\n'), std::string::npos);
  };
  expect(Load().status(), Code::kNotFound, "has no recorded episodes");
  Episode e = Numbered(0, 4, true);
  e.observation = {DType::kF32, {1, 2}};
  expect(ErrorOf({Numbered(0, 4, true), e}), Code::kInvalidArgument,
         "a.episodes: episode 1: Test-v0 has observations f32[1, 2] and 5 actions, but Test-v0 has "
         "observations f32[2] and 5 actions");
  e = Numbered(0, 4, true);
  e.observation.dtype = DType::kI32;
  expect(ErrorOf({e}), Code::kInvalidArgument, "observations i32[2]");
  e = Numbered(0, 4, true);
  e.action.count = 6;
  expect(ErrorOf({e}), Code::kInvalidArgument, "6 actions, but");
  e = Numbered(0, 4, true);
  e.observation_clip = 10;
  expect(ErrorOf({e}), Code::kInvalidArgument,
         "was recorded with env.observation_clip = 10, but this run has 0; set the same value");
  e = Numbered(0, 4, true);
  e.reward_scale = 0.5;
  expect(ErrorOf({e}), Code::kInvalidArgument,
         "was recorded with env.reward_scale = 0.5, but this run has 1; set the same value");
  // A clone does not use the rewards.
  EXPECT_TRUE(
      Demonstrations::Load(folder_.path(), {.env = TestEnv(), .reward_scale = std::nullopt}).ok());
  e = Numbered(0, 4, true);
  e.actions = BytesOf<std::int32_t>({0, 1, 5, 0});
  expect(ErrorOf({e}), Code::kDataLoss, "the action 5, which is not in [0, 5)");
  e.actions = BytesOf<std::int32_t>({0, -1, 0, 0});
  expect(ErrorOf({e}), Code::kDataLoss, "the action -1");
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity(), -2e9F}) {
    e = Numbered(0, 4, true);
    e.rewards = BytesOf<float>({0, 0, bad, 0});
    expect(ErrorOf({e}), Code::kDataLoss, "has the reward");
    e = Numbered(0, 4, true);
    e.observations = BytesOf<float>({0, 0, 0, 0, 0, 0, 0, 0, 0, bad});
    expect(ErrorOf({e}), Code::kDataLoss, "has the observation");
  }
  std::ofstream(folder_.path() + "/a.episodes") << "These bytes are not episodes at all.";
  expect(Load().status(), Code::kDataLoss, "a.episodes: damaged episode 0 at byte 0");
}

// ---- The sampler ----

// Batches of a replay: `rows` items with other keys, weights and values.
class FreshBatches final : public ReplaySampler {
 public:
  FreshBatches(const Demonstrations& dataset, std::int64_t rows) : dataset_(dataset), rows_(rows) {}
  void AddShard(std::unique_ptr<Channel>) override {}
  void Poll(Time) override {}
  Result<std::optional<SampleBatch>> Next() override {
    if (left == 0) return OutOfRange("drained");
    --left;
    SampleBatch batch = dataset_.Prepare(rows_);
    for (std::size_t i = 0; i < std::size_t(rows_); ++i) {
      batch.key[i] = {.slot = std::uint32_t(i), .generation = 7};
      batch.weight[i] = 0.5F;
      batch.observation.as<float>()[2 * i] = -1;
    }
    batch.beta = 0.25;
    return std::optional(std::move(batch));
  }
  void UpdatePriorities(std::span<const ItemKey> keys, std::span<const float> values) override {
    updated.assign(keys.begin(), keys.end());
    priorities.assign(values.begin(), values.end());
  }
  void ObservePolicyVersion(std::uint64_t) override {}
  void SetBeta(double) override {}
  void Drain() override {}
  int ready_batches() const override { return left; }
  int shards_alive() const override { return 1; }
  int left = 3;
  std::vector<ItemKey> updated;
  std::vector<float> priorities;

 private:
  const Demonstrations& dataset_;
  const std::int64_t rows_;
};

TEST_F(DemonstrationsTest, BatchesHaveExactShareOfDemonstrations) {
  const std::vector<int> steps = {4};
  WriteFile(folder_.path() + "/a.episodes", {Numbered(0, 4, true)});
  const std::shared_ptr<const Demonstrations> dataset = *Load();
  auto inner = std::make_unique<FreshBatches>(*dataset, 6);
  FreshBatches& fresh = *inner;
  const auto sampler = MakeDemonstrationSampler(dataset, std::move(inner), {.rows = 2});
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(sampler->ready_batches(), 3 - i);
    const auto batch = *sampler->Next();
    ASSERT_TRUE(batch.has_value());
    ASSERT_EQ(batch->size(), 8);
    EXPECT_EQ(batch->beta, 0.25);
    for (std::size_t row = 0; row < 6; ++row) {
      EXPECT_EQ(batch->key[row].generation, 7u);
      EXPECT_EQ(batch->weight[row], 0.5F);
      EXPECT_EQ(batch->observation.as<float>()[2 * row], -1);
    }
    for (std::size_t row = 6; row < 8; ++row) CheckRow(*batch, row, 3, 1, steps);
    // Priorities reach the items of the replay alone.
    sampler->UpdatePriorities(batch->key, std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7});
    EXPECT_EQ(fresh.priorities, (std::vector<float>{0, 1, 2, 3, 4, 5}));
    EXPECT_EQ(fresh.updated.size(), 6u);
  }
  EXPECT_EQ(sampler->Next().status().code(), Code::kOutOfRange);
}

TEST_F(DemonstrationsTest, SamplesFollowFromNumberOfBatch) {
  WriteFile(folder_.path() + "/a.episodes", {Numbered(0, 90, true), Numbered(1, 37, false)});
  const std::shared_ptr<const Demonstrations> dataset = *Load();
  const auto draw = [&](DemonstrationSamplerOptions options, int batches) {
    options.rows = 16;
    const auto sampler = MakeDemonstrationSampler(dataset, nullptr, options);
    std::vector<std::vector<float>> drawn;
    for (int i = 0; i < batches; ++i) {
      const auto batch = *sampler->Next();
      const auto seen = batch->observation.as<float>();
      drawn.emplace_back(seen.begin(), seen.end());
    }
    sampler->Drain();
    EXPECT_EQ(sampler->Next().status().code(), Code::kOutOfRange);
    EXPECT_EQ(sampler->ready_batches(), 0);
    return drawn;
  };
  const auto all = draw({}, 10), rest = draw({.first = 4}, 6);
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(all[4 + i], rest[i]);
  EXPECT_NE(all[0], all[1]);
  EXPECT_NE(draw({.seed = 2}, 1)[0], all[0]);
  EXPECT_NE(draw({.learner = 1}, 1)[0], all[0]);
}

// Chi-square over 127 transitions: 126 degrees of freedom, deviation 15.9; six of them.
TEST_F(DemonstrationsTest, SamplesUniformly) {
  WriteFile(folder_.path() + "/a.episodes", {Numbered(0, 90, true), Numbered(1, 37, false)});
  const std::shared_ptr<const Demonstrations> dataset = *Load();
  const auto sampler = MakeDemonstrationSampler(dataset, nullptr, {.rows = 127});
  std::map<std::pair<float, float>, int> counts;
  for (int i = 0; i < 100; ++i) {
    const auto batch = *sampler->Next();
    const auto seen = batch->observation.as<float>();
    for (std::size_t row = 0; row < 127; ++row) ++counts[{seen[2 * row], seen[2 * row + 1]}];
  }
  EXPECT_EQ(counts.size(), 127u);
  double chi = 0;
  for (const auto& [step, count] : counts) chi += (count - 100.0) * (count - 100.0) / 100.0;
  EXPECT_LT(chi, 126 + 6 * 15.9);
}

}  // namespace
}  // namespace troop
