#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/config/enum_names.h"
#include "core/config/env_option.h"
#include "envs/env_config.h"

namespace troop {

class ConfigVisitor;

// A switch of evaluation episodes.
enum class EvaluationSwitch : std::uint8_t {
  kSame,  // the value of training
  kOff,
  kOn,
};
constexpr auto EnumNames(EvaluationSwitch) {
  return std::to_array<std::string_view>({"same", "off", "on"});
}

// The entry of EvaluationEnvConfig::wrappers that stands for env.wrappers.
inline constexpr char kTrainingWrappers[] = "env.wrappers";

// How evaluation episodes differ from those of the actors ([evaluator.env]). The defaults mean no
// difference. Observations and actions must stay those of [env], since the network fits them.
struct EvaluationEnvConfig {
  std::string id;                  // empty: env.id
  std::vector<EnvOption> options;  // over env.options, by name
  std::vector<std::string> wrappers{kTrainingWrappers};
  std::int64_t max_episode_steps = -2;  // -2: env.max_episode_steps
  double sticky_actions = -2;           // -2: env.sticky_actions
  EvaluationSwitch difficulty_ramping = EvaluationSwitch::kSame;
  std::int64_t noop_max = -1;  // -1: env.noop_max
  double reward_scale = 0;     // 0: env.reward_scale
  std::int64_t seed = -1;      // -1: from the run's seed, other episodes in each evaluation
  bool operator==(const EvaluationEnvConfig&) const = default;
};
// Declares the keys.
void VisitKeys(EvaluationEnvConfig& config, ConfigVisitor& visitor);

// The environment of evaluation episodes: that of training with these differences. Options stay
// sorted by name.
EnvConfig EvaluationEnv(const EnvConfig& training, const EvaluationEnvConfig& differences);

// True if both run the same user-written code, so that EnvSpec::code of one holds for the other.
inline bool HaveSameCode(const EnvConfig& a, const EnvConfig& b) {
  return a.id == b.id && a.plugin == b.plugin && a.wrappers == b.wrappers;
}

}  // namespace troop
