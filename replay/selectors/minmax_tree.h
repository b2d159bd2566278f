#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "core/base/status.h"
#include "replay/selectors/minmax_tree_kernels.h"
#include "replay/selectors/sum_tree_kernels.h"
#include "replay/selectors/tree_update.h"
#include "replay/storage/huge_array.h"

namespace troop {

// Exact minimum or maximum of the values in used slots: a 16-ary tree, one cache line per node,
// with batched updates like SumTree. Owner: one thread. Invariant: a slot that was never set, or
// was cleared, does not count. Cost: 4.27 bytes per slot.
class MinMaxTree {
 public:
  using Slot = std::uint32_t;
  enum class Kind : std::uint8_t { kLeast, kGreatest };
  static constexpr std::int64_t kSlotsMax = std::int64_t{1} << 31;

  // Creates a tree without used slots. Errors: kResourceExhausted. REQUIRES: 1 <= slots <=
  // kSlotsMax.
  static Result<MinMaxTree> Make(Kind kind, std::int64_t slots);
  static std::size_t Bytes(std::int64_t slots);

  // Sets values; the last value of a repeated slot counts. REQUIRES: slot[i] < slots(), value[i]
  // finite and >= 0.
  void Set(std::span<const Slot> slot, std::span<const float> value);
  void Clear(std::span<const Slot> slot);  // REQUIRES: slot[i] < slots()

  // Extreme over all used slots; nullopt if there are none. O(1).
  std::optional<float> value() const { return ValueOf(top_); }
  // Lowest slot with the extreme value. O(levels). REQUIRES: some slot is in use.
  Slot FirstSlot() const;
  std::optional<float> value(Slot slot) const { return ValueOf(level_[0][slot]); }
  std::int64_t slots() const { return slots_; }
  std::size_t bytes() const { return Bytes(slots_); }
  // For tests and benchmarks: overrides the best kernels of this machine.
  void UseKernels(const MinMaxTreeKernels& kernels) { kernels_ = &kernels; }

 private:
  MinMaxTree() = default;
  std::uint32_t KeyOf(float value) const;
  std::optional<float> ValueOf(std::uint32_t key) const;
  template <class Value>
  void SetKeys(std::span<const Slot> slot, const Value& key);

  Kind kind_ = Kind::kLeast;
  std::int64_t slots_ = 0;
  std::size_t levels_ = 0;
  std::uint32_t* level_[kSumTreeLevelsMax] = {};
  std::uint32_t nodes_[kSumTreeLevelsMax] = {};
  // Memory of level_. Keys are ordered like their values, or in reverse for kLeast, so that the
  // greatest key wins. Key 0, the content of fresh pages, marks an unused slot.
  HugeArray<std::uint32_t> keys_;
  TouchedNodes touched_{};
  std::uint32_t top_ = 0;
  const MinMaxTreeKernels* kernels_ = nullptr;
};

}  // namespace troop
