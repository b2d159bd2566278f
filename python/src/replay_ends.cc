// Keys, pooled batches and option checks that in-process and remote replays share.

#include "python/src/replay_ends.h"

#include <bit>

namespace troop {

Result<KeyCode> KeyCode::Make(std::size_t shards, std::int64_t capacity_items) {
  // bit_width(0) is 0: one shard leaves all 32 bits to the slot.
  const int slot_bits = 32 - int(std::bit_width(shards - 1));
  // If its capacity is soft, a table has up to an eighth more slots.
  if (shards > 1 && capacity_items / 8 * 9 >= std::int64_t{1} << slot_bits) {
    return InvalidArgument("keys of {} shards with {} items each do not fit in 64 bits", shards,
                           capacity_items);
  }
  return KeyCode(slot_bits);
}

// Inverse of Pack.
ItemKey KeyCode::Unpack(std::uint64_t key) const {
  const std::uint64_t low = key & 0xFFFFFFFFu;
  return {.slot = std::uint32_t(low & ((std::uint64_t{1} << slot_bits_) - 1)),
          .generation = std::uint32_t(key >> 32),
          .shard = std::uint32_t(low >> slot_bits_)};
}

void KeyedBatch::SetCodes(const KeyCode& keys) {
  code.resize(key.size());
  for (std::size_t i = 0; i < key.size(); ++i) code[i] = keys.Pack(key[i]);
}

BatchSlot BatchPool::Get() {
  std::unique_ptr<KeyedBatch> batch;
  {
    const std::lock_guard lock(shared_->mutex);
    if (!shared_->free.empty()) {
      batch = std::move(shared_->free.back());
      shared_->free.pop_back();
    }
  }
  // Allocation happens outside the lock.
  if (batch == nullptr) batch = std::make_unique<KeyedBatch>();
  // The deleter returns the batch to the pool, or frees it if the pool is full.
  // It owns the pool's list, because a batch may outlive its sampler.
  return BatchSlot(batch.release(), [shared = shared_](KeyedBatch* used) {
    std::unique_ptr<KeyedBatch> owned(used);
    const std::lock_guard lock(shared->mutex);
    if (shared->free.size() < shared->kept_max) shared->free.push_back(std::move(owned));
  });
}

Status CheckSampler(std::int64_t batch_size, double beta, int decode_threads) {
  constexpr std::int64_t kBatchMost = 1 << 16;
  constexpr int kThreadsMost = 256;
  if (batch_size < 1 || batch_size > kBatchMost) {
    return InvalidArgument("batch_size is {}, must be 1 to {}", batch_size, kBatchMost);
  }
  // In this form the comparison rejects NaN.
  if (!(beta >= 0 && beta <= 10)) return InvalidArgument("beta is {}, must be 0 to 10", beta);
  if (decode_threads < 0 || decode_threads > kThreadsMost) {
    return InvalidArgument("decode_threads is {}, must be 0 to {}", decode_threads, kThreadsMost);
  }
  return Status::Ok();
}

}  // namespace troop
