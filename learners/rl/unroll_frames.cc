// Implements the rows of unrolls, and the validation of such batches.
#include "learners/rl/unroll_frames.h"

#include <algorithm>
#include <numeric>

namespace troop {
namespace {

// One frame of the network's input.
TensorSpec FrameOf(const EnvSpec& env, std::int64_t stack) {
  const TensorSpec& in = env.observation;
  return {in.dtype, stack == 1 ? in.shape : in.shape.DropFirst()};
}

Status CheckSpec(const char* name, const Tensor& tensor, const TensorSpec& want) {
  if (!tensor.empty() && tensor.spec() == want) return Status::Ok();
  return InvalidArgument("{} is {}, not {}", name,
                         tensor.empty() ? "missing" : tensor.spec().ToString(), want.ToString());
}

}  // namespace

// Step t of an unroll is column t of the window's last length_max + 1 frames, after stack - 1
// earlier ones; its stack are the columns [t, t + stack).
void UnrollFrames::Fill(const SampleBatch& batch) {
  size_ = std::accumulate(batch.length.begin(), batch.length.end(), batch.size());
  if (storage_.empty() || storage_.dim(0) < size_) {
    storage_ = Tensor::Uninitialized(env_.observation.dtype, env_.observation.shape.Prepend(size_));
  }
  const std::size_t frame = FrameOf(env_, stack_).bytes(), row = frame * std::size_t(stack_);
  const std::size_t window = batch.observation.bytes().size() / std::size_t(batch.size());
  std::byte* to = storage_.bytes().data();
  for (std::size_t i = 0; i < batch.length.size(); ++i) {
    const std::span<const std::byte> from = batch.observation.bytes().subspan(i * window, window);
    const auto frames = std::size_t(batch.length[i]) + 1;
    // Without stacking the frames of an unroll are consecutive.
    if (stack_ == 1) {
      std::ranges::copy(from.first(frames * frame), to);
      to += frames * frame;
      continue;
    }
    for (std::size_t t = 0; t < frames; ++t, to += row) {
      std::ranges::copy(from.subspan(t * frame, row), to);
    }
  }
  rows_ = ConstTensor(storage_.Rows(0, size_));
}

// Batches come from the network, so a replay with another config must not crash the learner.
Status CheckUnrolls(const SampleBatch& batch, const EnvSpec& env, std::int64_t stack,
                    std::size_t priorities) {
  const std::int64_t size = batch.size();
  if (size == 0) return InvalidArgument("the batch is empty");
  if (batch.reward.empty() || batch.reward.shape().rank() != 2) {
    return InvalidArgument("reward is not f32[{}, S]", size);
  }
  // The number of steps S is free, but all per-step tensors must have the same.
  const std::int64_t steps = batch.reward.dim(1);
  const TensorSpec frame = FrameOf(env, stack), one = env.action.tensor();
  TROOP_RETURN_IF_ERROR(CheckSpec("observation", batch.observation,
                                  {frame.dtype, frame.shape.Prepend(steps + stack).Prepend(size)}));
  TROOP_RETURN_IF_ERROR(
      CheckSpec("action", batch.action, {one.dtype, one.shape.Prepend(steps).Prepend(size)}));
  TROOP_RETURN_IF_ERROR(CheckSpec("reward", batch.reward, {DType::kF32, {size, steps}}));
  TROOP_RETURN_IF_ERROR(CheckSpec("discount", batch.discount, {DType::kF32, {size, steps}}));
  const auto count = std::size_t(size);
  if (batch.weight.size() != count || batch.length.size() != count || priorities != count) {
    return InvalidArgument("{} weights, {} lengths and {} priorities for a batch of {} unrolls",
                           batch.weight.size(), batch.length.size(), priorities, size);
  }
  // Values that index into tensors, which the loss does not check.
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t length = batch.length[i];
    if (length < 1 || length > steps) {
      return InvalidArgument("unroll {}: length {} is not in [1, {}]", i, length, steps);
    }
    if (!env.action.discrete()) continue;
    const auto actions =
        batch.action.as<std::int32_t>().subspan(i * std::size_t(steps), std::size_t(length));
    for (const std::int32_t action : actions) {
      if (action >= 0 && action < env.action.count) continue;
      return InvalidArgument("unroll {}: action {} is not in [0, {})", i, action, env.action.count);
    }
  }
  return Status::Ok();
}

}  // namespace troop
