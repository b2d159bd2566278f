// Native environments that step together, for Python.

#include "python/src/env/env_vector.h"

#include <type_traits>
#include <utility>

#include "core/base/check.h"
#include "envs/vector/action_check.h"
#include "envs/vector/threaded_vector_env.h"
#include "python/src/env/single_env.h"

namespace troop {

EnvVector::EnvVector(EpisodeSeeds seeds, const EnvSpec& spec, int size)
    : seeds_(std::move(seeds)),
      action_(spec.action.tensor().dtype, spec.action.tensor().shape.Prepend(size)) {}

Result<std::unique_ptr<EnvVector>> EnvVector::Make(std::string_view id, const Options& options) {
  TROOP_RETURN_IF_ERROR(CheckNative(id, options.env));
  // The bound keeps a mistyped size from taking all memory.
  if (options.size < 1 || options.size > kSizeMax) {
    return InvalidArgument("{}: num_envs is {}, must be 1 to {}", id, options.size, kSizeMax);
  }
  TROOP_ASSIGN_OR_RETURN(const EnvSpec spec, FindEnvSpec(id, options.env));
  std::unique_ptr<EnvVector> made(new EnvVector(EpisodeSeeds(options.size), spec, options.size));
  // The seeds lie at a fixed address from here on, next to the vector that requests them.
  EpisodeSeeds& seeds = made->seeds_;
  TROOP_ASSIGN_OR_RETURN(made->env_,
                         MakeThreadedVectorEnv(id, options.env, options.size, options.threads,
                                               [&seeds](int i) { return seeds.Next(i); }));
  return made;
}

// The batch of a reset has observations only; its other rows are 0.
void EnvVector::Reset() {
  env_->SubmitReset();
  TROOP_CHECK(Poll().ok(), "a native vector is ready at once");
}

Status EnvVector::Restart(std::span<const int> indices) {
  TROOP_RETURN_IF_ERROR(CheckStarted("reset() of some environments"));
  env_->SubmitRestart(indices);
  return Poll();
}

// The actions are copied to a tensor of the element type that environments have, and checked on the
// way. All checks precede the step, so an error leaves every episode as it was.
template <class T>
Result<bool> EnvVector::Step(std::span<const T> actions) {
  TROOP_RETURN_IF_ERROR(CheckStarted("step()"));
  const auto elements = std::size_t(action_.elements());
  if (actions.size() != elements) {
    return InvalidArgument("{}: {} action elements, must be {} for {} environments", spec().id,
                           actions.size(), elements, size());
  }
  if constexpr (std::is_floating_point_v<T>) {
    TROOP_RETURN_IF_ERROR(CopyContinuousActions(actions, spec().action, action_.as<float>()));
  } else {
    TROOP_RETURN_IF_ERROR(
        CopyDiscreteActions(actions, spec().action.count, action_.as<std::int32_t>()));
  }
  env_->Submit(action_);
  TROOP_RETURN_IF_ERROR(Poll());
  return AnyEnded();
}
template Result<bool> EnvVector::Step(std::span<const std::int32_t>);
template Result<bool> EnvVector::Step(std::span<const std::int64_t>);
template Result<bool> EnvVector::Step(std::span<const float>);

Result<Environment::Picture> EnvVector::Render(int index) const {
  TROOP_RETURN_IF_ERROR(CheckStarted("render()"));
  return env_->Render(index);
}

// Views of the first batch stay valid only if all batches have the same addresses.
Status EnvVector::Poll() {
  const StepBatch* batch = env_->Poll();
  if (batch == nullptr) return Internal("{}: no batch: {}", spec().id, env_->status().ToString());
  const void* first = batch_ == nullptr ? nullptr : batch_->observation.bytes().data();
  TROOP_CHECK(first == nullptr || first == batch->observation.bytes().data(),
              "the observations moved");
  batch_ = batch;
  return Status::Ok();
}

// A loop without an early exit, which the compiler vectorizes: most steps end no episode.
bool EnvVector::AnyEnded() const {
  const auto terminated = batch_->terminated.as<std::uint8_t>();
  const auto truncated = batch_->truncated.as<std::uint8_t>();
  std::uint8_t any = 0;
  for (std::size_t i = 0; i < terminated.size(); ++i) any |= terminated[i] | truncated[i];
  return any != 0;
}

Status EnvVector::CheckStarted(std::string_view call) const {
  if (batch_ != nullptr) return Status::Ok();
  return FailedPrecondition("{}: {} before the first reset(); call reset() first", spec().id, call);
}

}  // namespace troop
