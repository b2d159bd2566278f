#include "nn/parallel/hogwild_arena.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <vector>

#include "core/base/philox.h"
#include "nn/optimizer.h"

namespace troop {
namespace {

constexpr std::size_t kCount = 101;

OptimizerConfig ConfigOf(const std::string& name) {
  OptimizerConfig config;
  config.type = name == "momentum"   ? OptimizerType::kSgd
                : name == "centered" ? OptimizerType::kRmsProp
                                     : *ParseEnum<OptimizerType>(name);
  config.momentum = name == "momentum" ? 0.9 : 0;
  config.centered = name == "centered";
  config.weight_decay = name == "adagrad" || name == "centered" ? 0 : 0.1;
  return config;
}
const char* const kOptimizers[] = {"sgd",      "momentum", "adagrad", "rmsprop",
                                   "centered", "adam",     "radam"};

// An arena, and what it stands on.
struct Shared {
  std::vector<float> value;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<HogwildArena> arena;
  HogwildArena* operator->() const { return arena.get(); }
};
Shared MakeShared(const OptimizerConfig& config, std::vector<float> value,
                  HogwildArena::Write write = HogwildArena::Write::kExact) {
  Shared shared{.value = std::move(value)};
  shared.optimizer = *MakeOptimizer(config, std::int64_t(shared.value.size()));
  auto arena = HogwildArena::Make(config, shared.value, shared.optimizer.get(), write);
  EXPECT_TRUE(arena.ok()) << arena.status().ToString();
  shared.arena = std::move(*arena);
  return shared;
}

std::vector<float> Draw(std::uint64_t step, std::size_t count = kCount) {
  Rng rng({step, Purpose::kTest});
  std::vector<float> x(count);
  for (float& v : x) v = float(rng.Normal());
  return x;
}

TEST(SharedArenaTest, OneThreadMatchesOptimizerBitwise) {
  for (const char* name : kOptimizers) {
    for (const auto write : {HogwildArena::Write::kExact, HogwildArena::Write::kRacy}) {
      const OptimizerConfig config = ConfigOf(name);
      std::vector<float> value = Draw(1000), got(kCount);
      const auto arena = MakeShared(config, value, write);
      auto optimizer = *MakeOptimizer(config, std::int64_t(kCount));
      RunHogwild(1, 50, [&](int, std::int64_t step) {
        const auto gradient = Draw(std::uint64_t(step));
        optimizer->Step(gradient, 0.5f, 0.01f, value);
        arena->Step(gradient, 0.5f, 0.01f);
        arena->Read(got);
        EXPECT_EQ(got, value) << name << ", step " << step;
      });
      EXPECT_EQ(arena->steps(), 50u);
    }
  }
}

// Groups with separate learning rates, some without decay, and a gradient in several spans; the
// optimizer makes the first step.
TEST(SharedArenaTest, PartsAndGroupsMatchOptimizerBitwise) {
  for (const char* name : kOptimizers) {
    const OptimizerConfig config = ConfigOf(name);
    const std::vector<Optimizer::Group> groups{
        {16, 0.01f, true}, {40, 0.02f, false}, {kCount - 56, 0.005f, true}};
    Shared shared = MakeShared(config, Draw(1000));
    auto optimizer = *MakeOptimizer(config, std::int64_t(kCount));
    std::vector<float> value = Draw(1000);
    optimizer->Step(Draw(7), 1, 0.01f, value);
    shared.optimizer->Step(Draw(7), 1, 0.01f, shared.value);
    shared.arena = *HogwildArena::Make(config, shared.value, shared.optimizer.get());
    for (std::uint64_t step = 0; step < 10; ++step) {
      const std::vector<float> gradient = Draw(step);
      const std::span<const float> whole(gradient);
      const std::span<const float> parts[] = {whole.first(3), whole.subspan(3, 60),
                                              whole.subspan(63)};
      optimizer->StepParts(parts, 0.5f, groups, value);
      shared->StepParts(parts, 0.5f, groups);
      EXPECT_EQ(shared.value, value) << name << ", step " << step;
    }
    shared->CountSteps();
    EXPECT_EQ(shared.optimizer->steps(), 11);
    optimizer->StepGroups(Draw(8), 1, groups, value);
    shared.optimizer->StepGroups(Draw(8), 1, groups, shared.value);
    EXPECT_EQ(shared.value, value) << name << ": its state is as if no threads had been there";
  }
}

// p threads add ones to the same elements: none is lost.
TEST(SharedArenaTest, LosesNoConcurrentUpdates) {
  constexpr std::int64_t kSteps = 200'000;
  for (const int threads : {2, 4, 8}) {
    OptimizerConfig config = ConfigOf("sgd");
    config.weight_decay = 0;  // the elements are counters
    const auto arena = MakeShared(config, std::vector<float>(3));
    const std::vector<float> ones(3, -1);
    const std::vector<std::int32_t> last{2};
    RunHogwild(threads, kSteps, [&](int, std::int64_t step) {
      if (step % 2 == 0) return arena->Step(ones, 1, 1);
      arena->StepSparse(last, std::span(ones).first(1), 1, 1);
    });
    EXPECT_EQ(arena->Get(0), float(kSteps / 2));
    EXPECT_EQ(arena->Get(2), float(kSteps));
    EXPECT_EQ(arena->steps(), std::uint64_t(kSteps));
  }
}

TEST(SharedArenaTest, RunsEachStepOnceAcrossThreads) {
  std::vector<std::atomic<int>> taken(1000);
  RunHogwild(4, 1000, [&](int thread, std::int64_t step) {
    EXPECT_LT(thread, 4);
    ++taken[std::size_t(step)];
  });
  for (const auto& times : taken) EXPECT_EQ(times, 1);
  RunHogwild(3, 0, [](int, std::int64_t) { ADD_FAILURE(); });
}

// Logistic regression of 4 of 8,000 features a sample (0.05 %), as in Recht et al. 2011, sec. 2.
class Sparse {
 public:
  static constexpr std::size_t kFeatures = 8000, kPerSample = 4;
  struct Sample {
    std::vector<std::int32_t> index;
    float label;
  };
  static Sample At(std::int64_t i) {
    Rng rng({.run_seed = 9, .index = std::uint64_t(i)});
    Sample sample{.label = 0};
    float sum = 0;
    while (sample.index.size() < kPerSample) {
      const auto feature = std::int32_t(rng.Below(kFeatures));
      if (std::ranges::find(sample.index, feature) != sample.index.end()) continue;
      sample.index.push_back(feature);
      sum += feature % 3 == 0 ? 1.5f : -1.0f;  // what is to be learned
    }
    sample.label = sum > 0 ? 1 : 0;
    return sample;
  }
  static double Loss(const HogwildArena& arena) {
    double loss = 0;
    constexpr int kSamples = 4000;
    for (int i = 0; i < kSamples; ++i) {
      const Sample sample = At(1'000'000 + i);
      const double p = Predict(arena, sample);
      loss -= std::log(std::max(sample.label > 0 ? p : 1 - p, 1e-12));
    }
    return loss / kSamples;
  }
  static double Predict(const HogwildArena& arena, const Sample& sample) {
    double sum = 0;
    for (const std::int32_t i : sample.index) sum += double(arena.Get(i));
    return 1 / (1 + std::exp(-sum));
  }
  static double Train(int threads, HogwildArena::Write write) {
    const auto arena = MakeShared(ConfigOf("sgd"), std::vector<float>(kFeatures), write);
    RunHogwild(threads, 60'000, [&](int, std::int64_t step) {
      const Sample sample = At(step);
      const std::vector<float> gradient(
          kPerSample, float(Predict(*arena.arena, sample) - double(sample.label)));
      arena->StepSparse(sample.index, gradient, 1, 0.5f);
    });
    return Loss(*arena.arena);
  }
};

TEST(SharedArenaTest, LockFreeSparseLearnersMatchSerialLoss) {
  const double serial = Sparse::Train(1, HogwildArena::Write::kExact);
  EXPECT_LT(serial, 0.45);  // 0.69 to begin with
  for (const int threads : {2, 4, 8}) {
    for (const auto write : {HogwildArena::Write::kExact, HogwildArena::Write::kRacy}) {
      const double loss = Sparse::Train(threads, write);
      EXPECT_NEAR(loss, serial, 0.01 * serial) << threads << " threads";
    }
  }
}

}  // namespace
}  // namespace troop
