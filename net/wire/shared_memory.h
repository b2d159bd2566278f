#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "core/base/buffer.h"
#include "core/base/status.h"
#include "core/base/time.h"

namespace troop {

// Shared-memory buffers: big message parts between processes of one machine are stored in memory
// that both map (anonymous files, memfd), and a ticket is sent instead. This takes at most one
// copy; a socket takes two and wakes both sides for each half megabyte. Nothing is left over
// however processes end.

// Allocates memory for a part: shared memory if it is big and there is room, else private memory.
MutableBuffer MakeSharedBuffer(std::size_t bytes);
// Copies bytes into memory of MakeSharedBuffer.
Buffer CopyToSharedBuffer(std::span<const std::byte> bytes);
// True while another process may read this memory from MakeSharedBuffer; check before writing
// again.
bool IsShared(const void* part);

// Location of a part. A reader opens /proc/<process>/fd/<descriptor>, which requires the same user.
struct BufferHandle {
  std::uint64_t magic = 0;
  std::uint64_t id =
      0;  // random id of the block, because process and descriptor numbers are reused
  std::uint32_t process = 0;
  std::int32_t descriptor = 0;
  std::uint64_t offset = 0, bytes = 0;  // position within the block
};
static_assert(sizeof(BufferHandle) == 40);

// The shared-memory blocks of a process. Thread safe.
//
// A block is free again when no part of it is in use here and its readers have released theirs. A
// reader that died never does, so the block is dropped after kLostAfter. This is safe for a slow
// reader, because its mapping stays valid.
class SharedBufferPool {
 public:
  static constexpr std::size_t kBytesMax = std::size_t{512} << 20;
  static constexpr std::size_t kBlocksMax = 256;  // each uses a descriptor
  static constexpr Duration kLostAfter = Seconds(60);
  static constexpr Duration kIdleAfter = Seconds(30);  // unused blocks are freed after this time
  struct Options {
    std::size_t bytes_max = kBytesMax, blocks_max = kBlocksMax;
    Duration lost_after = kLostAfter, idle_after = kIdleAfter;
    const Clock* clock = nullptr;  // must outlive this object; nullptr: system clock
  };
  static SharedBufferPool& Get();  // instance of this process; a forked child has its own
  explicit SharedBufferPool(const Options& options);
  SharedBufferPool(const SharedBufferPool&) = delete;
  ~SharedBufferPool();  // REQUIRES: no part is in use

  // Allocates a part. Returns nullopt without room or memory.
  std::optional<MutableBuffer> Make(std::size_t bytes);
  // Issues a ticket for one reader: for the part itself if it is in a block, else for a copy.
  // Returns nullopt like Make.
  std::optional<BufferHandle> Share(const Buffer& part);
  // Revokes a ticket that was not sent.
  void RevokeHandle(const BufferHandle& ticket);
  bool IsShared(const void* part) const;
  std::size_t bytes() const;  // total size of all blocks

 private:
  struct Block;
  using Blocks = std::list<std::unique_ptr<Block>>;
  // Returns the block that contains this address, and the offset in it; nullptr if none.
  Block* Find(const void* part, std::size_t* offset) const;
  Block* Take(std::size_t bytes);
  Block* Create(std::size_t capacity);
  void Sweep();
  void Release(Block* block);
  void Drop(Blocks::iterator block);

  Time Now() const;

  const Options options_;
  // Guards the members below; the reader counts in the blocks are atomic.
  mutable std::mutex mutex_;
  Blocks blocks_;  // most recently used first
  std::map<const std::byte*, Block*> by_address_;
  std::size_t bytes_ = 0;
};

// Maps the blocks of other processes for one socket. One owner thread; the parts may be used on any
// thread.
class SharedBufferReader {
 public:
  // Maps the part of a ticket. Errors: kUnavailable: the block can't be opened here; kDataLoss: the
  // ticket does not match the block.
  Result<Buffer> Open(const BufferHandle& ticket);
  // nullopt if the frame is not a ticket
  static std::optional<BufferHandle> ParseHandle(std::span<const std::byte> frame);

 private:
  struct Mapping;
  std::list<std::shared_ptr<Mapping>> mappings_;  // most recently used first
};

}  // namespace troop
