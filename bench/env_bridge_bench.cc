// What stands between Troop and environments that are not its own.
//
//   env_bridge_bench --part plugin [--quick]                 a plug-in, beside the same code inside
//   env_bridge_bench --part gymnasium|atari --python PATH    through the worker processes of Python
//
// Prints one JSON object per case and side, as bench/README.md says. Plug-in and native environment
// are timed in turn, after 1,000 steps of which all bytes were compared.
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bench/env_play.h"
#include "core/check.h"
#include "core/version.h"

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

// Sum of the observations' bytes and of the rewards over 1,000 steps, the same of both.
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
    if (i == 0) continue;  // warms up
    values.push_back(here);
    natives.push_back(there);
  }
  const std::string check = fmt::format(", \"check\": [{}]", sum);
  Print(name, "steps_per_s", "steps/s", values, check);
  Print(name, "steps_per_s", "steps/s", natives,
        check + fmt::format(", \"peer\": \"native\", \"peer_version\": \"{}\"", kTroopVersion));
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
  return 2;
}

}  // namespace
}  // namespace troop

int main(int argc, char** argv) { return troop::Main(argc, argv); }
