#pragma once

#include <cstdint>
#include <span>

#include "core/tensor/tensor.h"

namespace troop {

// The last S observations of each of N environments. Layout as in batches of the replay
// (replay/storage/item_view.h): oldest first, with zeros in place of frames before the episode's
// start. One owner thread. Cost: a copy of S frames per environment and step.
class FrameStack {
 public:
  // Creates stacks of zeros. frame: one observation; envs: N; stack: S. REQUIRES: envs, stack >= 1.
  FrameStack(const TensorSpec& frame, int envs, int stack);

  // Appends one frame per environment. frames: [N, ...obs]. first: [N]; nonzero if the environment
  // starts an episode with this frame.
  void Append(const ConstTensor& frames, std::span<const std::uint8_t> first);
  ConstTensor stacked() const { return stacked_; }  // [N, S, ...obs]

 private:
  const std::size_t frame_bytes_;
  Tensor stacked_;
};

}  // namespace troop
