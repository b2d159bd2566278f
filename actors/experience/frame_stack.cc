// Implements the stacks of the last S observations.

#include "actors/experience/frame_stack.h"

#include <cstring>

#include "core/base/check.h"

namespace troop {

FrameStack::FrameStack(const TensorSpec& frame, int envs, int stack)
    : frame_bytes_(frame.bytes()), stacked_(frame.dtype, frame.shape.Prepend(stack).Prepend(envs)) {
  TROOP_CHECK(envs >= 1 && stack >= 1, "stacks of {} frames of {} environments", stack, envs);
}

void FrameStack::Append(const ConstTensor& frames, std::span<const std::uint8_t> first) {
  const auto envs = std::size_t(stacked_.dim(0));
  const std::size_t older = stacked_.bytes().size() / envs - frame_bytes_;
  TROOP_CHECK(first.size() == envs && frames.bytes().size() == envs * frame_bytes_,
              "{} bytes of frames of {} environments", frames.bytes().size(), first.size());
  // Shift each stack by one frame, or clear it at the start of an episode.
  for (std::size_t i = 0; i < envs; ++i) {
    std::byte* const row = stacked_.bytes().data() + i * (older + frame_bytes_);
    if (first[i] != 0) {
      std::memset(row, 0, older);
    } else {
      std::memmove(row, row + frame_bytes_, older);
    }
    std::memcpy(row + older, frames.bytes().data() + i * frame_bytes_, frame_bytes_);
  }
}

}  // namespace troop
