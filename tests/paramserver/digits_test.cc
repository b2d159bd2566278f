#include "tests/paramserver/digits.h"
#include "core/config/enum_names.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "nn/optimizer.h"
#include "tests/paramserver/bsp_run.h"
#include "tests/paramserver/shard_testing.h"

namespace troop {
namespace {

constexpr int kWorkers = 2, kShards = 2;
constexpr std::int64_t kBatch = 16;
constexpr std::uint64_t kSteps = 500;
constexpr float kLearningRate = 0.003f;

const Digits& TheDigits() {
  static const Digits digits(std::filesystem::path(TROOP_SOURCE_DIR) /
                             "tests/fixtures/digits/digits.bin");
  return digits;
}

// Two workers and two shards, each a thread, over TCP. Both workers' last values.
std::vector<Floats> Train(Sharding sharding) {
  const DigitsModel model(&TheDigits(), kBatch);
  const BspRun run{*ShardMap::Make(sharding, model.params(), model.parameters(), kShards),
                   ConfigOf("adam"),
                   kWorkers,
                   {},
                   Seconds(30)};
  const Floats first = model.FirstValue();
  std::atomic<bool> stop = false;
  std::vector<std::jthread> threads;
  std::vector<std::string> endpoints;
  for (int s = 0; s < kShards; ++s) {
    std::promise<std::string> endpoint;
    auto bound = endpoint.get_future();
    threads.emplace_back([&, s, endpoint = std::move(endpoint)]() mutable {
      const Status status = ServeShard(run, s, first, "tcp://127.0.0.1:0", stop,
                                       [&](const std::string& at) { endpoint.set_value(at); });
      EXPECT_TRUE(status.ok()) << status.ToString();
    });
    endpoints.push_back(bound.get());
  }
  std::vector<Floats> values(kWorkers);
  {
    std::vector<std::jthread> workers;
    for (int w = 0; w < kWorkers; ++w) {
      workers.emplace_back([&, w] {
        DigitsModel own(&TheDigits(), kBatch);
        auto outcome = RunBspWorker(
            run,
            {.index = w,
             .steps = kSteps,
             .learning_rate = kLearningRate,
             .gradient =
                 [&](std::uint64_t step, std::span<const float> value, std::span<float> gradient) {
                   return own.Gradient(w, kWorkers, step, value, gradient);
                 }},
            endpoints);
        ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
        values[std::size_t(w)] = std::move(outcome->value);
      });
    }
  }
  stop = true;
  return values;
}

// No shards, no sockets: the mean of both gradients, and one optimizer over the whole arena.
Floats TrainAlone() {
  DigitsModel model(&TheDigits(), kBatch);
  auto optimizer = *MakeOptimizer(ConfigOf("adam"), model.parameters());
  Floats value = model.FirstValue();
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    Floats sum(value.size()), gradient(value.size());
    for (int w = 0; w < kWorkers; ++w) {
      model.Gradient(w, kWorkers, step, value, gradient);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += gradient[i];
    }
    optimizer->Step(sum, 1.0f / kWorkers, kLearningRate, value);
  }
  return value;
}

TEST(DigitsTest, BothShardingsLearnBitIdenticalWeights) {
  const Floats alone = TrainAlone();
  DigitsModel model(&TheDigits(), kBatch);
  const double accuracy = model.Accuracy(alone);
  std::printf("accuracy on images that were not trained on: %.3f\n", accuracy);
  EXPECT_GT(accuracy, 0.85);
  EXPECT_LT(model.Accuracy(model.FirstValue()), 0.3);
  for (const Sharding sharding : {Sharding::kLayer, Sharding::kMemory}) {
    for (const Floats& value : Train(sharding)) {
      EXPECT_TRUE(SameBytes(value, alone)) << EnumName(sharding);
    }
  }
}

TEST(DigitsTest, ShardByLayerOwnsSeparateRanges) {
  const DigitsModel model(&TheDigits(), kBatch);
  const auto map = *ShardMap::Make(Sharding::kLayer, model.params(), model.parameters(), kShards);
  EXPECT_EQ(map.RangesOf(0).size(), 1u);
  EXPECT_EQ(map.RangesOf(1).size(), 2u);
}

TEST(DigitsTest, GradientMatchesFiniteDifferences) {
  DigitsModel model(&TheDigits(), kBatch);
  Floats value = model.FirstValue();
  Floats gradient(value.size()), unused(value.size());
  model.Gradient(1, kWorkers, 3, value, gradient);
  for (const ParamSpec& param : model.params()) {
    const auto i = std::size_t(param.offset) + 5;
    constexpr float kStep = 1e-3f;
    const float middle = value[i];
    value[i] = middle + kStep;
    const float above = model.Gradient(1, kWorkers, 3, value, unused);
    value[i] = middle - kStep;
    const float below = model.Gradient(1, kWorkers, 3, value, unused);
    value[i] = middle;
    EXPECT_NEAR((above - below) / (2 * kStep), gradient[i], 2e-3) << param.name;
  }
}

}  // namespace
}  // namespace troop
