#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "core/status.h"
#include "core/time.h"
#include "python/src/trajectory_cutter.h"
#include "replay/sample.h"

namespace troop {

// An item's name as one number: generation << 32 | shard << (32 - b) | slot, where b bits number
// the shards. With one shard the same as on the wire. Python hands it back as it is.
class KeyCode {
 public:
  // Errors: kInvalidArgument: so many shards of such tables have no room in 32 bits.
  static Result<KeyCode> Make(std::size_t shards, std::int64_t capacity_items);
  std::uint64_t Pack(const ItemKey& key) const {
    return std::uint64_t{key.generation} << 32 | std::uint64_t{key.shard} << slot_bits_ | key.slot;
  }
  ItemKey Unpack(std::uint64_t key) const;

 private:
  explicit KeyCode(int slot_bits) : slot_bits_(slot_bits) {}
  int slot_bits_ = 32;
};

// A batch as Python sees it.
struct KeyedBatch : SampleBatch {
  std::vector<std::uint64_t> code;  // [B] of `key`
  void SetCodes(const KeyCode& keys);
};

// A batch that goes back to its pool when its last holder lets go of it: no array of Python's that
// looks into it can ever change under its reader. Thread safe.
using BatchSlot = std::shared_ptr<KeyedBatch>;

// Keeps batches for the next use, so that their memory is warm and asked for once. Thread safe.
class BatchPool {
 public:
  explicit BatchPool(std::size_t kept_max) : shared_(std::make_shared<Shared>()) {
    shared_->kept_max = kept_max;
  }
  BatchSlot Get();

 private:
  struct Shared {
    std::mutex mutex;
    std::vector<std::unique_ptr<KeyedBatch>> free;
    std::size_t kept_max = 0;
  };
  std::shared_ptr<Shared> shared_;
};

// Where experience goes: a replay in this process, or one behind a connection.
// Owner: one thread at a time. Calls block up to their deadline: kDeadlineExceeded, and may be made
// again (what was taken in is not lost).
class ExperienceSink {
 public:
  virtual ~ExperienceSink() = default;
  // Takes both when there is room. Errors: kDeadlineExceeded: nothing was taken.
  virtual Status Push(std::vector<Chunk>* chunks, std::vector<Item>* items, Time deadline) = 0;
  // Everything that was pushed is acknowledged.
  virtual Status Flush(Time deadline) = 0;
};

// Where batches come from. Owner: one thread at a time.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  // Errors: kDeadlineExceeded: none until then; kFailedPrecondition: too few items, and nobody to
  // wait for; kOutOfRange: closed.
  virtual Result<BatchSlot> Sample(Time deadline) = 0;
  virtual Status Update(std::span<const std::uint64_t> key, std::span<const float> priority) = 0;
};

// What both kinds of source refuse. Errors: kInvalidArgument.
Status CheckSampler(std::int64_t batch_size, double beta, int decode_threads);

}  // namespace troop
