#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <vector>

#include "core/base/check.h"
#include "core/base/philox.h"
#include "envs/vector_env.h"

// Shared by the programs of the suite env: seeds, actions, and the clock.
namespace troop {

inline constexpr int kActionBatches = 64;  // generated before the clock runs, used in turn
inline constexpr int kRepeats = 5;

inline EpisodeSeeder CountingSeeder() {
  auto episodes = std::make_shared<std::map<int, std::uint64_t>>();
  return [episodes](int index) {
    return DeriveSeed({.run_seed = 1,
                       .purpose = Purpose::kEnvironment,
                       .index = std::uint64_t(index),
                       .episode = (*episodes)[index]++});
  };
}

// Random actions: [size, ...action].
inline Tensor DrawAction(const ActionSpec& spec, int size, Rng* rng) {
  const TensorSpec one = spec.tensor();
  Tensor batch(one.dtype, one.shape.Prepend(size));
  if (spec.discrete()) {
    const auto count = std::uint32_t(spec.count);
    for (auto& a : batch.as<std::int32_t>()) a = std::int32_t(rng->Below(count));
  } else {
    for (auto& a : batch.as<float>()) a = float(rng->Uniform(spec.low[0], spec.high[0]));
  }
  return batch;
}

inline std::vector<Tensor> DrawActions(const ActionSpec& spec, int size) {
  Rng rng({.purpose = Purpose::kSynthetic});
  std::vector<Tensor> batches;
  for (int i = 0; i < kActionBatches; ++i) batches.push_back(DrawAction(spec, size, &rng));
  return batches;
}

// Steps per second of a vector. REQUIRES: options.wait if environments are in worker processes.
// Aborts if they fail.
inline const StepBatch& StepAll(VectorEnv* env, const Tensor& action) {
  env->Submit(action);
  const StepBatch* const batch = env->Poll();
  TROOP_CHECK(batch != nullptr, "{}", env->status().ToString());
  return *batch;
}

// Counts steps of single environments.
inline double StepsPerSecond(VectorEnv* env, const std::vector<Tensor>& actions, double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  std::int64_t steps = 0;
  double elapsed = 0;
  while (elapsed < seconds) {
    for (const Tensor& action : actions) StepAll(env, action);
    steps += std::int64_t(actions.size()) * env->size();
    elapsed = std::chrono::duration<double>(Clock::now() - start).count();
  }
  return double(steps) / elapsed;
}

}  // namespace troop
