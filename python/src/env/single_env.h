#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "envs/environment.h"
#include "envs/vector/episode_seeds.h"

namespace troop {

// One native environment for Python: an Environment that checks the order of calls, and the seeds
// of its episodes (EpisodeSeeds). One thread at a time. Invariant: Step reaches the environment
// only while an episode is under way, so that it cannot abort.
class SingleEnv {
 public:
  // Errors: those of CheckNative and MakeSingleEnvironment.
  static Result<std::unique_ptr<SingleEnv>> Make(std::string_view id, const EnvOptions& options);

  const EnvSpec& spec() const { return env_->spec(); }
  // Starts an episode: with a base seed the first one of that seed, otherwise the next one. Writes
  // its first observation. REQUIRES: observation.size() == spec().observation.bytes().
  void Reset(std::optional<std::uint64_t> seed, std::span<std::byte> observation);
  // Plays one step of a checked action. Errors: kFailedPrecondition: no episode is under way.
  Result<StepResult> Step(std::span<const std::byte> action, std::span<std::byte> observation);
  // Picture of the current state, after an end the last one. Errors: kFailedPrecondition: no Reset
  // yet.
  Result<Environment::Picture> Render() const;

 private:
  enum class Phase : std::uint8_t { kNew, kPlaying, kEnded };
  explicit SingleEnv(std::unique_ptr<Environment> env) : env_(std::move(env)) {}

  const std::unique_ptr<Environment> env_;
  EpisodeSeeds seeds_{1};
  Phase phase_ = Phase::kNew;
};

// Checks that `id` is a native environment, and options that it would ignore. Errors: kNotFound
// with the nearest id; kInvalidArgument: difficulty_ramping is off for an environment without it.
Status CheckNative(std::string_view id, const EnvOptions& options);
// True if the environment draws pictures. REQUIRES: MakeSingleEnvironment succeeds.
bool HasPictures(std::string_view id, const EnvOptions& options);

}  // namespace troop
