#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/config/enum_names.h"
#include "core/config/env_option.h"

namespace troop {

class ConfigVisitor;

// Processes that host the environments.
enum class Isolation : std::uint8_t {
  kAuto,     // separate processes for plug-ins and Python only
  kProcess,  // separate processes
  kNone,     // the actor's own process
};
constexpr auto EnumNames(Isolation) {
  return std::to_array<std::string_view>({"auto", "process", "none"});
}

// The environment of a run ([env]).
struct EnvConfig {
  std::string id = "CartPole-v1";
  std::int64_t max_episode_steps = -1;
  double sticky_actions = -1;
  bool difficulty_ramping = true;
  double reward_scale = 1;
  double reward_clip = 0;             // clips rewards to [-c, c] in the learner; 0: off
  bool normalize_rewards = false;     // the learner divides them by the deviation of returns
  double observation_clip = 0;        // clips observations to [-c, c]; 0: off
  std::int64_t action_repeat = 1;     // environment steps per agent step
  std::int64_t frame_stack = 1;       // consecutive observations in the network input
  std::int64_t noop_max = 0;          // maximum number of initial no-ops (Atari)
  std::string plugin;                 // shared library (envs/plugin/troop_env.h); empty: none
  bool action_mask = false;           // choose only actions that the environment's mask allows
  double action_bound = 0;            // Python: of action components without one; 0: refused
  bool metrics = false;               // collect the numbers that the environment reports
  std::vector<EnvOption> options;     // options of the plug-in or Python environment, by name
  std::vector<std::string> wrappers;  // Python: "module:callable", in order of application
  std::string python = "python3";     // interpreter of Python environments
  Isolation isolation = Isolation::kAuto;
  std::int64_t processes = 1;     // processes that share the environments of an actor
  double start_timeout_s = 60;    // until a process is ready
  double step_timeout_s = 10;     // for one step of one environment
  std::int64_t faults_max = 100;  // per environment, without a complete episode in between
  bool operator==(const EnvConfig&) const = default;
};
// Declares the keys.
void VisitKeys(EnvConfig& config, ConfigVisitor& visitor);

}  // namespace troop
