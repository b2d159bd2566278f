// HeapSelector: lowest or highest priority first; of equals the oldest.
#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "replay/selectors/factory.h"
#include "replay/selectors/slot_heap.h"

namespace troop::internal {
namespace {

// Ranks are signed priorities, so that one min-heap serves both kinds.
class HeapSelector final : public Selector {
 public:
  HeapSelector(Kind kind, SlotHeap heap, std::size_t bytes)
      : sign_(kind == Kind::kLowest ? 1.0f : -1.0f), heap_(std::move(heap)), bytes_(bytes) {}

  void Add(std::span<const Slot> slot, std::span<const float> priority) override {
    TROOP_CHECK(slot.size() == priority.size(), "{} slots, {} priorities", slot.size(),
                priority.size());
    for (std::size_t i = 0; i < slot.size(); ++i) {
      heap_.Add({sign_ * priority[i], slot[i], arrivals_++});
    }
  }
  // Keeps the insertion order of the slot.
  void Update(std::span<const Slot> slot, std::span<const float> priority) override {
    TROOP_CHECK(slot.size() == priority.size(), "{} slots, {} priorities", slot.size(),
                priority.size());
    for (std::size_t i = 0; i < slot.size(); ++i) heap_.SetRank(slot[i], sign_ * priority[i]);
  }
  void Remove(std::span<const Slot> slot) override {
    for (const Slot s : slot) heap_.Remove(s);
  }

  void Draw(Rng*, std::span<Slot> slot, std::span<double> probability) override {
    TROOP_CHECK(can_draw() && slot.size() == probability.size(), "sample of {} from {}",
                slot.size(), size());
    const auto n = std::min(slot.size(), std::size_t(size()));
    // Repeats the first n slots if more are requested than exist.
    heap_.First(slot.first(n));
    for (std::size_t i = n; i < slot.size(); ++i) slot[i] = slot[i - n];
    std::ranges::fill(probability, probability_min());
  }
  Slot Pick(Rng*) override {
    TROOP_CHECK(size() > 0, "nothing to pick");
    return heap_.first().slot;
  }

  bool can_draw() const override { return size() > 0; }
  std::int64_t size() const override { return heap_.size(); }
  double total() const override { return double(size()); }
  // Sampling without chance: every item has the same nominal probability.
  double probability_min() const override { return size() > 0 ? 1 / double(size()) : 0; }
  std::size_t bytes() const override { return bytes_; }

 private:
  const float sign_;  // rank = sign_ * priority
  SlotHeap heap_;
  const std::size_t bytes_;
  std::uint64_t arrivals_ = 0;  // insertion order, for ties
};

}  // namespace

SelectorResult MakeHeapSelector(Selector::Kind kind, std::int64_t slots) {
  TROOP_ASSIGN_OR_RETURN(SlotHeap heap, SlotHeap::Make(slots));
  return std::unique_ptr<Selector>(
      std::make_unique<HeapSelector>(kind, std::move(heap), HeapSelectorBytes(slots)));
}

std::size_t HeapSelectorBytes(std::int64_t slots) { return SlotHeap::Bytes(slots); }

}  // namespace troop::internal
