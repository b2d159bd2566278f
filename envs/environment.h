#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/base/time.h"
#include "core/config/env_option.h"
#include "core/graphics/picture.h"
#include "core/tensor/spec.h"
#include "envs/env_config.h"
#include "envs/env_metrics.h"

namespace troop {

struct StepResult {
  float reward = 0;
  bool terminated = false;  // ended by the environment's rules: the value after it is 0
  bool truncated = false;   // ended by a limit: bootstrap from the last observation
};

// A Markov decision process with Gymnasium's reset and step. Equal seeds and actions give equal
// bytes. One owner thread. Results are written to `observation`: spec().observation.bytes() bytes.
class Environment {
 public:
  virtual ~Environment() = default;
  virtual const EnvSpec& spec() const = 0;
  // Starts an episode and writes its first observation.
  virtual void Reset(std::uint64_t seed, std::span<std::byte> observation) = 0;
  // Plays one agent step and writes the next observation. REQUIRES: an episode is under way;
  // action.size() == spec().action.tensor().bytes(); a discrete action within [0, count).
  virtual StepResult Step(std::span<const std::byte> action, std::span<std::byte> observation) = 0;
  // Reason why the last Reset or Step failed; empty on success. After a failure the episode is
  // lost, everything that the call wrote is invalid, and only Reset may follow. Native environments
  // never fail.
  virtual std::string_view fault() const { return {}; }
  // Arrays of StepMany; row i belongs to environment i.
  struct Rows {
    const std::byte* action;
    std::byte* observation;
    float* reward;
    std::uint8_t* terminated;
    std::uint8_t* truncated;
  };
  enum class Many : std::uint8_t { kCannot, kGood, kSomeFailed };
  // Steps all of `envs` in one call, where that is cheaper. kCannot: nothing was done, call Step
  // for each; kSomeFailed: check each fault(). REQUIRES: `envs` are of the same type and options,
  // include this environment, and each has an episode under way.
  virtual Many StepMany(std::span<const std::unique_ptr<Environment>> envs, const Rows& rows) {
    (void)envs, (void)rows;
    return Many::kCannot;
  }
  // Human-readable picture of the state: RGB, [height, width, 3] u8; empty if there is none.
  using Picture = troop::Picture;
  virtual Picture Render() const { return {}; }
  // Moves the numbers that steps have reported since the last call to `into`; none without
  // EnvOptions::metrics.
  virtual void TakeMetrics(EnvMetrics* into) { (void)into; }
};

struct EnvOptions {
  std::int64_t max_episode_steps = -1;  // -1: the environment's default; 0: no limit
  double sticky_actions = -1;           // probability; -1: the environment's default
  double reward_scale = 1;
  double observation_clip = 0;     // bound of the observations' elements; 0: none
  int action_repeat = 1;           // steps for which each action is repeated
  int noop_max = 0;                // Atari: random no-ops at the start of an episode, at most
  bool difficulty_ramping = true;  // MinAtar: games become harder over time
  // Options of plug-ins and Python environments (docs/guide/environments.md):
  std::string plugin;                 // path of a shared library; empty: no plug-in
  std::vector<EnvOption> options;     // [env.options], passed to the environment
  std::vector<std::string> wrappers;  // Python: "module:callable"
  std::string python = "python3";
  Isolation isolation = Isolation::kAuto;  // kAuto: native in this process, others in a worker
  int processes = 1;                       // worker processes of one vector environment
  Duration start_timeout = Seconds(60);
  Duration step_timeout = Seconds(10);  // one step or reset of one environment
  bool action_mask = false;             // the environment must have an action mask
  double action_bound = 0;              // Python: of action components without one; 0: refused
  bool metrics = false;                 // collect the numbers that the environment reports
  bool measure = false;  // workers report the environments' own time: VectorEnv::inside()
  bool wait = false;     // VectorEnv::Poll blocks; for runs with a single thread
  // Called every few milliseconds during the first start of the workers, which can take long while
  // the caller blocks. A status that is not ok aborts the start.
  std::function<Status(Time)> while_starting;
};

// Options from the [env] keys. serial: the run has one thread, which waits for its environments.
EnvOptions EnvOptionsFor(const EnvConfig& config, bool serial);

// Creates one environment in this process: a native one by id, or one of a plug-in. Errors:
// kNotFound with the nearest known id and all ids; kInvalidArgument for an option out of its range.
// Reward scaling, clipping of observations, and sticky actions for environments that lack them, are
// applied by VectorEnv, not here.
Result<std::unique_ptr<Environment>> MakeEnvironment(std::string_view id,
                                                     const EnvOptions& options);
// Creates one environment as MakeEnvironment does, and applies the wrappers (VectorWrappers): the
// same bytes as one environment of MakeVectorEnv, but an ended episode stays until Reset.
Result<std::unique_ptr<Environment>> MakeSingleEnvironment(std::string_view id,
                                                           const EnvOptions& options);
// Ids of all native environments.
std::vector<std::string> EnvironmentIds();
// Returns the spec of an environment, including its code checksum. It may start a worker process
// and ends it before returning. Errors: those of MakeVectorEnv.
Result<EnvSpec> FindEnvSpec(std::string_view id, const EnvOptions& options);
// Returns a plug-in's EnvSpec::code: size and checksum of its file, independent of its path.
// Errors: kNotFound, kInvalidArgument: the file cannot be read.
Result<std::string> PluginCode(const std::string& path);
// Checks that an environment has the code that the run was started with. Errors: kInvalidArgument,
// naming both codes. An empty code is not compared.
Status CheckSameCode(std::string_view id, const std::string& here, const std::string& there);

}  // namespace troop
