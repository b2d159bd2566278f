// Declares the config keys of the evaluation environment, and applies them.
#include "actors/evaluation_env_config.h"

#include <algorithm>

#include "core/config/config_visitor.h"

namespace troop {

void VisitKeys(EvaluationEnvConfig& c, ConfigVisitor& v) {
  v.Visit({"evaluator.env.id",
           "Environment of evaluation episodes, with the observations and actions of env.id; empty "
           "means env.id."},
          c.id);
  v.Visit({"evaluator.env.options",
           "Options of evaluation episodes; each replaces the option of env.options with its name, "
           "or is added."},
          c.options);
  v.Visit({"evaluator.env.wrappers",
           "Python only: wrappers of evaluation episodes; the entry \"env.wrappers\" stands for "
           "those of training."},
          c.wrappers);
  v.Visit({"evaluator.env.max_episode_steps",
           "Agent steps after which an evaluation episode is truncated; 0 means no limit of the "
           "environment, -1 the environment's own, -2 env.max_episode_steps.",
           Between(-2, kConfigMany)},
          c.max_episode_steps);
  v.Visit({"evaluator.env.sticky_actions",
           "Probability that the previous action is repeated in evaluation episodes; -1 keeps the "
           "environment's own, -2 means env.sticky_actions.",
           Between(-2, 1)},
          c.sticky_actions);
  v.Visit({.name = "evaluator.env.difficulty_ramping",
           .doc = "Difficulty of MinAtar games in evaluation episodes. \"on\": it increases over "
                  "time; \"off\": it stays; \"same\": env.difficulty_ramping."},
          c.difficulty_ramping);
  v.Visit({"evaluator.env.noop_max",
           "Atari only: maximum number of no-op frames at the start of an evaluation episode; -1 "
           "means env.noop_max.",
           Between(-1, 10000)},
          c.noop_max);
  v.Visit({"evaluator.env.reward_scale",
           "Factor by which rewards of evaluation episodes are multiplied; 0 means "
           "env.reward_scale."},
          c.reward_scale);
  v.Visit(
      {"evaluator.env.seed",
       "Seed of the evaluation episodes: every evaluation plays the same ones, in all runs with "
       "this value; -1 derives new episodes for each evaluation from seed.",
       Between(-1, kConfigMany)},
      c.seed);
}

EnvConfig EvaluationEnv(const EnvConfig& training, const EvaluationEnvConfig& differences) {
  EnvConfig env = training;
  env.metrics = false;  // those of a run are its actors'
  const EvaluationEnvConfig& d = differences;
  if (!d.id.empty()) env.id = d.id;
  for (const EnvOption& option : d.options) {
    const auto at = std::ranges::lower_bound(env.options, option.name, {}, &EnvOption::name);
    if (at != env.options.end() && at->name == option.name) {
      at->value = option.value;
    } else {
      env.options.insert(at, option);
    }
  }
  // Expands the entry for the training wrappers in its place.
  env.wrappers.clear();
  for (const std::string& wrapper : d.wrappers) {
    if (wrapper == kTrainingWrappers) {
      env.wrappers.insert(env.wrappers.end(), training.wrappers.begin(), training.wrappers.end());
    } else {
      env.wrappers.push_back(wrapper);
    }
  }
  // Values that no environment has mean those of training.
  if (d.max_episode_steps >= -1) env.max_episode_steps = d.max_episode_steps;
  if (d.sticky_actions >= -1) env.sticky_actions = d.sticky_actions;
  if (d.difficulty_ramping != EvaluationSwitch::kSame) {
    env.difficulty_ramping = d.difficulty_ramping == EvaluationSwitch::kOn;
  }
  if (d.noop_max >= 0) env.noop_max = d.noop_max;
  if (d.reward_scale != 0) env.reward_scale = d.reward_scale;
  return env;
}

}  // namespace troop
