// Steps per second of the native environments: vectors of 64, one thread, no policy, observations
// written. Each case first plays 1,000 steps beside single environments and compares all bytes.
// Prints one JSON object per case. Options: --case NAME, --quick.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "core/rng.h"
#include "envs/vector_env.h"

namespace troop {
namespace {

constexpr int kSize = 64;
constexpr int kActionBatches = 64;  // drawn before the clock runs, played in turn
constexpr int kVerifiedSteps = 1000;

struct Case {
  const char* name;
  const char* id;
};
constexpr Case kCases[] = {
    {"cartpole-64", "CartPole-v1"},       {"breakout-64", "MinAtar/Breakout-v0"},
    {"acrobot-64", "Acrobot-v1"},         {"mountaincar-64", "MountainCar-v0"},
    {"pendulum-64", "Pendulum-v1"},       {"catch-64", "Catch-v0"},
};

struct Options {
  std::string only;
  bool quick = false;
};

EpisodeSeeder MakeSeeder() {
  auto episodes = std::make_shared<std::vector<std::uint64_t>>(kSize, 0);
  return [episodes](int index) {
    return DeriveSeed({.run_seed = 1,
                       .purpose = Purpose::kEnvironment,
                       .index = std::uint64_t(index),
                       .episode = (*episodes)[index]++});
  };
}

std::vector<Tensor> DrawActions(const ActionSpec& spec) {
  Rng rng({.purpose = Purpose::kSynthetic});
  std::vector<Tensor> batches;
  for (int i = 0; i < kActionBatches; ++i) {
    const TensorSpec one = spec.tensor();
    Tensor batch(one.dtype, one.shape.Prepend(kSize));
    if (spec.discrete()) {
      for (auto& a : batch.as<std::int32_t>()) a = std::int32_t(rng.Below(std::uint32_t(spec.count)));
    } else {
      for (auto& a : batch.as<float>()) a = float(rng.Uniform(spec.low[0], spec.high[0]));
    }
    batches.push_back(batch);
  }
  return batches;
}

std::unique_ptr<VectorEnv> Make(const char* id) {
  auto env = MakeVectorEnv(id, {}, kSize, MakeSeeder());
  TROOP_CHECK(env.ok(), "{}", env.status().ToString());
  return std::move(env).value();
}

void Verify(const char* id, const std::vector<Tensor>& actions) {
  auto vector = Make(id);
  vector->SubmitReset();
  const StepBatch* batch = vector->Poll();
  const EpisodeSeeder seeder = MakeSeeder();
  std::vector<std::unique_ptr<Environment>> singles;
  const std::size_t row = vector->spec().observation.bytes();
  const std::size_t action_bytes = vector->spec().action.tensor().bytes();
  std::vector<std::byte> observation(row);
  for (int i = 0; i < kSize; ++i) {
    auto env = MakeEnvironment(id, {});
    TROOP_CHECK(env.ok(), "{}", env.status().ToString());
    singles.push_back(std::move(env).value());
    singles[i]->Reset(seeder(i), observation);
  }
  for (int t = 0; t < kVerifiedSteps; ++t) {
    const Tensor& action = actions[t % kActionBatches];
    vector->Submit(action);
    batch = vector->Poll();
    for (int i = 0; i < kSize; ++i) {
      const StepResult step = singles[i]->Step(
          action.bytes().subspan(i * action_bytes, action_bytes), observation);
      if (step.terminated || step.truncated) singles[i]->Reset(seeder(i), observation);
      TROOP_CHECK(step.reward == batch->reward.as<float>()[i] &&
                      std::memcmp(observation.data(), batch->observation.bytes().data() + i * row,
                                  row) == 0,
                  "{}: environment {} differs from a single one at step {}", id, i, t);
    }
  }
}

double StepsPerSecond(VectorEnv* env, const std::vector<Tensor>& actions, double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  std::int64_t steps = 0;
  double elapsed = 0;
  while (elapsed < seconds) {
    for (const Tensor& action : actions) {
      env->Submit(action);
      TROOP_CHECK(env->Poll() != nullptr, "a native environment is ready at once");
    }
    steps += std::int64_t(actions.size()) * kSize;
    elapsed = std::chrono::duration<double>(Clock::now() - start).count();
  }
  return double(steps) / elapsed;
}

void Run(const Case& which, const Options& options) {
  auto env = Make(which.id);
  const std::vector<Tensor> actions = DrawActions(env->spec().action);
  Verify(which.id, actions);
  env->SubmitReset();
  env->Poll();
  const double seconds = options.quick ? 0.1 : 0.5;
  StepsPerSecond(env.get(), actions, seconds / 5);  // warms up
  const int repeats = options.quick ? 5 : 9;
  std::printf("{\"case\": \"%s\", \"metric\": \"steps_per_s\", \"unit\": \"steps/s\", \"values\": [",
              which.name);
  for (int i = 0; i < repeats; ++i) {
    std::printf("%s%.0f", i == 0 ? "" : ", ", StepsPerSecond(env.get(), actions, seconds));
  }
  std::printf("]}\n");
  std::fflush(stdout);
}

int Main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--quick") {
      options.quick = true;
    } else if (argument == "--case" && i + 1 < argc) {
      options.only = argv[++i];
    } else {
      std::fprintf(stderr, "usage: %s [--case NAME] [--quick]\n", argv[0]);
      return 2;
    }
  }
  bool found = false;
  for (const Case& which : kCases) {
    if (!options.only.empty() && options.only != which.name) continue;
    found = true;
    Run(which, options);
  }
  if (found) return 0;
  std::fprintf(stderr, "no case is named \"%s\"; known:", options.only.c_str());
  for (const Case& which : kCases) std::fprintf(stderr, " %s", which.name);
  std::fprintf(stderr, "\n");
  return 2;
}

}  // namespace
}  // namespace troop

int main(int argc, char** argv) { return troop::Main(argc, argv); }
