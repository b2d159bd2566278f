// env_trace ID SEED STEPS [KEY=VALUE...]: plays an environment as Troop's runs do, in a vector of
// one, and prints each step for tests/python/native_env_test.py. The actions follow from the number
// of the step, the seeds of later episodes from the seed of the first one.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "core/base/philox.h"
#include "envs/vector_env.h"

namespace {

using namespace troop;  // NOLINT: a program of one file

std::string Hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte b : bytes) text += fmt::format("{:02x}", int(b));
  return text;
}

EnvOptions OptionsOf(int argc, char** argv) {
  EnvOptions options;
  for (int i = 4; i < argc; ++i) {
    const std::string_view text = argv[i];
    const std::string value(text.substr(text.find('=') + 1));
    if (text.starts_with("max_episode_steps=")) options.max_episode_steps = std::stoll(value);
    if (text.starts_with("sticky_actions=")) options.sticky_actions = std::stod(value);
    if (text.starts_with("reward_scale=")) options.reward_scale = std::stod(value);
    if (text.starts_with("action_repeat=")) options.action_repeat = std::stoi(value);
    if (text.starts_with("difficulty_ramping=")) options.difficulty_ramping = value == "True";
  }
  return options;
}

// The rule that the test repeats in Python.
void Choose(const ActionSpec& spec, int step, const Tensor& action) {
  const int value = (step * 7 + step * step / 5) % 11;
  if (spec.discrete()) {
    action.as<std::int32_t>()[0] = std::int32_t(value % spec.count);
    return;
  }
  for (std::size_t k = 0; k < spec.low.size(); ++k) {
    action.as<float>()[k] = spec.low[k] + (spec.high[k] - spec.low[k]) * float(value) / 16;
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t seed = std::strtoull(argv[2], nullptr, 10);
  std::uint64_t episode = 0;
  const auto seeder = [&](int) {
    const std::uint64_t number = episode++;
    return number == 0
               ? seed
               : DeriveSeed(
                     {.run_seed = seed, .purpose = Purpose::kEnvironment, .episode = number});
  };
  auto made = MakeVectorEnv(argv[1], OptionsOf(argc, argv), 1, seeder);
  if (!made.ok()) {
    fmt::print(stderr, "{}\n", made.status().ToString());
    return 1;
  }
  VectorEnv& env = **made;
  const TensorSpec one = env.spec().action.tensor();
  const Tensor action(one.dtype, one.shape.Prepend(1));
  env.SubmitReset();
  fmt::print("{}\n", Hex(env.Poll()->observation.bytes()));
  // One line per step: reward, flags, observation, and after an end the last observation.
  for (int step = 0; step < std::atoi(argv[3]); ++step) {
    Choose(env.spec().action, step, action);
    env.Submit(action);
    const StepBatch* batch = env.Poll();
    const bool terminated = batch->terminated.as<std::uint8_t>()[0] != 0;
    const bool truncated = batch->truncated.as<std::uint8_t>()[0] != 0;
    fmt::print("{} {} {} {} {}\n", Hex(batch->reward.bytes()), int(terminated), int(truncated),
               Hex(batch->observation.bytes()),
               terminated || truncated ? Hex(batch->final_observation.bytes()) : "-");
  }
}
