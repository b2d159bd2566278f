// Table of native environments, checks of EnvOptions, and the factories of all kinds.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/edit_distance.h"
#include "core/base/status.h"
#include "envs/atari/atari_vector_env.h"
#include "envs/bsuite/catch.h"
#include "envs/classic_control/classic_control.h"
#include "envs/minatar/asterix.h"
#include "envs/minatar/breakout.h"
#include "envs/minatar/freeway.h"
#include "envs/minatar/seaquest.h"
#include "envs/minatar/space_invaders.h"
#include "envs/plugin/plugin_environment.h"
#include "envs/subprocess/subproc_vector_env.h"
#include "envs/vector/action_repeat.h"
#include "envs/vector/native_vector_env.h"
#include "envs/vector/wrappers.h"

namespace troop {
namespace {

using MakeOne = std::unique_ptr<Environment> (*)(const EnvOptions&);
using MakeMany = std::unique_ptr<VectorEnv> (*)(const EnvOptions&, int size, EpisodeSeeder);

// One native environment. The factories get options whose defaults are resolved.
struct Entry {
  std::string_view id;
  std::int64_t max_episode_steps;  // default, for options with -1
  double sticky_actions;           // default; negative: the environment has none
  MakeOne make_one;
  MakeMany make_many;  // nullptr: a loop over single environments
};

// Factories for the table.
template <class Env>
std::unique_ptr<Environment> MakePlain(const EnvOptions& options) {
  return std::make_unique<Env>(options.max_episode_steps);
}

template <class Env>
constexpr Entry Plain(std::string_view id, MakeMany make_many = nullptr) {
  return {id, Env::kMaxEpisodeSteps, -1, &MakePlain<Env>, make_many};
}

// Adapter to the signature of MakeMany.
std::unique_ptr<VectorEnv> MakeManyCartPoles(const EnvOptions& options, int size,
                                             EpisodeSeeder seeder) {
  return MakeCartPoleVectorEnv(options.max_episode_steps, size, std::move(seeder));
}

template <class Game, minatar::ActionSet kSet>
std::unique_ptr<Environment> MakeGame(const EnvOptions& options) {
  return MakeMinAtar<Game>(kSet, options);
}

template <class Game, minatar::ActionSet kSet>
std::unique_ptr<VectorEnv> MakeManyGames(const EnvOptions& options, int size,
                                         EpisodeSeeder seeder) {
  return MakeMinAtarVector<Game>(kSet, options, size, std::move(seeder));
}

template <class Game>
constexpr Entry FullGame(std::string_view id) {
  return {id, minatar::kMaxEpisodeSteps, minatar::kStickyActions,
          &MakeGame<Game, minatar::ActionSet::kFull>,
          &MakeManyGames<Game, minatar::ActionSet::kFull>};
}

template <class Game>
constexpr Entry MinimalGame(std::string_view id) {
  return {id, minatar::kMaxEpisodeSteps, minatar::kStickyActions,
          &MakeGame<Game, minatar::ActionSet::kMinimal>,
          &MakeManyGames<Game, minatar::ActionSet::kMinimal>};
}

// Ids of MinAtar as in its Gymnasium registration: v0 has all 6 actions, v1 the minimal set.
constexpr Entry kEntries[] = {
    Plain<CartPole>("CartPole-v1", &MakeManyCartPoles),
    Plain<StatelessCartPole>("StatelessCartPole-v1"),
    Plain<Acrobot>("Acrobot-v1"),
    Plain<MountainCar>("MountainCar-v0"),
    Plain<Pendulum>("Pendulum-v1"),
    Plain<Catch>("Catch-v0"),
    FullGame<Breakout>("MinAtar/Breakout-v0"),
    MinimalGame<Breakout>("MinAtar/Breakout-v1"),
    FullGame<Asterix>("MinAtar/Asterix-v0"),
    MinimalGame<Asterix>("MinAtar/Asterix-v1"),
    FullGame<Freeway>("MinAtar/Freeway-v0"),
    MinimalGame<Freeway>("MinAtar/Freeway-v1"),
    FullGame<Seaquest>("MinAtar/Seaquest-v0"),
    MinimalGame<Seaquest>("MinAtar/Seaquest-v1"),
    FullGame<SpaceInvaders>("MinAtar/SpaceInvaders-v0"),
    MinimalGame<SpaceInvaders>("MinAtar/SpaceInvaders-v1"),
};

// Finds a native environment. Errors: kNotFound with a suggestion, kInvalidArgument for Python ids.
Result<const Entry*> Find(std::string_view id) {
  if (IsPythonEnvironment(id)) {
    return InvalidArgument(
        "{} is a Python environment and needs a worker process; remove env.isolation = \"none\"",
        id);
  }
  const auto entry = std::ranges::find(kEntries, id, &Entry::id);
  if (entry != std::end(kEntries)) return &*entry;
  // Suggest the nearest id, and the prefixes of the other kinds.
  const std::vector<std::string> known = EnvironmentIds();
  const std::string nearest = Nearest(id, known);
  return NotFound(
      "unknown environment \"{}\"; {}for Gymnasium use \"gymnasium:{}\", for Atari "
      "\"ALE/Pong-v5\"; built in: {}",
      id, nearest.empty() ? "" : fmt::format("did you mean \"{}\"? ", nearest), id,
      fmt::join(known, ", "));
}

// Checks the options and fills in the environment's defaults.
Result<EnvOptions> Resolve(const Entry& entry, EnvOptions options) {
  if (!options.options.empty()) {  // they would be ignored
    return InvalidArgument("{} is built in and has no options; remove env.options.{}", entry.id,
                           options.options[0].name);
  }
  if (!options.wrappers.empty()) {
    return InvalidArgument("{} is not a Python environment; remove env.wrappers", entry.id);
  }
  if (options.action_bound != 0) {
    return InvalidArgument("{} is not a Python environment; remove env.action_bound", entry.id);
  }
  if (options.max_episode_steps < -1) {
    return InvalidArgument(
        "{}: max_episode_steps is {}; give >= 1, 0 for no limit or -1 for the environment's "
        "default ({})",
        entry.id, options.max_episode_steps, entry.max_episode_steps);
  }
  if (options.max_episode_steps == -1) options.max_episode_steps = entry.max_episode_steps;
  if (options.sticky_actions == -1) options.sticky_actions = entry.sticky_actions;
  return options;
}

// Refuses env.metrics for environments that report none. Plug-ins check it themselves.
Status CheckMetrics(std::string_view id, const EnvOptions& options) {
  const bool may =
      !options.plugin.empty() || id.starts_with("gymnasium:") || id.starts_with("python:");
  if (!options.metrics || may) return Status::Ok();
  return InvalidArgument(
      "{} reports no metrics; env.metrics is for plug-ins and for ids that begin with gymnasium: "
      "or "
      "python:; remove it",
      id);
}

// Checks the options that all kinds of environments share.
Status CheckOptions(std::string_view id, const EnvOptions& options) {
  for (const EnvOption& option : options.options) {
    if (!std::holds_alternative<EnvOption::Json>(option.value)) continue;
    if (options.plugin.empty() && IsPythonEnvironment(id)) break;
    return InvalidArgument(
        "{}: env.options.{} is a list or a table, which only Python environments accept; give a "
        "number, a string, true or false",
        id, option.name);
  }
  // Negated, so that NaN is an error too.
  if (!(options.sticky_actions >= 0 && options.sticky_actions <= 1) &&
      options.sticky_actions != -1) {
    return InvalidArgument(
        "{}: sticky_actions is {}; give a probability in [0, 1] or -1 for the default", id,
        options.sticky_actions);
  }
  if (options.action_repeat < 1) {
    return InvalidArgument("{}: action_repeat is {}, must be at least 1", id,
                           options.action_repeat);
  }
  if (!std::isfinite(options.reward_scale) || options.reward_scale == 0) {
    return InvalidArgument("{}: reward_scale is {}, must be finite and not 0", id,
                           options.reward_scale);
  }
  if (!std::isfinite(options.observation_clip) || options.observation_clip < 0) {
    return InvalidArgument(
        "{}: observation_clip is {}, must be finite and at least 0 (0: no clipping)", id,
        options.observation_clip);
  }
  return CheckMetrics(id, options);
}

// Creates an environment without action repeat.
Result<std::unique_ptr<Environment>> MakePlain(std::string_view id, const EnvOptions& options) {
  if (!options.plugin.empty()) return LoadPluginEnvironment(options.plugin, id, options);
  TROOP_ASSIGN_OR_RETURN(const Entry* entry, Find(id));
  TROOP_ASSIGN_OR_RETURN(const EnvOptions resolved, Resolve(*entry, options));
  return entry->make_one(resolved);
}

// Creates a vector as a loop over single environments.
Result<std::unique_ptr<VectorEnv>> MakeLoop(std::string_view id, const EnvOptions& options,
                                            int size, EpisodeSeeder seeder) {
  // Plug-ins may return a different spec each time, so all specs are compared.
  std::vector<std::unique_ptr<Environment>> envs;
  for (int i = 0; i < size; ++i) {
    TROOP_ASSIGN_OR_RETURN(auto env, MakeEnvironment(id, options));
    if (i > 0 && env->spec() != envs[0]->spec()) {
      return InvalidArgument(
          "{}: its spec differs between instances; all environments of a vector need the same", id);
    }
    envs.push_back(std::move(env));
  }
  return MakeSyncVectorEnv(std::move(envs), std::move(seeder));
}

// Creates a vector without the wrappers: in worker processes, as a loop, or batched.
Result<std::unique_ptr<VectorEnv>> MakeInner(std::string_view id, const EnvOptions& options,
                                             int size, EpisodeSeeder seeder) {
  if (InProcess(id, options)) {
    return IsAtariEnvironment(id) ? MakeAtariVectorEnv(id, options, size, std::move(seeder))
                                  : MakeSubprocVectorEnv(id, options, size, std::move(seeder));
  }
  // Batched vectors step once per action, so action repeat needs the loop.
  if (!options.plugin.empty() || options.action_repeat > 1) {
    return MakeLoop(id, options, size, std::move(seeder));
  }
  TROOP_ASSIGN_OR_RETURN(const Entry* entry, Find(id));
  if (entry->make_many == nullptr) return MakeLoop(id, options, size, std::move(seeder));
  TROOP_ASSIGN_OR_RETURN(const EnvOptions resolved, Resolve(*entry, options));
  return entry->make_many(resolved, size, std::move(seeder));
}

// True if the environment implements sticky actions itself, so that the wrapper must not.
bool HasOwnStickyActions(std::string_view id, const EnvOptions& options) {
  if (!options.plugin.empty()) return false;
  if (IsAtariEnvironment(id)) return true;
  const auto entry = std::ranges::find(kEntries, id, &Entry::id);
  return entry != std::end(kEntries) && entry->sticky_actions >= 0;
}

// Environments without built-in sticky actions get the wrapper, if it is enabled.
VectorWrappers WrappersFor(std::string_view id, const EnvOptions& options) {
  VectorWrappers wrappers{.reward_scale = options.reward_scale,
                          .observation_clip = options.observation_clip};
  if (!HasOwnStickyActions(id, options)) {
    wrappers.sticky_actions = std::max(options.sticky_actions, 0.0);
  }
  return wrappers;
}

// Checks the options that depend on whether the environment has an action mask.
Status CheckMaskOptions(const EnvOptions& options, const EnvSpec& spec) {
  if (!ActionMaskOffset(spec)) {
    // The key would have no effect.
    if (!options.action_mask) return Status::Ok();
    return InvalidArgument(
        "{} has no action mask, which env.action_mask requires; remove it, or give the environment "
        "one (docs/guide/environments.md)",
        spec.id);
  }
  // Both play an action again, which the environment may no longer allow.
  const bool sticky = options.sticky_actions > 0;
  if (!sticky && options.action_repeat == 1) return Status::Ok();
  return InvalidArgument("{} has an action mask, which env.{} ignores; remove the latter", spec.id,
                         sticky ? "sticky_actions" : "action_repeat");
}

}  // namespace

std::vector<std::string> EnvironmentIds() {
  std::vector<std::string> ids;
  for (const Entry& entry : kEntries) ids.emplace_back(entry.id);
  return ids;
}

// Creates a single environment in this process.
Result<std::unique_ptr<Environment>> MakeEnvironment(std::string_view id,
                                                     const EnvOptions& options) {
  TROOP_RETURN_IF_ERROR(CheckOptions(id, options));
  if (options.action_repeat == 1) return MakePlain(id, options);
  EnvOptions inner = options;
  // The limit counts agent steps, the inner environment counts repeated ones.
  if (inner.max_episode_steps > 0) inner.max_episode_steps *= options.action_repeat;
  TROOP_ASSIGN_OR_RETURN(auto env, MakePlain(id, inner));
  return MakeRepeatedEnvironment(std::move(env), options.action_repeat);
}

// The counterpart of MakeVectorEnv for a caller that restarts episodes itself.
Result<std::unique_ptr<Environment>> MakeSingleEnvironment(std::string_view id,
                                                           const EnvOptions& options) {
  TROOP_ASSIGN_OR_RETURN(auto env, MakeEnvironment(id, options));
  const VectorWrappers wrappers = WrappersFor(id, options);
  TROOP_RETURN_IF_ERROR(CheckMaskOptions(options, env->spec()));
  TROOP_RETURN_IF_ERROR(CheckClip(wrappers, env->spec()));
  return MakeWrappedEnvironment(wrappers, std::move(env));
}

// Wrappers are outermost, so that they work the same for worker processes and loops.
Result<std::unique_ptr<VectorEnv>> MakeVectorEnv(std::string_view id, const EnvOptions& options,
                                                 int size, EpisodeSeeder seeder) {
  if (size < 1) return InvalidArgument("{}: vector size is {}, must be at least 1", id, size);
  TROOP_RETURN_IF_ERROR(CheckOptions(id, options));
  TROOP_ASSIGN_OR_RETURN(
      auto env, MakeWrappedVectorEnv(WrappersFor(id, options), size, std::move(seeder),
                                     [&](EpisodeSeeder inner) {
                                       return MakeInner(id, options, size, std::move(inner));
                                     }));
  TROOP_RETURN_IF_ERROR(CheckMaskOptions(options, env->spec()));
  return env;
}

namespace {

// Creates an environment for its spec; one in a process needs a worker for it.
Result<EnvSpec> FindPlainSpec(std::string_view id, const EnvOptions& options) {
  if (InProcess(id, options)) {
    // The environment is only described, never reset.
    const auto no_seed = [](int) { return std::uint64_t{0}; };
    TROOP_ASSIGN_OR_RETURN(const auto env, MakeVectorEnv(id, options, 1, no_seed));
    return env->spec();
  }
  TROOP_ASSIGN_OR_RETURN(const auto env, MakeEnvironment(id, options));
  TROOP_RETURN_IF_ERROR(CheckMaskOptions(options, env->spec()));
  TROOP_RETURN_IF_ERROR(CheckClip(WrappersFor(id, options), env->spec()));
  return env->spec();
}

}  // namespace

// Adds the checksum of a plug-in, by which machines with different builds are detected.
Result<EnvSpec> FindEnvSpec(std::string_view id, const EnvOptions& options) {
  TROOP_ASSIGN_OR_RETURN(EnvSpec spec, FindPlainSpec(id, options));
  if (options.plugin.empty()) return spec;
  TROOP_ASSIGN_OR_RETURN(spec.code, PluginCode(options.plugin));
  return spec;
}

EnvOptions EnvOptionsFor(const EnvConfig& config, bool serial) {
  return {.max_episode_steps = config.max_episode_steps,
          .sticky_actions = config.sticky_actions,
          .reward_scale = config.reward_scale,
          .observation_clip = config.observation_clip,
          .action_repeat = int(config.action_repeat),
          .noop_max = int(config.noop_max),
          .difficulty_ramping = config.difficulty_ramping,
          .plugin = config.plugin,
          .options = config.options,
          .wrappers = config.wrappers,
          .python = config.python,
          .isolation = config.isolation,
          .processes = int(config.processes),
          .start_timeout = Seconds(config.start_timeout_s),
          .step_timeout = Seconds(config.step_timeout_s),
          .action_mask = config.action_mask,
          .action_bound = config.action_bound,
          .metrics = config.metrics,
          // A serial run has one thread, which has nothing else to do during a step.
          .wait = serial};
}

}  // namespace troop
