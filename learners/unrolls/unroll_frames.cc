// Implements the rows of unrolls, and the validation of such batches.
#include "learners/unrolls/unroll_frames.h"

#include <algorithm>

#include "learners/rl/transition_check.h"

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

// From windows of constant size to rows without gaps.
template <class First, class Count>
void UnrollFrames::Copy(const SampleBatch& batch, First first, Count count) {
  size_ = 0;
  for (std::size_t i = 0; i < batch.length.size(); ++i) size_ += count(i);
  rows_ = {};
  if (size_ == 0) return;
  if (storage_.empty() || storage_.dim(0) < size_) {
    storage_ = Tensor::Uninitialized(env_.observation.dtype, env_.observation.shape.Prepend(size_));
  }
  const auto stack = std::size_t(window_.stack);
  const std::size_t frame = FrameOf(env_, window_.stack).bytes(), row = frame * stack;
  const std::size_t window = batch.observation.bytes().size() / std::size_t(batch.size());
  std::byte* to = storage_.bytes().data();
  for (std::size_t i = 0; i < batch.length.size(); ++i) {
    const std::span<const std::byte> from =
        batch.observation.bytes().subspan(i * window + std::size_t(first(i)) * frame);
    const auto frames = std::size_t(count(i));
    // Without stacking the frames of an unroll are consecutive.
    if (stack == 1) {
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

// The stack of step t are `stack` columns of the window, the first of which is burn_in + t.
void UnrollFrames::Fill(const SampleBatch& batch) {
  Copy(
      batch, [&](std::size_t) { return window_.burn_in; },
      [&](std::size_t i) { return std::int64_t(batch.length[i]) + 1; });
}

void UnrollFrames::FillBurnIn(const SampleBatch& batch) {
  Copy(
      batch, [&](std::size_t i) { return window_.burn_in - batch.burn_in[i]; },
      [&](std::size_t i) { return std::int64_t(batch.burn_in[i]); });
}

// Batches come from the network, so a replay with another config must not crash the learner.
Status CheckUnrolls(const SampleBatch& batch, const EnvSpec& env, const UnrollWindow& window,
                    std::size_t priorities) {
  const std::int64_t size = batch.size();
  if (size == 0) return InvalidArgument("the batch is empty");
  if (batch.reward.empty() || batch.reward.shape().rank() != 2) {
    return InvalidArgument("reward is not f32[{}, S]", size);
  }
  // The number of steps S is free, but all per-step tensors must have the same.
  const std::int64_t steps = batch.reward.dim(1);
  const TensorSpec frame = FrameOf(env, window.stack), one = env.action.tensor();
  TROOP_RETURN_IF_ERROR(
      CheckSpec("observation", batch.observation,
                {frame.dtype, frame.shape.Prepend(steps + window.stack).Prepend(size)}));
  TROOP_RETURN_IF_ERROR(
      CheckSpec("action", batch.action, {one.dtype, one.shape.Prepend(steps).Prepend(size)}));
  TROOP_RETURN_IF_ERROR(CheckSpec("reward", batch.reward, {DType::kF32, {size, steps}}));
  TROOP_RETURN_IF_ERROR(CheckSpec("discount", batch.discount, {DType::kF32, {size, steps}}));
  const auto count = std::size_t(size);
  if (batch.weight.size() != count || batch.length.size() != count ||
      batch.burn_in.size() != count || priorities != count) {
    return InvalidArgument(
        "{} weights, {} lengths, {} burn-ins and {} priorities for a batch of {} unrolls",
        batch.weight.size(), batch.length.size(), batch.burn_in.size(), priorities, size);
  }
  // Values that index into tensors, which the loss does not check.
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t length = batch.length[i], burn_in = batch.burn_in[i];
    if (length < 1 || length > steps - window.burn_in) {
      return InvalidArgument("unroll {}: length {} is not in [1, {}]", i, length,
                             steps - window.burn_in);
    }
    if (burn_in < 0 || burn_in > window.burn_in) {
      return InvalidArgument("unroll {}: burn-in {} is not in [0, {}]", i, burn_in, window.burn_in);
    }
    if (!env.action.discrete()) {
      // Integers select logits; other components are only compared with their distribution.
      const std::size_t size = env.action.low.size();
      const std::size_t first = i * std::size_t(steps) + std::size_t(window.burn_in);
      if (!env.action.integers) continue;
      TROOP_RETURN_IF_ERROR(
          CheckComponents(env.action, batch.action.as<float>().subspan(first * size,
                                                                       std::size_t(length) * size))
              .WithContext(fmt::format("unroll {}", i)));
      continue;
    }
    // Actions of the burn-in are not used.
    const auto actions = batch.action.as<std::int32_t>().subspan(
        i * std::size_t(steps) + std::size_t(window.burn_in), std::size_t(length));
    // The window of an unroll has `stack` frames more than steps.
    const std::size_t bytes = frame.bytes();
    const std::span<const std::byte> frames =
        batch.observation.bytes().subspan(i * std::size_t(steps + window.stack) * bytes);
    for (std::size_t t = 0; t < actions.size(); ++t) {
      const std::int32_t action = actions[t];
      if (action < 0 || action >= env.action.count) {
        return InvalidArgument("unroll {}: action {} is not in [0, {})", i, action,
                               env.action.count);
      }
      // The stack of a step ends `stack` frames after its column.
      const std::size_t end = std::size_t(window.burn_in + window.stack) + t;
      TROOP_RETURN_IF_ERROR(CheckAllowed(env, frames.first(end * bytes), action)
                                .WithContext(fmt::format("unroll {}, step {}", i, t)));
    }
  }
  return Status::Ok();
}

}  // namespace troop
