#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "core/base/status.h"
#include "core/base/time.h"
#include "python/src/trajectory_cutter.h"
#include "replay/codec/sample_batch.h"

namespace troop {

// An item's key as one integer: generation << 32 | shard << (32 - b) | slot, where b bits number
// the shards. With one shard it equals the wire format. Python returns it unchanged.
class KeyCode {
 public:
  // Errors: kInvalidArgument: shard and slot do not fit into 32 bits.
  static Result<KeyCode> Make(std::size_t shards, std::int64_t capacity_items);
  std::uint64_t Pack(const ItemKey& key) const {
    return std::uint64_t{key.generation} << 32 | std::uint64_t{key.shard} << slot_bits_ | key.slot;
  }
  ItemKey Unpack(std::uint64_t key) const;

 private:
  explicit KeyCode(int slot_bits) : slot_bits_(slot_bits) {}
  int slot_bits_ = 32;
};

// A batch with the keys that Python uses.
struct KeyedBatch : SampleBatch {
  std::vector<std::uint64_t> code;  // [B] of `key`
  void SetCodes(const KeyCode& keys);
};

// A batch that returns to its pool when its last holder releases it: an array in Python that views
// it never changes. Thread safe.
using BatchSlot = std::shared_ptr<KeyedBatch>;

// Reuses batches, so that their memory stays warm and is allocated once. Thread safe.
class BatchPool {
 public:
  explicit BatchPool(std::size_t kept_max) : shared_(std::make_shared<Shared>()) {
    shared_->kept_max = kept_max;
  }
  BatchSlot Get();

 private:
  struct Shared {
    std::mutex mutex;  // protects free
    std::vector<std::unique_ptr<KeyedBatch>> free;
    std::size_t kept_max = 0;
  };
  std::shared_ptr<Shared> shared_;
};

// Destination of experience: a replay in this process or at a server. Owner: one thread at a time.
// Calls block up to their deadline; after kDeadlineExceeded they may be repeated (accepted data are
// not lost).
class ExperienceSink {
 public:
  virtual ~ExperienceSink() = default;
  // Takes both if there is room. Errors: kDeadlineExceeded: nothing was taken.
  virtual Status Push(std::vector<Chunk>* chunks, std::vector<Item>* items, Time deadline) = 0;
  // Waits until everything that was pushed is acknowledged.
  virtual Status Flush(Time deadline) = 0;
};

// Source of batches. Owner: one thread at a time.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  // Returns the next batch. Errors: kDeadlineExceeded: none arrived in time; kFailedPrecondition:
  // too few items, and no other thread to wait for; kOutOfRange: closed.
  virtual Result<BatchSlot> Sample(Time deadline) = 0;
  // Sets new priorities of items; evicted items are skipped.
  virtual Status Update(std::span<const std::uint64_t> key, std::span<const float> priority) = 0;
};

// Validates options of both kinds of source. Errors: kInvalidArgument.
Status CheckSampler(std::int64_t batch_size, double beta, int decode_threads);

}  // namespace troop
