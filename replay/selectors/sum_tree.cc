// SumTree: memory layout and batched updates; the loops are in sum_tree_*.cc.
#include "replay/selectors/sum_tree.h"

#include <algorithm>
#include <numeric>

#include "core/base/check.h"
#include "kernels/simd/cpu_features.h"

namespace troop {
namespace {

// Number of floats: values of all levels, and borders of the levels that have them.
std::size_t FloatCount(std::int64_t slots) {
  std::int64_t floats = 0;
  int level = 0;
  for (const std::int64_t nodes : TreeNodes(slots)) {
    floats += (level++ < kSumTreeBorderLevel ? 1 : 2) * nodes * kTreeArity;
  }
  return std::size_t(floats);
}

}  // namespace

Result<SumTree> SumTree::Make(std::int64_t slots) {
  TROOP_CHECK(slots >= 1 && slots <= kSlotsMax, "a sum tree of {} slots", slots);
  SumTree tree;
  tree.slots_ = slots;
  tree.kernels_ = &SumTreeKernelsFor(BestCpuLevel());
  TROOP_ASSIGN_OR_RETURN(tree.values_, HugeArray<float>::Make(FloatCount(slots)));
  // All levels lie in one array, each 64-byte aligned, as nodes are 16 floats.
  SumTreeLevels& levels = tree.levels_;
  float* next = tree.values_.data();
  for (const std::int64_t nodes : TreeNodes(slots)) {
    levels.nodes[levels.count] = std::uint32_t(nodes);
    levels.value[levels.count] = next;
    next += nodes * kTreeArity;
    if (levels.count >= kSumTreeBorderLevel) {
      levels.border[levels.count] = next;
      next += nodes * kTreeArity;
    }
    ++levels.count;
  }
  return tree;
}

std::size_t SumTree::Bytes(std::int64_t slots) {
  return HugeArray<float>::Bytes(FloatCount(slots));
}

void SumTree::Set(std::span<const Slot> slot, std::span<const float> priority) {
  TROOP_CHECK(slot.size() == priority.size(), "{} slots, {} priorities", slot.size(),
              priority.size());
  // One vectorized check; only a failure searches for the bad element, to name it.
  if (!kernels_->valid(slot.data(), priority.data(), slot.size(), Slot(slots_), kPriorityMax)) {
    for (std::size_t i = 0; i < slot.size(); ++i) {
      TROOP_CHECK(slot[i] < slots_, "slot {} of {}", slot[i], slots_);
      TROOP_CHECK(priority[i] >= 0 && priority[i] <= kPriorityMax, "priority {}", priority[i]);
    }
  }
  const auto sum = [this](std::size_t level, const std::uint32_t* node, std::size_t count) {
    SumLevel(level, node, count);
  };
  // Blocks bound the scratch memory for touched nodes.
  for (std::size_t first = 0; first < slot.size(); first += kTreeBlock) {
    SetLeaves(
        slot.subspan(first, std::min(kTreeBlock, slot.size() - first)), levels_.value[0],
        levels_.count > 1 ? levels_.value[1] : &total_,
        std::span(levels_.nodes, std::size_t(levels_.count)), &touched_,
        [p = priority.data() + first](std::size_t i) { return p[i]; }, sum);
  }
}

void SumTree::Fill(Slot first, std::int64_t count, float priority) {
  TROOP_CHECK(count >= 0 && first + count <= slots_, "slots [{}, +{}) of {}", first, count, slots_);
  TROOP_CHECK(priority >= 0 && priority <= kPriorityMax, "priority {}", priority);
  if (count == 0) return;
  std::fill_n(levels_.value[0] + first, count, priority);
  const auto sum = [this](std::size_t level, const std::uint32_t* node, std::size_t touched) {
    SumLevel(level, node, touched);
  };
  // Nodes of adjacent leaves are numbered consecutively, so they are summed in blocks without a
  // list.
  const std::int64_t end = (first + count - 1) / kTreeArity + 1;
  for (std::int64_t node = first / kTreeArity; node < end; node += std::int64_t(kTreeBlock)) {
    const auto touched = std::size_t(std::min(std::int64_t(kTreeBlock), end - node));
    std::iota(touched_.data(), touched_.data() + touched, std::uint32_t(node));
    SumLevel(0, touched_.data(), touched);
    RenewAbove(std::span(levels_.nodes, std::size_t(levels_.count)), touched, &touched_, sum);
  }
}

// Recomputes the sums, and on upper levels the borders, of the listed nodes.
void SumTree::SumLevel(std::size_t level, const std::uint32_t* node, std::size_t count) {
  // The root's sum is stored in total_.
  const bool top = level + 1 == std::size_t(levels_.count);
  kernels_->sum(levels_.value[level], levels_.border[level], node, count,
                top ? &total_ : levels_.value[level + 1]);
}

void SumTree::Find(std::span<const double> mass, std::span<Slot> slot,
                   std::span<float> priority) const {
  TROOP_CHECK(mass.size() == slot.size() && mass.size() == priority.size(),
              "{} masses, {} slots, {} priorities", mass.size(), slot.size(), priority.size());
  TROOP_CHECK(total_ > 0, "cannot sample: all priorities are 0");
  kernels_->find(levels_, mass.data(), mass.size(), slot.data(), priority.data());
}

}  // namespace troop
