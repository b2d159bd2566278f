#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cuda/device.h"

namespace troop::cuda {

// A sum tree in GPU memory (its twin: replay/sum_tree.h): priorities of slots, f32, and above them
// the sums of 64 each, f64, so that one warp looks at a node and a million slots have four levels.
// A node is summed anew from its children in a fixed order: no error builds up, and the same
// priorities give the same bytes. Costs depend on the batch and the levels, not on the slots.
class DeviceSumTree {
 public:
  // All priorities are 0. slots > 0.
  DeviceSumTree(Device& device, std::int64_t slots);

  std::int64_t slots() const { return slots_; }
  const float* priorities() const { return leaves_.data(); }  // [slots]
  const double* total() const { return levels_.back().data(); }

  // Of equal slots in a batch the last one counts; slot -1: left out. slot, priority: [n] on the
  // device; priorities finite and not negative. O(n² / 1024 + n levels).
  void Set(Stream& stream, std::int64_t n, const std::int32_t* slot, const float* priority);
  // The slot in whose part of [0, total) each mass lies; never one of priority 0 while there is
  // another. mass: [n]; slot, priority: [n], written. REQUIRES: total > 0, 0 <= mass < total. O(n
  // levels).
  void Find(Stream& stream, std::int64_t n, const double* mass, std::int32_t* slot,
            float* priority);

 private:
  static constexpr int kLevelsMax = 6;  // 64^6 slots
  struct Levels {
    double* sums[kLevelsMax] = {};  // of 64 of the level below, the first one's of leaves
    int count = 0;
  };
  friend struct SumTreeKernels;

  const std::int64_t slots_;
  DeviceArray<float> leaves_;                // padded to 64
  std::vector<DeviceArray<double>> levels_;  // padded to 64, but the last: 1
  Levels pointers_;
};

}  // namespace troop::cuda
