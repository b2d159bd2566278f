#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>

#include "core/base/buffer.h"

namespace troop {

// Copy-on-write floats: one writer, immutable snapshots for readers. If a snapshot is still
// referenced at the next change, in this process or in another (net/wire/shared_memory.h), the
// writer moves to a copy; otherwise nothing is copied. Owner: one thread; snapshots may be released
// on any thread.
class CopyOnWriteFloats {
 public:
  explicit CopyOnWriteFloats(std::size_t count);  // initialized to zero
  std::span<const float> values() const { return values_; }
  // Returns an immutable snapshot of the current values. O(1).
  Buffer TakeSnapshot();
  // Returns the values for writing, valid until the next TakeSnapshot. O(n) if a snapshot is still
  // referenced, else O(1).
  std::span<float> Mutable();

 private:
  // Number of Buffers that reference the storage. Atomic: they end on any thread.
  using Count = std::atomic<int>;
  struct SnapshotReference;
  std::shared_ptr<std::byte> storage_;
  std::shared_ptr<Count> references_;  // references to storage_
  std::span<float> values_;
};

}  // namespace troop
