// Implements the validation of transition batches against an environment.

#include "learners/rl/transition_check.h"

namespace troop {
namespace {

Status CheckSpec(const char* name, const Tensor& tensor, const TensorSpec& want) {
  if (tensor.spec() == want) return Status::Ok();
  return InvalidArgument("{} is {}, not {}", name, tensor.spec().ToString(), want.ToString());
}

// Per-item checks: values that index into tensors, which the loss kernels do not check.
Status CheckItems(const SampleBatch& batch, const EnvSpec& env) {
  const std::int64_t steps = batch.reward.dim(1);
  for (std::size_t i = 0; i < std::size_t(batch.size()); ++i) {
    if (batch.length[i] < 1 || batch.length[i] > steps) {
      return InvalidArgument("item {}: length {} is not in [1, {}]", i, batch.length[i], steps);
    }
    if (!env.action.discrete()) continue;
    const std::int32_t action = batch.action.as<std::int32_t>()[i];
    if (action < 0 || action >= env.action.count) {
      return InvalidArgument("item {}: action {} is not in [0, {})", i, action, env.action.count);
    }
    if (env.parts.empty()) continue;
    const ConstTensor seen(batch.observation.Rows(std::int64_t(i), 1));
    TROOP_RETURN_IF_ERROR(
        CheckAllowed(env, seen.bytes(), action).WithContext(fmt::format("item {}", i)));
  }
  return Status::Ok();
}

}  // namespace

// The newest frame is the last one; its size is that of the parts.
Status CheckAllowed(const EnvSpec& env, std::span<const std::byte> frames, std::int32_t action) {
  std::int64_t elements = 0;
  for (const ObservationPart& part : env.parts) elements += part.shape.elements();
  const std::size_t bytes = std::size_t(elements) * DTypeSize(env.observation.dtype);
  if (env.parts.empty() || AllowsAction(env, frames.last(bytes), action)) return Status::Ok();
  return InvalidArgument("action {} is not one that the action mask of its observation allows",
                         action);
}

// Batches come from the network, so a replay with another config must not crash the learner.
Status CheckTransitions(const SampleBatch& batch, const EnvSpec& env, std::size_t priorities) {
  const std::int64_t size = batch.size();
  if (size == 0) return InvalidArgument("the batch is empty");
  const TensorSpec observation{env.observation.dtype, env.observation.shape.Prepend(size)};
  TROOP_RETURN_IF_ERROR(CheckSpec("observation", batch.observation, observation));
  TROOP_RETURN_IF_ERROR(CheckSpec("next_observation", batch.next_observation, observation));
  const TensorSpec one = env.action.tensor();
  TROOP_RETURN_IF_ERROR(CheckSpec("action", batch.action, {one.dtype, one.shape.Prepend(size)}));
  // The number of steps N is free, but all per-step tensors must have the same.
  if (batch.reward.shape().rank() != 2) {
    return InvalidArgument("reward is {}, not f32[{}, N]", batch.reward.spec().ToString(), size);
  }
  const TensorSpec steps{DType::kF32, {size, batch.reward.dim(1)}};
  TROOP_RETURN_IF_ERROR(CheckSpec("reward", batch.reward, steps));
  TROOP_RETURN_IF_ERROR(CheckSpec("discount", batch.discount, steps));
  const std::size_t count = std::size_t(size);
  if (batch.weight.size() != count || batch.length.size() != count || priorities != count) {
    return InvalidArgument("{} weights, {} lengths and {} priorities for a batch of {} items",
                           batch.weight.size(), batch.length.size(), priorities, size);
  }
  return CheckItems(batch, env);
}

}  // namespace troop
