#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/config.h"
#include "core/picture.h"
#include "core/spec.h"
#include "core/status.h"
#include "core/time.h"

namespace troop {

struct StepResult {
  float reward = 0;
  bool terminated = false;  // the task ended: no value beyond
  bool truncated = false;   // the clock ended it: bootstrap from the last observation
};

// One problem to solve. Equal seeds and actions give equal bytes. One owner thread.
// `observation` is where the result is written: spec().observation.bytes() bytes.
class Environment {
 public:
  virtual ~Environment() = default;
  virtual const EnvSpec& spec() const = 0;
  // Starts an episode.
  virtual void Reset(std::uint64_t seed, std::span<std::byte> observation) = 0;
  // REQUIRES: an episode is under way; action.size() == spec().action.tensor().bytes(); a discrete
  // action within [0, count).
  virtual StepResult Step(std::span<const std::byte> action, std::span<std::byte> observation) = 0;
  // Why the last Reset or Step failed; empty: it did not. The episode is lost, what it wrote counts
  // for nothing, and only Reset may follow. Native ones never fail.
  virtual std::string_view fault() const { return {}; }
  // Row i of each array is the i-th environment's.
  struct Rows {
    const std::byte* action;
    std::byte* observation;
    float* reward;
    std::uint8_t* terminated;
    std::uint8_t* truncated;
  };
  enum class Many : std::uint8_t { kCannot, kGood, kSomeFailed };
  // Step of all of `envs` at once, where that saves something. kCannot: nothing happened, step them
  // one by one; kSomeFailed: look at each fault(). REQUIRES: all are alike, this one among them,
  // and have an episode under way.
  virtual Many StepMany(std::span<const std::unique_ptr<Environment>> envs, const Rows& rows) {
    (void)envs, (void)rows;
    return Many::kCannot;
  }
  // A picture of the state for people: RGB, [height, width, 3] u8; empty when it has none.
  using Picture = troop::Picture;
  virtual Picture Render() const { return {}; }
};

enum class Isolation : std::uint8_t { kAuto, kProcess, kNone };

struct EnvOptions {
  std::int64_t max_episode_steps = -1;  // -1: the environment's own; 0: none
  double sticky_actions = -1;           // probability; -1: the environment's own
  double reward_scale = 1;
  int action_repeat = 1;           // steps for which an action is held
  int noop_max = 0;                // Atari
  bool difficulty_ramping = true;  // MinAtar
  // Of plug-ins and Python environments (docs/guide/environments.md):
  std::string plugin;                 // path of a shared library; empty: none
  std::vector<EnvOption> options;     // its own
  std::vector<std::string> wrappers;  // Python: "module:callable"
  std::string python = "python3";
  Isolation isolation = Isolation::kAuto;  // kAuto: native ones here, all others in a process
  int processes = 1;                       // over which a vector is spread
  Duration start_timeout = Seconds(60);
  Duration step_timeout = Seconds(10);  // one step or reset of one environment
  bool measure = false;  // processes tell how long their environments took: VectorEnv::inside()
  bool wait = false;     // Poll of a VectorEnv waits for its result: one thread for a whole run
  // Every few milliseconds while processes start for the first time, which can take long, and who
  // wants them is waiting. What isn't ok ends that.
  std::function<Status(Time)> while_starting;
};

EnvOptions EnvOptionsFor(const Config& config);  // its [env] keys

// One environment in this process: of the explicit table of native ones, or of a plug-in. Errors:
// kNotFound with the nearest known id and all; kInvalidArgument for an option out of its range. A
// VectorEnv scales rewards, and makes actions stick where an environment has no such chance of its
// own; this does neither.
Result<std::unique_ptr<Environment>> MakeEnvironment(std::string_view id,
                                                     const EnvOptions& options);
std::vector<std::string> EnvironmentIds();
// What an environment looks like, its code included; may start a process for it, and ends it again.
// Errors: as MakeVectorEnv.
Result<EnvSpec> FindEnvSpec(std::string_view id, const EnvOptions& options);
// The code of a plug-in, as EnvSpec has it: size and checksum of its file, wherever that lies.
// Errors: kNotFound, kInvalidArgument: it can't be read.
Result<std::string> PluginCode(const std::string& path);
// Refuses an environment that is made of other code than the run's, naming both. Errors:
// kInvalidArgument. Empty: not compared.
Status CheckSameCode(std::string_view id, const std::string& here, const std::string& there);

}  // namespace troop
