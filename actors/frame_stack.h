#pragma once

#include <cstdint>
#include <span>

#include "core/tensor/tensor.h"

namespace troop {

// The last S observations of N environments, in the layout of the replay's batches: oldest first,
// with zeros before the start of an episode (replay/storage/item_view.h). One owner thread. Cost: a
// copy of S frames per environment and step.
class FrameStack {
 public:
  FrameStack(const TensorSpec& frame, int envs, int stack);  // REQUIRES: envs, stack >= 1

  // Appends one frame per environment. frames: [N, ...obs]. first[i] != 0: environment i starts an
  // episode with this frame.
  void Append(const ConstTensor& frames, std::span<const std::uint8_t> first);
  ConstTensor stacked() const { return stacked_; }  // [N, S, ...obs]

 private:
  const std::size_t frame_bytes_;
  Tensor stacked_;
};

}  // namespace troop
