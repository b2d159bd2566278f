#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "core/base/check.h"

namespace troop {

// Values of consecutive sequence numbers [begin, end) in a ring that doubles when full and never
// shrinks: no allocation in the steady state. References are valid until the next Push.
template <class T>
class SequenceRing {
 public:
  explicit SequenceRing(std::uint64_t begin) : begin_(begin), end_(begin) {}

  std::uint64_t begin() const { return begin_; }
  std::uint64_t end() const { return end_; }
  bool empty() const { return begin_ == end_; }
  std::uint64_t size() const { return end_ - begin_; }
  bool Contains(std::uint64_t sequence) const { return sequence >= begin_ && sequence < end_; }
  T& operator[](std::uint64_t sequence) {
    TROOP_CHECK(Contains(sequence), "{} is not in [{}, {})", sequence, begin_, end_);
    return slots_[sequence & (slots_.size() - 1)];
  }
  const T& operator[](std::uint64_t sequence) const {
    return const_cast<SequenceRing&>(*this)[sequence];
  }
  // Appends a default value with the sequence end().
  T& Push() {
    if (size() == slots_.size()) Grow();
    T& slot = slots_[end_++ & (slots_.size() - 1)];
    slot = T{};
    return slot;
  }
  // Removes the value with the sequence begin(). REQUIRES: not empty.
  void PopFront() {
    (*this)[begin_] = T{};
    ++begin_;
  }
  // Continues at another sequence. REQUIRES: empty.
  void Restart(std::uint64_t begin) {
    TROOP_CHECK(empty(), "{} values left", size());
    begin_ = end_ = begin;
  }

 private:
  // Doubles the capacity; values move to the slots of their sequence.
  void Grow() {
    std::vector<T> larger(slots_.empty() ? 16 : 2 * slots_.size());
    for (std::uint64_t s = begin_; s != end_; ++s) {
      larger[s & (larger.size() - 1)] = std::move(slots_[s & (slots_.size() - 1)]);
    }
    slots_ = std::move(larger);
  }

  std::vector<T> slots_;  // size: zero or a power of two
  std::uint64_t begin_;
  std::uint64_t end_;
};

}  // namespace troop
