#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>

#include "core/buffer.h"

namespace troop {

// Numbers that one owner changes and others read as Buffers, which never change: a change while
// one of them is about, here or in another process (net/part_memory.h), moves the owner to a copy.
// Who always gives back before the next change pays for none. Owner: one thread; Buffers may end on
// any.
class LentFloats {
 public:
  explicit LentFloats(std::size_t count);  // of zeros
  std::span<const float> values() const { return values_; }
  // These values. O(1).
  Buffer Lend();
  // To be changed. O(n) while some are lent, else O(1); until the next Lend.
  std::span<float> Own();

 private:
  // How many Buffers hold the storage.
  using Count = std::atomic<int>;
  struct Loan;
  std::shared_ptr<std::byte> storage_;
  std::shared_ptr<Count> lent_;  // of this storage
  std::span<float> values_;
};

}  // namespace troop
