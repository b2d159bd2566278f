// Steps per second of the native environments: vectors of 64, one thread, no policy, observations
// written.
//
// env_bench [--case NAME] [--quick]
//
// Prints one JSON object per case. Before a case is timed, 1,000 steps are compared byte by byte
// with single environments. `check` is the end of a short game, `play` the mean return of random
// play, both as in env_peers.py.
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bench/env_play.h"
#include "core/base/check.h"
#include "core/base/philox.h"
#include "envs/classic_control/classic_control.h"
#include "envs/minatar/breakout.h"
#include "envs/minatar/freeway.h"
#include "envs/minatar/space_invaders.h"
#include "envs/vector_env.h"

namespace troop {
namespace {

constexpr int kSize = 64;
constexpr int kVerifiedSteps = 1000;

constexpr int kCheckedSteps = 20;
constexpr int kPlayedSteps = 5000;  // per environment
constexpr double kPlayTolerance = 0.05;
constexpr double kRarePlayTolerance = 0.2;  // for rare rewards: four standard deviations

// Sum of rewards, then the last observation.
using CheckValues = std::vector<double>;

// State i starts at 0.01 (i + 1); the action at step t is t^2 mod n, or (t^2 mod 5 - 2) 3/4.
template <class Env>
CheckValues CheckClassic() {
  Env env;
  typename Env::State state;
  for (std::size_t i = 0; i < state.size(); ++i) state[i] = 0.01 * double(i + 1);
  env.set_state(state);
  std::vector<float> observation(env.spec().observation.shape.elements());
  double reward = 0;
  for (int t = 0; t < kCheckedSteps; ++t) {
    const ActionSpec& spec = env.spec().action;
    const std::int32_t discrete = spec.discrete() ? t * t % std::int32_t(spec.count) : 0;
    const float torque = float(t * t % 5 - 2) * 0.75f;
    const auto action = spec.discrete() ? std::as_bytes(std::span(&discrete, 1))
                                        : std::as_bytes(std::span(&torque, 1));
    reward += double(env.Step(action, std::as_writable_bytes(std::span(observation))).reward);
  }
  CheckValues values{reward};
  values.insert(values.end(), observation.begin(), observation.end());
  return values;
}

// A game without random choices after its first state. The cells of all steps are summed with
// weights 1, 2, 3 ...
template <class Game, class Policy>
CheckValues CheckGame(typename Game::State state, const Policy& policy) {
  double reward = 0, sum = 0;
  std::vector<std::uint8_t> cells(minatar::kSide * minatar::kSide * Game::kChannels);
  for (int t = 0; t < kCheckedSteps; ++t) {
    const minatar::Outcome outcome = Game::Advance(&state, policy(t), {});
    reward += outcome.reward;
    Game::Write(state, cells.data());
    for (std::size_t i = 0; i < cells.size(); ++i) sum += double(i + 1) * cells[i];
    if (outcome.lost) break;
  }
  return {reward, sum};
}

// The ball starts at the left, no sticky actions; the paddle moves right in the first step and then
// stays.
CheckValues CheckBreakout() {
  return CheckGame<Breakout>(Breakout::Start(false),
                             [](int t) { return t == 0 ? minatar::kRight : minatar::kNone; });
}

// Cars of speeds 1, -1, 2, -2 ..., and a chicken that goes up.
CheckValues CheckFreeway() {
  Freeway::Speeds speeds{1, -1, 2, -2, 3, -3, 4, -4};
  return CheckGame<Freeway>(Freeway::Start(speeds), [](int) { return minatar::kUp; });
}

CheckValues CheckSpaceInvaders() {
  return CheckGame<SpaceInvaders>(
      SpaceInvaders::State{}, [](int t) { return t % 3 == 0 ? minatar::kFire : minatar::kLeft; });
}

struct Case {
  const char* name;
  const char* id;
  CheckValues (*check)();  // nullptr: no peer can be put into a known state
  double play_tolerance = kPlayTolerance;
};
constexpr Case kCases[] = {
    {"cartpole-64", "CartPole-v1", &CheckClassic<CartPole>},
    {"breakout-64", "MinAtar/Breakout-v0", &CheckBreakout},
    {"asterix-64", "MinAtar/Asterix-v0", nullptr, kRarePlayTolerance},
    {"freeway-64", "MinAtar/Freeway-v0", &CheckFreeway},
    {"seaquest-64", "MinAtar/Seaquest-v0", nullptr, kRarePlayTolerance},
    {"spaceinvaders-64", "MinAtar/SpaceInvaders-v0", &CheckSpaceInvaders},
    {"acrobot-64", "Acrobot-v1", &CheckClassic<Acrobot>},
    {"mountaincar-64", "MountainCar-v0", &CheckClassic<MountainCar>},
    {"pendulum-64", "Pendulum-v1", &CheckClassic<Pendulum>},
    {"catch-64", "Catch-v0", nullptr},
};

struct Options {
  std::string only;
  bool quick = false;
};

std::unique_ptr<VectorEnv> Make(const char* id) {
  auto env = MakeVectorEnv(id, {}, kSize, CountingSeeder());
  TROOP_CHECK(env.ok(), "{}", env.status().ToString());
  return std::move(env).value();
}

void Verify(const char* id, const std::vector<Tensor>& actions) {
  auto vector = Make(id);
  vector->SubmitReset();
  const StepBatch* batch = vector->Poll();
  const EpisodeSeeder seeder = CountingSeeder();
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
      const StepResult step =
          singles[i]->Step(action.bytes().subspan(i * action_bytes, action_bytes), observation);
      if (step.terminated || step.truncated) singles[i]->Reset(seeder(i), observation);
      TROOP_CHECK(step.reward == batch->reward.as<float>()[i] &&
                      std::memcmp(observation.data(), batch->observation.bytes().data() + i * row,
                                  row) == 0,
                  "{}: environment {} differs from a single one at step {}", id, i, t);
    }
  }
}

