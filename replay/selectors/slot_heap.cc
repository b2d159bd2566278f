// SlotHeap: a 4-ary min-heap with the position of each slot.
#include "replay/selectors/slot_heap.h"

#include <algorithm>

#include "core/base/check.h"

namespace troop::internal {
namespace {

constexpr std::int64_t kArity = 4;  // children span at most two cache lines

}  // namespace

Result<SlotHeap> SlotHeap::Make(std::int64_t slots) {
  SlotHeap heap;
  TROOP_ASSIGN_OR_RETURN(heap.entries_, HugeArray<Entry>::Make(std::size_t(slots)));
  TROOP_ASSIGN_OR_RETURN(heap.place_, HugeArray<std::uint32_t>::Make(std::size_t(slots)));
  return heap;
}

std::size_t SlotHeap::Bytes(std::int64_t slots) {
  return HugeArray<Entry>::Bytes(std::size_t(slots)) +
         HugeArray<std::uint32_t>::Bytes(std::size_t(slots));
}

// Stores an entry and its position. Positions are offset by 1, since zeroed memory means absent.
void SlotHeap::Put(std::int64_t place, const Entry& entry) {
  entries_[std::size_t(place)] = entry;
  place_[entry.slot] = std::uint32_t(place + 1);
}

// Moves parents down until the entry's place is found, and writes the entry once.
void SlotHeap::Rise(std::int64_t place, const Entry& entry) {
  while (place > 0) {
    const std::int64_t parent = (place - 1) / kArity;
    if (!entry.Before(entries_[std::size_t(parent)])) break;
    Put(place, entries_[std::size_t(parent)]);
    place = parent;
  }
  Put(place, entry);
}

// Moves the smallest child up until the entry's place is found.
void SlotHeap::Sink(std::int64_t place, const Entry& entry) {
  for (;;) {
    const std::int64_t begin = kArity * place + 1, end = std::min(begin + kArity, size_);
    if (begin >= end) break;
    std::int64_t best = begin;
    for (std::int64_t child = begin + 1; child < end; ++child) {
      if (entries_[std::size_t(child)].Before(entries_[std::size_t(best)])) best = child;
    }
    if (!entries_[std::size_t(best)].Before(entry)) break;
    Put(place, entries_[std::size_t(best)]);
    place = best;
  }
  Put(place, entry);
}

void SlotHeap::Add(const Entry& entry) {
  TROOP_CHECK(entry.slot < place_.size() && place_[entry.slot] == 0, "slot {} of {} is taken",
              entry.slot, place_.size());
  Rise(size_++, entry);
}

// A changed entry moves in one direction only.
void SlotHeap::SetRank(std::uint32_t slot, float rank) {
  TROOP_CHECK(Has(slot), "slot {} of {} is empty", slot, place_.size());
  const std::int64_t place = std::int64_t(place_[slot]) - 1;
  const Entry old = entries_[std::size_t(place)], entry{rank, slot, old.order};
  entry.Before(old) ? Rise(place, entry) : Sink(place, entry);
}

void SlotHeap::Remove(std::uint32_t slot) {
  TROOP_CHECK(Has(slot), "slot {} of {} is empty", slot, place_.size());
  const std::int64_t place = std::int64_t(place_[slot]) - 1;
  // The last entry fills the gap and moves up or down from there.
  const Entry old = entries_[std::size_t(place)], last = entries_[std::size_t(--size_)];
  place_[slot] = 0;
  if (place == size_) return;
  last.Before(old) ? Rise(place, last) : Sink(place, last);
}

// The next slot in order is a child of one already returned: keep these candidates in a heap.
void SlotHeap::First(std::span<std::uint32_t> slot) {
  TROOP_CHECK(std::int64_t(slot.size()) <= size_, "first {} of {} slots", slot.size(), size_);
  // Comparison for a heap whose top is the earliest candidate.
  const auto later = [this](std::int64_t a, std::int64_t b) {
    return entries_[std::size_t(b)].Before(entries_[std::size_t(a)]);
  };
  open_.assign(1, 0);
  for (std::uint32_t& s : slot) {
    std::ranges::pop_heap(open_, later);
    const std::int64_t place = open_.back();
    open_.pop_back();
    s = entries_[std::size_t(place)].slot;
    for (std::int64_t child = kArity * place + 1;
         child < std::min(kArity * place + 1 + kArity, size_); ++child) {
      open_.push_back(child);
      std::ranges::push_heap(open_, later);
    }
  }
}

}  // namespace troop::internal
