// ListSelector: first in first out, or last in first out.
#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "replay/selectors/factory.h"
#include "replay/storage/huge_array.h"

namespace troop::internal {
namespace {

// A doubly linked ring: node 0 is both ends, node s + 1 is slot s. Priorities are ignored.
class ListSelector final : public Selector {
 public:
  struct Link {
    std::uint32_t next = 0;  // with kInUse, so that zeroed memory is an empty list
    std::uint32_t previous = 0;
  };

  ListSelector(Kind kind, HugeArray<Link> links)
      : oldest_first_(kind == Kind::kFifo), links_(std::move(links)) {}

  void Add(std::span<const Slot> slot, std::span<const float> priority) override {
    TROOP_CHECK(slot.size() == priority.size(), "{} slots, {} priorities", slot.size(),
                priority.size());
    // Appends at the end of the ring.
    std::uint32_t last = links_[0].previous;
    for (const Slot s : slot) {
      TROOP_CHECK(s + std::size_t{1} < links_.size() && links_[s + 1].next == 0,
                  "slot {} of {} is taken", s, links_.size() - 1);
      links_[last].next = (s + 1) | kInUse;
      links_[s + 1] = {kInUse, last};
      last = s + 1;
    }
    links_[0].previous = last;
    size_ += std::int64_t(slot.size());
  }
  // The list has no priorities to change.
  void Update(std::span<const Slot> slot, std::span<const float> priority) override {
    TROOP_CHECK(slot.size() == priority.size(), "{} slots, {} priorities", slot.size(),
                priority.size());
  }
  void Remove(std::span<const Slot> slot) override {
    for (const Slot s : slot) {
      TROOP_CHECK(s + std::size_t{1} < links_.size() && links_[s + 1].next != 0,
                  "slot {} of {} is empty", s, links_.size() - 1);
      // Unlinks the node in O(1), wherever it is.
      const Link link = links_[s + 1];
      links_[link.previous].next = link.next;
      links_[link.next & ~kInUse].previous = link.previous;
      links_[s + 1] = {};
    }
    size_ -= std::int64_t(slot.size());
  }

  void Draw(Rng*, std::span<Slot> slot, std::span<double> probability) override {
    TROOP_CHECK(can_draw() && slot.size() == probability.size(), "sample of {} from {}",
                slot.size(), size());
    std::uint32_t node = 0;
    // Without replacement as long as the batch is not larger than the list.
    for (Slot& s : slot) {
      node = After(node);
      if (node == 0) node = After(node);  // wraps around
      s = node - 1;
    }
    std::ranges::fill(probability, probability_min());
  }
  // The order itself is the choice, so no random number is used.
  Slot Pick(Rng*) override {
    TROOP_CHECK(size() > 0, "nothing to pick");
    return After(0) - 1;
  }

  bool can_draw() const override { return size_ > 0; }
  std::int64_t size() const override { return size_; }
  double total() const override { return double(size_); }
  double probability_min() const override { return size_ > 0 ? 1 / double(size_) : 0; }
  std::size_t bytes() const override { return links_.bytes(); }

 private:
  // Mark in `next` of a slot in the list: 0 then means that the slot is not in it.
  static constexpr std::uint32_t kInUse = 0x80000000u;
  static_assert(kSelectorSlotsMax < kInUse);

  // Direction of iteration: from the oldest for kFifo, from the newest for kLifo.
  std::uint32_t After(std::uint32_t node) const {
    return oldest_first_ ? links_[node].next & ~kInUse : links_[node].previous;
  }

  const bool oldest_first_;
  HugeArray<Link> links_;  // [slots + 1]
  std::int64_t size_ = 0;
};

}  // namespace

SelectorResult MakeListSelector(Selector::Kind kind, std::int64_t slots) {
  TROOP_ASSIGN_OR_RETURN(auto links, HugeArray<ListSelector::Link>::Make(std::size_t(slots) + 1));
  return std::unique_ptr<Selector>(std::make_unique<ListSelector>(kind, std::move(links)));
}

std::size_t ListSelectorBytes(std::int64_t slots) {
  return HugeArray<ListSelector::Link>::Bytes(std::size_t(slots) + 1);
}

}  // namespace troop::internal
