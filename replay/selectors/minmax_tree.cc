// MinMaxTree: keys, memory layout and batched updates; the loops are in extreme_tree_*.cc.
#include "replay/selectors/minmax_tree.h"

#include <algorithm>
#include <bit>
#include <cfloat>

#include "core/base/check.h"
#include "kernels/simd/cpu_features.h"

namespace troop {
namespace {

// Number of keys on all levels, whole nodes each.
std::size_t KeyCount(std::int64_t slots) {
  std::int64_t keys = 0;
  for (const std::int64_t nodes : TreeNodes(slots)) keys += nodes * kTreeArity;
  return std::size_t(keys);
}

}  // namespace

const MinMaxTreeKernels& MinMaxTreeKernelsFor(CpuLevel level) {
  if (level >= CpuLevel::kAvx512) return kMinMaxTreeAvx512;
  if (level >= CpuLevel::kAvx2) return kMinMaxTreeAvx2;
  return kMinMaxTreePlain;
}

Result<MinMaxTree> MinMaxTree::Make(Kind kind, std::int64_t slots) {
  TROOP_CHECK(slots >= 1 && slots <= kSlotsMax, "an extreme tree of {} slots", slots);
  MinMaxTree tree;
  tree.kind_ = kind;
  tree.slots_ = slots;
  tree.kernels_ = &MinMaxTreeKernelsFor(BestCpuLevel());
  TROOP_ASSIGN_OR_RETURN(tree.keys_, HugeArray<std::uint32_t>::Make(KeyCount(slots)));
  // All levels lie in one array, each 64-byte aligned.
  std::uint32_t* next = tree.keys_.data();
  for (const std::int64_t nodes : TreeNodes(slots)) {
    tree.nodes_[tree.levels_] = std::uint32_t(nodes);
    tree.level_[tree.levels_++] = next;
    next += nodes * kTreeArity;
  }
  return tree;
}

std::size_t MinMaxTree::Bytes(std::int64_t slots) {
  return HugeArray<std::uint32_t>::Bytes(KeyCount(slots));
}

// The bits of floats >= 0 are ordered like their values. No key is 0: the smallest are
// ~bits(FLT_MAX) and bits(0) + 1. Adding 0 turns -0 into +0.
std::uint32_t MinMaxTree::KeyOf(float value) const {
  const auto bits = std::bit_cast<std::uint32_t>(value + 0.0f);
  return kind_ == Kind::kLeast ? ~bits : bits + 1;
}

std::optional<float> MinMaxTree::ValueOf(std::uint32_t key) const {
  if (key == 0) return std::nullopt;
  return std::bit_cast<float>(kind_ == Kind::kLeast ? ~key : key - 1);
}

// Stores keys and recomputes the maxima above, in blocks.
template <class Value>
void MinMaxTree::SetKeys(std::span<const Slot> slot, const Value& key) {
  const auto renew = [this](std::size_t level, const std::uint32_t* node, std::size_t count) {
    kernels_->greatest(level_[level], node, count, level + 1 < levels_ ? level_[level + 1] : &top_);
  };
  for (std::size_t first = 0; first < slot.size(); first += kTreeBlock) {
    SetLeaves(
        slot.subspan(first, std::min(kTreeBlock, slot.size() - first)), level_[0],
        levels_ > 1 ? level_[1] : &top_, std::span(nodes_, levels_), &touched_,
        [&key, first](std::size_t i) { return key(first + i); }, renew);
  }
}

// Values are checked one by one, without a vectorized kernel as in SumTree.
void MinMaxTree::Set(std::span<const Slot> slot, std::span<const float> value) {
  TROOP_CHECK(slot.size() == value.size(), "{} slots, {} values", slot.size(), value.size());
  for (std::size_t i = 0; i < slot.size(); ++i) {
    TROOP_CHECK(slot[i] < slots_, "slot {} of {}", slot[i], slots_);
    TROOP_CHECK(value[i] >= 0 && value[i] <= FLT_MAX, "value {}", value[i]);
  }
  SetKeys(slot, [this, value](std::size_t i) { return KeyOf(value[i]); });
}

// Key 0 is below every key of a value.
void MinMaxTree::Clear(std::span<const Slot> slot) {
  for (const Slot s : slot) TROOP_CHECK(s < slots_, "slot {} of {}", s, slots_);
  SetKeys(slot, [](std::size_t) { return 0u; });
}

MinMaxTree::Slot MinMaxTree::FirstSlot() const {
  TROOP_CHECK(top_ != 0, "no slot is in use");
  // Follows the first child that has the root's key.
  std::uint32_t node = 0;
  for (std::size_t level = levels_; level-- > 0;) {
    const std::uint32_t* const key = level_[level] + std::size_t(node) * std::size_t(kTreeArity);
    node = node * std::uint32_t(kTreeArity) +
           std::uint32_t(std::find(key, key + kTreeArity, top_) - key);
  }
  return node;
}

}  // namespace troop
