#include "replay/sum_tree.h"

#include <algorithm>

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

std::size_t ValueCount(std::int64_t slots) {
  std::int64_t values = 0;
  for (const std::int64_t nodes : LevelNodes(slots)) values += nodes * kArity;
  return std::size_t(values);
}

std::size_t TouchedWords(std::int64_t slots) { return std::size_t(NodesOf(slots) + 63) / 64; }

}  // namespace

Result<SumTree> SumTree::Make(std::int64_t slots) {
  TROOP_CHECK(slots >= 1 && slots <= kSlotsMax, "a sum tree of {} slots", slots);
  SumTree tree;
  tree.slots_ = slots;
  tree.kernels_ = &SumTreeKernelsFor(BestCpuLevel());
  TROOP_ASSIGN_OR_RETURN(tree.values_, BigArray<float>::Make(ValueCount(slots)));
  TROOP_ASSIGN_OR_RETURN(tree.touched_bit_, BigArray<std::uint64_t>::Make(TouchedWords(slots)));
  float* next = tree.values_.data();
  for (const std::int64_t nodes : LevelNodes(slots)) {
    tree.level_[std::size_t(tree.levels_++)] = next;
    next += nodes * kArity;
  }
  return tree;
}

std::size_t SumTree::Bytes(std::int64_t slots) {
  return BigArray<float>::Bytes(ValueCount(slots)) +
         BigArray<std::uint64_t>::Bytes(TouchedWords(slots));
}

void SumTree::Set(std::span<const Slot> slot, std::span<const float> priority) {
  TROOP_CHECK(slot.size() == priority.size(), "{} slots, {} priorities", slot.size(),
              priority.size());
  float* const leaf = level_[0];
  for (std::size_t i = 0; i < slot.size(); ++i) {
    TROOP_CHECK(slot[i] < slots_, "slot {} of {}", slot[i], slots_);
    TROOP_CHECK(priority[i] >= 0 && priority[i] <= kPriorityMax, "priority {}", priority[i]);
    leaf[slot[i]] = priority[i];
    Touch(slot[i] / kArity);
  }
  SumTouched();
}

void SumTree::Fill(Slot first, std::int64_t count, float priority) {
  TROOP_CHECK(count >= 0 && first + count <= slots_, "slots [{}, +{}) of {}", first, count, slots_);
  TROOP_CHECK(priority >= 0 && priority <= kPriorityMax, "priority {}", priority);
  if (count == 0) return;
  std::fill_n(level_[0] + first, count, priority);
  const Slot last = Slot(first + count - 1);
  for (Slot node = first / kArity; node <= last / kArity; ++node) Touch(node);
  SumTouched();
}

void SumTree::Touch(std::uint32_t node) {
  std::uint64_t& word = touched_bit_[node / 64];
  const std::uint64_t bit = std::uint64_t{1} << (node % 64);
  if ((word & bit) != 0) return;
  word |= bit;
  touched_.push_back(node);
}

// Level by level, so that a sum is read long after its children were written (a load right after
// narrower stores to its line stalls), and each node is summed once however many children changed.
void SumTree::SumTouched() {
  for (int level = 0; level < levels_ && !touched_.empty(); ++level) {
    const bool top = level + 1 == levels_;
    float root = 0;
    kernels_->sum(level_[std::size_t(level)], touched_.data(), touched_.size(),
                  top ? &root : level_[std::size_t(level) + 1]);
    if (top) total_ = root;
    for (const std::uint32_t node : touched_) touched_bit_[node / 64] = 0;
    const std::size_t count = top ? 0 : touched_.size();
    std::size_t kept = 0;
    for (std::size_t i = 0; i < count; ++i) {  // the parents, each once, in place
      const std::uint32_t node = touched_[i] / kArity;
      std::uint64_t& word = touched_bit_[node / 64];
      const std::uint64_t bit = std::uint64_t{1} << (node % 64);
      if ((word & bit) == 0) touched_[kept++] = node;
      word |= bit;
    }
    touched_.resize(kept);
  }
}

void SumTree::Find(std::span<const double> mass, std::span<Slot> slot,
                   std::span<float> priority) const {
  TROOP_CHECK(mass.size() == slot.size() && mass.size() == priority.size(),
              "{} masses, {} slots, {} priorities", mass.size(), slot.size(), priority.size());
  TROOP_CHECK(total_ > 0, "nothing to find: all priorities are 0");
  kernels_->find(level_.data(), levels_, mass.data(), mass.size(), slot.data(), priority.data());
}

}  // namespace troop
