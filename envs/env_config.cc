// Declares the config keys of the environment.
#include "envs/env_config.h"

#include "core/config/config_visitor.h"

namespace troop {

void VisitKeys(EnvConfig& c, ConfigVisitor& v) {
  v.Visit({"env.id",
           "Name of the environment; an unknown name is reported with the list of known ones."},
          c.id);
  v.Visit({"env.max_episode_steps",
           "Agent steps after which an episode is truncated; 0 means no limit, -1 the "
           "environment's own.",
           Between(-1, kConfigMany)},
          c.max_episode_steps);
  v.Visit({"env.sticky_actions",
           "Probability that the previous action is repeated instead of the chosen one; -1 keeps "
           "the environment's own.",
           Between(-1, 1)},
          c.sticky_actions);
  v.Visit({"env.difficulty_ramping", "Increase the difficulty of MinAtar games over time."},
          c.difficulty_ramping);
  // Rewards and frames.
  v.Visit({"env.reward_scale", "Factor by which the actor multiplies rewards."}, c.reward_scale);
  v.Visit({"env.reward_clip",
           "Bound x of the rewards, which the learner clips to [-x, x]; 0 disables clipping.",
           AtLeast(0)},
          c.reward_clip);
  v.Visit({"env.normalize_rewards",
           "Divide the learner's rewards by the running standard deviation of the discounted "
           "return, before env.reward_clip applies (docs/guide/environments.md). Reported returns "
           "are not divided."},
          c.normalize_rewards);
  v.Visit({"env.observation_clip",
           "Bound x of the elements of an observation, which are clipped to [-x, x]; 0 disables "
           "clipping. For observations of f32 only.",
           AtLeast(0)},
          c.observation_clip);
  v.Visit({"env.action_repeat",
           "Environment steps (Atari: frames) per agent step; the action is repeated.",
           Between(1, 1000)},
          c.action_repeat);
  v.Visit({"env.frame_stack",
           "Number of consecutive observations in the network input, zero-padded at the start of "
           "an episode.",
           Between(1, 64)},
          c.frame_stack);
  v.Visit(
      {"env.noop_max",
       "Atari only: maximum number of no-op frames at the start of an episode; each episode draws "
       "its number from 1 to this value. 0 disables them.",
       Between(0, 10000)},
      c.noop_max);
  // Implementation of the environment.
  v.Visit({"env.plugin",
           "Shared library that implements the environment (docs/guide/environments.md); empty for "
           "built-in and Python environments."},
          c.plugin);
  v.Visit({"env.options",
           "Options passed unchanged to the environment: those of a plug-in, or keyword arguments "
           "in Python, where the string \"None\" is passed as None."},
          c.options);
  v.Visit({"env.action_mask",
           "Choose only actions that the environment allows: by info[\"action_mask\"], or by the "
           "entry \"action_mask\" of a Dict observation, of a \"gymnasium:\" or \"python:\" "
           "environment (docs/guide/environments.md). Masks that a plug-in declares always apply."},
          c.action_mask);
  v.Visit(
      {"env.action_bound",
       "Python only: bound x of action components whose Box has none, [-x, x], within which the "
       "policy acts and explores; 0 refuses such environments.",
       Between(0, 1e30)},
      c.action_bound);
  v.Visit(
      {"env.metrics",
       "Collect the numbers that the environment reports: info[\"metrics\"] of a \"gymnasium:\" "
       "or \"python:\" environment, or those of a plug-in (docs/guide/environments.md)."},
      c.metrics);
  v.Visit({"env.wrappers", "Python only: wrappers as \"module:callable\", applied in this order."},
          c.wrappers);
  v.Visit({"env.python",
           "Interpreter for Python environments; a name is looked up in PATH, and a relative path "
           "is resolved against the folder of the config."},
          c.python);
  // Isolation: separate processes, their limits, and tolerated faults.
  v.Visit({.name = "env.isolation",
           .doc = "Processes that host the environments. \"process\": separate ones; \"none\": the "
                  "actor's own; \"auto\": separate ones for plug-ins and Python only."},
          c.isolation);
  v.Visit({"env.processes",
           "Number of processes among which the isolated environments of an actor are divided; a "
           "crash ends only the episodes of its process.",
           Between(1, 2048)},
          c.processes);
  v.Visit({"env.start_timeout_s", "Seconds that an isolated environment may take to start.",
           Between(0.1, 86400)},
          c.start_timeout_s);
  v.Visit({"env.step_timeout_s",
           "Seconds that an isolated environment may take for one step or reset before it counts "
           "as hung.",
           Between(0.01, 86400)},
          c.step_timeout_s);
  v.Visit({"env.faults_max",
           "Number of consecutive faults or non-finite values of an environment, without a "
           "complete episode in between, after which the run ends.",
           Between(1, 1e6)},
          c.faults_max);
}

}  // namespace troop
