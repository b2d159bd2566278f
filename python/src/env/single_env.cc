// One native environment for Python, and the checks of an id and its options.

#include "python/src/env/single_env.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/base/edit_distance.h"

namespace troop {

// Only native environments: others need the worker processes of the program `troop`. An option
// without effect is refused, since it would look as if it had one.
Status CheckNative(std::string_view id, const EnvOptions& options) {
  const std::vector<std::string> native = EnvironmentIds();
  if (std::ranges::find(native, id) == native.end()) {
    const std::string nearest = Nearest(id, native);
    return NotFound(
        "{} is not a native environment of Troop; {}there are {}; make others with gymnasium.make",
        id, nearest.empty() ? "" : fmt::format("did you mean {}? ", nearest),
        fmt::join(native, ", "));
  }
  if (!options.difficulty_ramping && !id.starts_with("MinAtar/")) {
    return InvalidArgument(
        "{}: difficulty_ramping is False, but only MinAtar games become harder over time; leave it "
        "out",
        id);
  }
  return Status::Ok();
}

// Draws one picture of a new episode. The environment is made for this alone, so that the caller's
// own one keeps its seeds and its phase.
bool HasPictures(std::string_view id, const EnvOptions& options) {
  const auto env = MakeSingleEnvironment(id, options);
  TROOP_CHECK(env.ok(), "{}", env.status().ToString());
  std::vector<std::byte> observation((*env)->spec().observation.bytes());
  (*env)->Reset(0, observation);
  return !(*env)->Render().rgb.empty();
}

Result<std::unique_ptr<SingleEnv>> SingleEnv::Make(std::string_view id, const EnvOptions& options) {
  TROOP_RETURN_IF_ERROR(CheckNative(id, options));
  TROOP_ASSIGN_OR_RETURN(auto env, MakeSingleEnvironment(id, options));
  return std::unique_ptr<SingleEnv>(new SingleEnv(std::move(env)));
}

// Native environments cannot fail, so there is no fault to report.
void SingleEnv::Reset(std::optional<std::uint64_t> seed, std::span<std::byte> observation) {
  if (seed.has_value()) seeds_.Seed(0, *seed);
  env_->Reset(seeds_.Next(0), observation);
  phase_ = Phase::kPlaying;
}

Result<StepResult> SingleEnv::Step(std::span<const std::byte> action,
                                   std::span<std::byte> observation) {
  // Environments abort on a step without an episode, which is the caller's mistake here.
  if (phase_ != Phase::kPlaying) {
    return FailedPrecondition(
        "{}: step() {}; call reset() first", spec().id,
        phase_ == Phase::kNew ? "before the first reset()" : "after the end of the episode");
  }
  const StepResult result = env_->Step(action, observation);
  if (result.terminated || result.truncated) phase_ = Phase::kEnded;
  return result;
}

Result<Environment::Picture> SingleEnv::Render() const {
  if (phase_ == Phase::kNew) {
    return FailedPrecondition("{}: render() before the first reset(); call reset() first",
                              spec().id);
  }
  return env_->Render();
}

}  // namespace troop