// Mean return of the episodes that end within kPlayedSteps steps of random actions.
double PlayAtRandom(const char* id) {
  auto env = Make(id);
  env->SubmitReset();
  env->Poll();
  Rng rng({.run_seed = 2, .purpose = Purpose::kSynthetic});
  std::vector<double> running(kSize, 0);
  double total = 0;
  int episodes = 0;
  for (int t = 0; t < kPlayedSteps; ++t) {
    env->Submit(DrawAction(env->spec().action, kSize, &rng));
    const StepBatch* const batch = env->Poll();
    for (std::size_t i = 0; i < kSize; ++i) {
      running[i] += double(batch->reward.as<float>()[i]);
      if (batch->terminated.as<std::uint8_t>()[i] + batch->truncated.as<std::uint8_t>()[i] == 0)
        continue;
      total += running[i];
      running[i] = 0;
      ++episodes;
    }
  }
  TROOP_CHECK(episodes > 0, "{}: no episode ended", id);
  return total / episodes;
}

void Run(const Case& which, const Options& options) {
  auto env = Make(which.id);
  const std::vector<Tensor> actions = DrawActions(env->spec().action, kSize);
  Verify(which.id, actions);
  env->SubmitReset();
  env->Poll();
  const double seconds = options.quick ? 0.1 : 0.3;
  StepsPerSecond(env.get(), actions, seconds / 5);  // warm-up
  std::printf("{\"case\": \"%s\", \"metric\": \"steps_per_s\", \"unit\": \"steps/s\", ",
              which.name);
  std::printf("\"values\": [");
  for (int i = 0; i < kRepeats; ++i) {
    std::printf("%s%.0f", i == 0 ? "" : ", ", StepsPerSecond(env.get(), actions, seconds));
  }
  std::printf("]");
  if (which.check != nullptr) {
    const CheckValues check = which.check();
    for (std::size_t i = 0; i < check.size(); ++i) {
      std::printf("%s%.9g", i == 0 ? ", \"check\": [" : ", ", check[i]);
    }
    std::printf("]");
  }
  std::printf(", \"play\": [%.9g], \"play_tolerance\": %g}\n", PlayAtRandom(which.id),
              which.play_tolerance);
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
  std::fprintf(stderr, "unknown case \"%s\"; known:", options.only.c_str());
  for (const Case& which : kCases) std::fprintf(stderr, " %s", which.name);
  std::fprintf(stderr, "\n");
  return 2;
}

}  // namespace
}  // namespace troop

int main(int argc, char** argv) { return troop::Main(argc, argv); }
