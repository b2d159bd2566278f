// Overhead of the bridges to environments that are not native.
//
// env_bridge_bench --part plugin [--quick]                 a plug-in next to the same native code
// env_bridge_bench --part gymnasium|atari --python PATH    through Python worker processes
//
// Prints one JSON object per case and side, see bench/README.md. Plug-in and native environment are
// timed in turn, after a byte comparison over 1,000 steps.
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bench/env_play.h"
#include "core/base/check.h"
#include "core/base/version.h"

namespace troop {
namespace {

struct Options {
  std::string part, python = "python3", plugin;
  bool quick = false;
};

std::unique_ptr<VectorEnv> Make(const char* id, const EnvOptions& options, int size) {
  auto env = MakeVectorEnv(id, options, size, CountingSeeder());
  TROOP_CHECK(env.ok(), "{}", env.status().ToString());
  (*env)->SubmitReset();
  TROOP_CHECK((*env)->Poll() != nullptr, "{}", (*env)->status().ToString());
  return std::move(env).value();
}

void Print(const std::string& name, const char* metric, const char* unit,
           const std::vector<double>& values, const std::string& more) {
  std::printf("{\"case\": \"%s\", \"metric\": \"%s\", \"unit\": \"%s\", \"values\": [",
              name.c_str(), metric, unit);
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::printf("%s%.6g", i == 0 ? "" : ", ", values[i]);
  }
  std::printf("]%s}\n", more.c_str());
  std::fflush(stdout);
}

// Sum of the observations' bytes and of the rewards over 1,000 steps, equal for both.
double Compare(VectorEnv* a, VectorEnv* b, const std::vector<Tensor>& actions) {
  double sum = 0;
  for (int t = 0; t < 1000; ++t) {
    const Tensor& action = actions[std::size_t(t) % actions.size()];
    const StepBatch& one = StepAll(a, action);
    const StepBatch& other = StepAll(b, action);
    for (const auto part : {&StepBatch::observation, &StepBatch::reward, &StepBatch::terminated,
                            &StepBatch::truncated}) {
      const auto mine = (one.*part).bytes(), its = (other.*part).bytes();
      TROOP_CHECK(std::memcmp(mine.data(), its.data(), its.size()) == 0,
                  "{}: plug-in and native environment differ at step {}", a->spec().id, t);
    }
    for (const float reward : one.reward.as<float>()) sum += double(reward);
  }
  return sum;
}

void RunPlugin(const char* name, const char* id, const Options& options) {
  constexpr int kSize = 64;
  const auto plugin = Make(id, {.plugin = options.plugin, .isolation = Isolation::kNone}, kSize);
  const auto native = Make(id, {}, kSize);
  const auto actions = DrawActions(native->spec().action, kSize);
  const double sum = Compare(plugin.get(), native.get(), actions);
  const double seconds = options.quick ? 0.1 : 0.3;
  std::vector<double> values, natives;
  for (int i = 0; i <= kRepeats; ++i) {
    const double here = StepsPerSecond(plugin.get(), actions, seconds);
    const double there = StepsPerSecond(native.get(), actions, seconds);
    if (i == 0) continue;  // warm-up
    values.push_back(here);
    natives.push_back(there);
  }
  const std::string check = fmt::format(", \"check\": [{}]", sum);
  Print(name, "steps_per_s", "steps/s", values, check);
  Print(name, "steps_per_s", "steps/s", natives,
        check + fmt::format(", \"peer\": \"native\", \"peer_version\": \"{}\"", kTroopVersion));
}

// Steps per second of Python environments, including everything that an actor waits for.
struct Bridged {
  const char* name;
  const char* id;
  EnvOptions options;
  int frames = 1;  // frames per step; rates count frames
  const char* metric = "steps_per_s";
  const char* unit = "steps/s";
  bool pixels = false;  // `play` is the brightness of observations, else the length of episodes
};
constexpr int kBridgedSize = 8;
constexpr int kCheckedSteps = 200, kPlayedSteps = 400;

double Sum(const ConstTensor& tensor) {
  double sum = 0;
  if (tensor.dtype() == DType::kU8) {
    for (const std::uint8_t x : tensor.as<std::uint8_t>()) sum += x;
  } else {
    for (const float x : tensor.as<float>()) sum += double(x);
  }
  return sum;
}

// One game from its start with action t^2 mod n at step t: sums of rewards and pixels.
std::string CheckOf(const Bridged& which) {
  if (!which.pixels) return {};
  EnvOptions options = which.options;
  options.noop_max = 0;
  const auto env = Make(which.id, options, 1);
  Tensor action(DType::kI32, {1});
  double reward = 0, pixels = 0;
  for (int t = 0; t < kCheckedSteps; ++t) {
    action.as<std::int32_t>()[0] = t * t % std::int32_t(env->spec().action.count);
    const StepBatch& batch = StepAll(env.get(), action);
    reward += Sum(batch.reward);
    pixels += Sum(batch.observation);
  }
  return fmt::format(", \"check\": [{}, {}]", reward, pixels);
}

// Random play: mean of all pixels, or mean length of completed episodes.
std::string PlayOf(const Bridged& which) {
  const auto env = Make(which.id, which.options, kBridgedSize);
  Rng rng({.run_seed = 2, .purpose = Purpose::kSynthetic});
  double pixels = 0, ends = 0;
  const int steps = which.pixels ? kPlayedSteps : 10 * kPlayedSteps;
  for (int t = 0; t < steps; ++t) {
    const StepBatch& batch = StepAll(env.get(), DrawAction(env->spec().action, kBridgedSize, &rng));
    ends += Sum(batch.terminated) + Sum(batch.truncated);
    if (which.pixels) pixels += Sum(batch.observation) / double(batch.observation.elements());
  }
  const double mean = which.pixels ? pixels / steps : double(steps) * kBridgedSize / ends;
  return fmt::format(", \"play\": [{}], \"play_tolerance\": {}", mean, which.pixels ? 0.01 : 0.05);
}

void RunBridged(const Bridged& which, const Options& options) {
  const auto env = Make(which.id, which.options, kBridgedSize);
  const auto actions = DrawActions(env->spec().action, kBridgedSize);
  const double seconds = options.quick ? 0.5 : 2;
  StepsPerSecond(env.get(), actions, seconds / 4);  // warm-up
  std::vector<double> values;
  for (int i = 0; i < kRepeats; ++i) {
    values.push_back(which.frames * StepsPerSecond(env.get(), actions, seconds));
  }
  Print(which.name, which.metric, which.unit, values, CheckOf(which) + PlayOf(which));
}

// Share of the bridge in a step, by the processes' own clocks.
void RunShare(const Bridged& which, const Options& options) {
  EnvOptions measured = which.options;
  measured.measure = true;
  const auto env = Make(which.id, measured, kBridgedSize);
  const auto actions = DrawActions(env->spec().action, kBridgedSize);
  const double seconds = options.quick ? 0.5 : 2;
  StepsPerSecond(env.get(), actions, seconds / 4);
  std::vector<double> values;
  for (int i = 0; i < kRepeats; ++i) {
    const Duration before = env->inside().value_or(Duration{});
    const auto begin = std::chrono::steady_clock::now();
    const double per_s = StepsPerSecond(env.get(), actions, seconds);
    const double took = ToSeconds(std::chrono::steady_clock::now() - begin);
    const double inside = ToSeconds(env->inside().value_or(Duration{}) - before);
    values.push_back((took - inside) / (per_s * took) * 1e6);
  }
  Print(which.name, "bridge_us_per_step", "us", values, "");
}

int Main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--quick") {
      options.quick = true;
    } else if (argument == "--part" && i + 1 < argc) {
      options.part = argv[++i];
    } else if (argument == "--python" && i + 1 < argc) {
      options.python = argv[++i];
    }
  }
  options.plugin = std::filesystem::path(argv[0]).parent_path() / "env_plugin.so";
  if (options.part == "plugin") {
    RunPlugin("plugin-mountaincar-64", "MountainCar-v0", options);
    RunPlugin("plugin-acrobot-64", "Acrobot-v1", options);
    return 0;
  }
  Bridged which{.name = "gymnasium-cartpole-8", .id = "gymnasium:CartPole-v1"};
  if (options.part == "atari") {
    which = {.name = "ale-pong-8",
             .id = "ALE/Pong-v5",
             .options = {.sticky_actions = 0, .action_repeat = 4, .noop_max = 30},
             .frames = 4,
             .metric = "frames_per_s",
             .unit = "frames/s",
             .pixels = true};
  } else if (options.part != "gymnasium") {
    std::fprintf(stderr, "usage: %s --part plugin|gymnasium|atari [--python PATH] [--quick]\n",
                 argv[0]);
    return 2;
  }
  which.options.python = options.python;
  which.options.wait = true;
  RunBridged(which, options);
  if (options.part == "gymnasium") RunShare(which, options);
  return 0;
}

}  // namespace
}  // namespace troop

int main(int argc, char** argv) { return troop::Main(argc, argv); }
