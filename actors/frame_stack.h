#pragma once

#include <cstdint>
#include <span>

#include "core/tensor.h"

namespace troop {

// The last S observations of N environments, as the replay's batches hold them: oldest first, and
// zeros for what lies before an episode's start (replay/view.h). One owner thread.
// Cost: a copy of S frames per environment and step.
class FrameStack {
 public:
  FrameStack(const TensorSpec& frame, int envs, int stack);  // REQUIRES: envs, stack >= 1

  // frames: [N, ...obs]. first[i] != 0: an episode of environment i begins with its frame.
  void Append(const ConstTensor& frames, std::span<const std::uint8_t> first);
  ConstTensor stacked() const { return stacked_; }  // [N, S, ...obs]

 private:
  const std::size_t frame_bytes_;
  Tensor stacked_;
};

}  // namespace troop
