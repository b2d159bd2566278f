#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/status.h"
#include "replay/big_array.h"
#include "replay/sum_tree_kernels.h"
#include "replay/tree_update.h"

namespace troop {

// Draws slots in proportion to their priority: a 16-ary tree of f32 sums, one cache line per node.
// Owner: one thread. Only batches: the descents of a batch are interleaved, so that their cache
// misses overlap, and an update recomputes the touched nodes level by level.
//
// Invariants:
//  1. Every sum is recomputed from its 16 children, never changed by a difference: no drift.
//  2. Find returns a slot of positive priority, whatever rounding does and whatever the mass is.
//  3. All instruction-set paths give the same bits (sums are added in one fixed order).
// Cost: 4.29 bytes a slot; at 1M slots 5 lines are read per descent.
// A mass decides between neighbours with the error of f32 sums: a child's border is off by at most
// about 1e-7 of its node's sum.
class SumTree {
 public:
  using Slot = std::uint32_t;
  // The largest priority that a slot takes: 2^32 of them still add up to a finite f32.
  static constexpr float kPriorityMax = 1e28f;
  static constexpr std::int64_t kSlotsMax = std::int64_t{1} << 31;

  // All priorities 0. Errors: kResourceExhausted. REQUIRES: 1 <= slots <= kSlotsMax.
  static Result<SumTree> Make(std::int64_t slots);
  // What a tree of this size takes.
  static std::size_t Bytes(std::int64_t slots);

  // priority[i]: new priority of slot[i]; 0: never drawn. A slot named twice keeps its last value.
  // REQUIRES: slot[i] < slots(), 0 <= priority[i] <= kPriorityMax (NaN is refused by this).
  void Set(std::span<const Slot> slot, std::span<const float> priority);
  // The same priority for slots [first, first + count).
  void Fill(Slot first, std::int64_t count, float priority);

  // slot[i]: the first whose prefix sum is above mass[i]; priority[i]: its priority. Masses outside
  // [0, total()) find the nearest slot of positive priority. REQUIRES: total() > 0.
  void Find(std::span<const double> mass, std::span<Slot> slot, std::span<float> priority) const;

  double total() const { return double(total_); }
  float priority(Slot slot) const { return levels_.value[0][slot]; }
  std::int64_t slots() const { return slots_; }
  std::size_t bytes() const { return Bytes(slots_); }
  // For tests and benchmarks: the path to take instead of the best one of this machine.
  void UseKernels(const SumTreeKernels& kernels) { kernels_ = &kernels; }

 private:
  SumTree() = default;
  void SumLevel(std::size_t level, const std::uint32_t* node, std::size_t count);

  std::int64_t slots_ = 0;
  SumTreeLevels levels_;
  BigArray<float> values_;  // what levels_ points into
  TouchedNodes touched_{};
  float total_ = 0;
  const SumTreeKernels* kernels_ = nullptr;
};

}  // namespace troop
