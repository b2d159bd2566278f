// UniformSelector: equal probabilities, stratified.
#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "replay/selectors/factory.h"
#include "replay/storage/huge_array.h"

namespace troop::internal {
namespace {

// A dense array of the used slots. Priorities are ignored.
class UniformSelector final : public Selector {
 public:
  UniformSelector(HugeArray<Slot> slots, HugeArray<std::uint32_t> place)
      : slots_(std::move(slots)), place_(std::move(place)) {}

  void Add(std::span<const Slot> slot, std::span<const float> priority) override {
    TROOP_CHECK(slot.size() == priority.size(), "{} slots, {} priorities", slot.size(),
                priority.size());
    for (const Slot s : slot) {
      TROOP_CHECK(s < place_.size() && !Has(s), "slot {} of {} is taken", s, place_.size());
      slots_[std::size_t(size_)] = s;
      place_[s] = std::uint32_t(size_++);
    }
  }
  void Update(std::span<const Slot> slot, std::span<const float> priority) override {
    // Updates leave the probabilities equal; only the sizes are checked.
    TROOP_CHECK(slot.size() == priority.size(), "{} slots, {} priorities", slot.size(),
                priority.size());
  }
  void Remove(std::span<const Slot> slot) override {
    for (const Slot s : slot) {
      TROOP_CHECK(s < place_.size() && Has(s), "slot {} of {} is empty", s, place_.size());
      // The array stays dense in O(1); its order has no meaning.
      // The last slot takes the removed one's place.
      const Slot last = slots_[std::size_t(--size_)];
      slots_[place_[s]] = last;
      place_[last] = place_[s];
    }
  }

  void Draw(Rng* rng, std::span<Slot> slot, std::span<double> probability) override {
    TROOP_CHECK(can_draw() && slot.size() == probability.size(), "sample of {} from {}",
                slot.size(), size());
    // Stratified, as with priorities: sample i comes from the i-th part of the array.
    const double stratum = double(size_) / double(slot.size());
    for (std::size_t i = 0; i < slot.size(); ++i) {
      const auto place = std::int64_t((double(i) + rng->Uniform()) * stratum);
      slot[i] = slots_[std::size_t(std::min(place, size_ - 1))];  // rounding may reach size_
    }
    std::ranges::fill(probability, probability_min());
  }
  // For evictions: one slot, each with equal probability.
  Slot Pick(Rng* rng) override {
    TROOP_CHECK(size_ > 0, "nothing to pick");
    return slots_[rng->Below(std::uint32_t(size_))];
  }

  bool can_draw() const override { return size_ > 0; }
  std::int64_t size() const override { return size_; }
  double total() const override { return double(size_); }
  double probability_min() const override { return size_ > 0 ? 1 / double(size_) : 0; }
  std::size_t bytes() const override { return slots_.bytes() + place_.bytes(); }

 private:
  // Zeroed memory is valid: a stale index fails one of the two checks (Briggs & Torczon 1993).
  bool Has(Slot slot) const {
    return std::int64_t(place_[slot]) < size_ && slots_[place_[slot]] == slot;
  }

  HugeArray<Slot> slots_;           // [0, size_): the used slots, in no order
  HugeArray<std::uint32_t> place_;  // index of each slot in slots_; stale if unused
  std::int64_t size_ = 0;
};

}  // namespace

SelectorResult MakeUniformSelector(std::int64_t slots) {
  TROOP_ASSIGN_OR_RETURN(auto dense, HugeArray<Selector::Slot>::Make(std::size_t(slots)));
  TROOP_ASSIGN_OR_RETURN(auto place, HugeArray<std::uint32_t>::Make(std::size_t(slots)));
  return std::unique_ptr<Selector>(
      std::make_unique<UniformSelector>(std::move(dense), std::move(place)));
}

std::size_t UniformSelectorBytes(std::int64_t slots) {
  return HugeArray<Selector::Slot>::Bytes(std::size_t(slots)) +
         HugeArray<std::uint32_t>::Bytes(std::size_t(slots));
}

}  // namespace troop::internal
