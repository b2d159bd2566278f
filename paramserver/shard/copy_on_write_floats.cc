// Implements copy-on-write floats: each snapshot holds a SnapshotReference, which counts the
// readers of the storage.
#include "paramserver/shard/copy_on_write_floats.h"

#include <algorithm>
#include <utility>

#include "net/wire/shared_memory.h"

namespace troop {

// Owner of a snapshot's storage. The count needs no ordering on increment: only the writer lends.
struct CopyOnWriteFloats::SnapshotReference {
  SnapshotReference(std::shared_ptr<std::byte> bytes, std::shared_ptr<Count> count)
      : storage(std::move(bytes)), references(std::move(count)) {
    references->fetch_add(1, std::memory_order_relaxed);
  }
  SnapshotReference(const SnapshotReference&) = delete;
  // Release: all reads of this snapshot happen before the writer's acquire in Mutable.
  ~SnapshotReference() { references->fetch_sub(1, std::memory_order_release); }

  std::shared_ptr<std::byte> storage;
  std::shared_ptr<Count> references;
};

CopyOnWriteFloats::CopyOnWriteFloats(std::size_t count) {
  MutableBuffer zeros = MakeSharedBuffer(count * sizeof(float));
  values_ = zeros.as<float>();
  std::ranges::fill(values_, 0.0f);
  storage_ = std::move(zeros).share();
  references_ = std::make_shared<Count>(0);
}

Buffer CopyOnWriteFloats::TakeSnapshot() {
  return Buffer(std::make_shared<const SnapshotReference>(storage_, references_),
                std::as_bytes(values_));
}

// Writes in place if no snapshot is alive here and no other process maps the storage. Otherwise the
// readers keep the old storage.
std::span<float> CopyOnWriteFloats::Mutable() {
  const bool is_referenced = references_->load(std::memory_order_acquire) > 0;
  if (!is_referenced && !IsShared(values_.data())) return values_;
  MutableBuffer copy = MakeSharedBuffer(values_.size_bytes());
  const std::span<float> values = copy.as<float>();
  std::ranges::copy(values_, values.begin());
  values_ = values;
  storage_ = std::move(copy).share();
  references_ = std::make_shared<Count>(0);
  return values_;
}

}  // namespace troop
