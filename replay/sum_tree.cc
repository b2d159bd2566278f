#include "replay/sum_tree.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "core/check.h"
#include "kernels/cpu.h"

namespace troop {
namespace {

constexpr std::int64_t kArity = 16;

std::int64_t NodesOf(std::int64_t values) { return (values + kArity - 1) / kArity; }

// Nodes per level, leaves first; the last level has one.
std::vector<std::int64_t> LevelNodes(std::int64_t slots) {
  std::vector<std::int64_t> nodes;
  for (std::int64_t values = slots;; values = nodes.back()) {
    nodes.push_back(NodesOf(values));
    if (nodes.back() == 1) return nodes;
  }
}

// Values of all levels, and borders of those that have them.
std::size_t FloatCount(std::int64_t slots) {
  std::int64_t floats = 0;
  int level = 0;
  for (const std::int64_t nodes : LevelNodes(slots)) {
    floats += (level++ < kSumTreeBorderLevel ? 1 : 2) * nodes * kArity;
  }
  return std::size_t(floats);
}

}  // namespace

Result<SumTree> SumTree::Make(std::int64_t slots) {
  TROOP_CHECK(slots >= 1 && slots <= kSlotsMax, "a sum tree of {} slots", slots);
  SumTree tree;
  tree.slots_ = slots;
  tree.kernels_ = &SumTreeKernelsFor(BestCpuLevel());
  TROOP_ASSIGN_OR_RETURN(tree.values_, BigArray<float>::Make(FloatCount(slots)));
  SumTreeLevels& levels = tree.levels_;
  float* next = tree.values_.data();
  for (const std::int64_t nodes : LevelNodes(slots)) {
    levels.nodes[levels.count] = std::uint32_t(nodes);
    levels.value[levels.count] = next;
    next += nodes * kArity;
    if (levels.count >= kSumTreeBorderLevel) {
      levels.border[levels.count] = next;
      next += nodes * kArity;
    }
    ++levels.count;
  }
  return tree;
}

std::size_t SumTree::Bytes(std::int64_t slots) { return BigArray<float>::Bytes(FloatCount(slots)); }

void SumTree::Set(std::span<const Slot> slot, std::span<const float> priority) {
  TROOP_CHECK(slot.size() == priority.size(), "{} slots, {} priorities", slot.size(),
              priority.size());
  if (!kernels_->valid(slot.data(), priority.data(), slot.size(), Slot(slots_), kPriorityMax)) {
    for (std::size_t i = 0; i < slot.size(); ++i) {
      TROOP_CHECK(slot[i] < slots_, "slot {} of {}", slot[i], slots_);
      TROOP_CHECK(priority[i] >= 0 && priority[i] <= kPriorityMax, "priority {}", priority[i]);
    }
  }
  for (std::size_t first = 0; first < slot.size(); first += kBlock) {
    SetBlock(slot.data() + first, priority.data() + first, std::min(kBlock, slot.size() - first));
  }
}

// Stores a step's priorities while the lines of the next are on their way, and sums the nodes of
// the step before, whose stores have left the processor by then (a load right after narrower stores
// to its line stalls). A node is listed once for neighbours that follow each other in a step; other
// repetitions are rare or cheap, and finding them costs more than summing twice.
void SumTree::SetBlock(const Slot* slot, const float* priority, std::size_t count) {
  constexpr std::size_t kStep = 32;
  float* const leaf = levels_.value[0];
  float* const parent = levels_.count > 1 ? levels_.value[1] : &total_;
  for (std::size_t i = 0; i < std::min(kStep, count); ++i) __builtin_prefetch(leaf + slot[i], 1);
  std::size_t touched = 0, stored = 0, summed = 0;
  for (std::size_t first = 0; first < count; first += kStep) {
    const std::size_t end = std::min(first + kStep, count), ahead = std::min(end + kStep, count);
    for (std::size_t i = end; i < ahead; ++i) __builtin_prefetch(leaf + slot[i], 1);
    std::uint32_t last = ~0u;  // no node: a step lists anew what it stores to
    for (std::size_t i = first; i < end; ++i) {
      leaf[slot[i]] = priority[i];
      const std::uint32_t node = slot[i] / kArity;
      __builtin_prefetch(parent + node, 1);
      touched_[touched] = node;
      touched += node != last;
      last = node;
    }
    SumLevel(0, touched_.data() + summed, stored - summed);
    summed = stored;
    stored = touched;
  }
  SumLevel(0, touched_.data() + summed, touched - summed);
  SumAbove(touched);
}

void SumTree::Fill(Slot first, std::int64_t count, float priority) {
  TROOP_CHECK(count >= 0 && first + count <= slots_, "slots [{}, +{}) of {}", first, count, slots_);
  TROOP_CHECK(priority >= 0 && priority <= kPriorityMax, "priority {}", priority);
  if (count == 0) return;
  std::fill_n(levels_.value[0] + first, count, priority);
  const std::int64_t end = (first + count - 1) / kArity + 1;
  for (std::int64_t node = first / kArity; node < end; node += std::int64_t(kBlock)) {
    const auto touched = std::size_t(std::min(std::int64_t(kBlock), end - node));
    std::iota(touched_.begin(), touched_.begin() + std::ptrdiff_t(touched), std::uint32_t(node));
    SumLevel(0, touched_.data(), touched);
    SumAbove(touched);
  }
}

void SumTree::SumLevel(int level, const std::uint32_t* node, std::size_t count) {
  const auto l = std::size_t(level);
  float* const parent = level + 1 < levels_.count ? levels_.value[l + 1] : &total_;
  kernels_->sum(levels_.value[l], levels_.border[l], node, count, parent);
}

// The levels above the leaves' nodes touched_[0, touched). A level of no more nodes than were
// touched below it is summed as a whole.
void SumTree::SumAbove(std::size_t touched) {
  for (int level = 1; level < levels_.count; ++level) {
    const std::size_t nodes = levels_.nodes[level];
    std::size_t parents = 0;
    if (nodes <= touched) {
      std::iota(touched_.begin(), touched_.begin() + std::ptrdiff_t(nodes), 0u);
      parents = nodes;
    } else {
      std::uint32_t last = ~0u;
      for (std::size_t i = 0; i < touched; ++i) {
        const std::uint32_t node = touched_[i] / kArity;
        touched_[parents] = node;
        parents += node != last;
        last = node;
      }
    }
    SumLevel(level, touched_.data(), parents);
    touched = parents;
  }
}

void SumTree::Find(std::span<const double> mass, std::span<Slot> slot,
                   std::span<float> priority) const {
  TROOP_CHECK(mass.size() == slot.size() && mass.size() == priority.size(),
              "{} masses, {} slots, {} priorities", mass.size(), slot.size(), priority.size());
  TROOP_CHECK(total_ > 0, "nothing to find: all priorities are 0");
  kernels_->find(levels_, mass.data(), mass.size(), slot.data(), priority.data());
}

}  // namespace troop
