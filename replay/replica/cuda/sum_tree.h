#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cuda/runtime/device.h"

namespace troop::cuda {

// A sum tree in GPU memory (CPU version: replay/selectors/sum_tree.h). Leaves are priorities in
// f32; each node above is the f64 sum of 64 children, so that one warp reads a node and a million
// slots have four levels. Sums are recomputed from the children in a fixed order, so errors do not
// accumulate and equal priorities give equal bytes. Cost depends on the batch and the levels, not
// on the slots.
class DeviceSumTree {
 public:
  // Creates a tree with all priorities 0. REQUIRES: slots > 0.
  DeviceSumTree(Device& device, std::int64_t slots);

  std::int64_t slots() const { return slots_; }
  const float* priorities() const { return leaves_.data(); }  // [slots]
  const double* total() const { return levels_.back().data(); }

  // Sets priorities. The last value of a repeated slot counts; slot -1 is skipped. slot, priority:
  // [n] on the device; priorities finite and not negative. O(n² / 1024 + n levels).
  void Set(Stream& stream, std::int64_t n, const std::int32_t* slot, const float* priority);
  // Finds the slot whose part of [0, total) contains each mass; never one of priority 0 if another
  // has more. mass: [n] input; slot, priority: [n] output. REQUIRES: total > 0, 0 <= mass < total.
  // O(n levels).
  void Find(Stream& stream, std::int64_t n, const double* mass, std::int32_t* slot,
            float* priority);

 private:
  static constexpr int kLevelsMax = 6;  // 64^6 slots
  struct Levels {
    double* sums[kLevelsMax] = {};  // sums of 64 children each; level 0 sums leaves
    int count = 0;
  };
  friend struct SumTreeKernels;

  const std::int64_t slots_;
  DeviceArray<float> leaves_;                // padded to 64
  std::vector<DeviceArray<double>> levels_;  // padded to 64; the last has 1
  Levels pointers_;
};

}  // namespace troop::cuda
