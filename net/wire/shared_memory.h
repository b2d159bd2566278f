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

// Shared-memory buffers: a big message part between processes of one machine is stored in memory
// that both map (an anonymous file, memfd), and the socket carries only a ticket (BufferHandle).
// This takes at most one copy. A socket takes two and wakes both sides for each half megabyte. The
// kernel frees the memory when its last user ends, also after a crash.

// Allocates memory for a part: shared memory if the part is big (IsBigPart) and the pool has room,
// else private memory.
MutableBuffer MakeSharedBuffer(std::size_t bytes);
// Copies bytes into memory of MakeSharedBuffer.
Buffer CopyToSharedBuffer(std::span<const std::byte> bytes);
// True while another process may read this part. Check it before writing again to memory of
// MakeSharedBuffer.
bool IsShared(const void* part);

// Location of a part; also called a ticket, since it permits one read. A reader opens
// /proc/<process>/fd/<descriptor>, which requires the same user.
struct BufferHandle {
  std::uint64_t magic = 0;
  std::uint64_t id = 0;  // random: process and descriptor numbers are reused
  std::uint32_t process = 0;
  std::int32_t descriptor = 0;
  std::uint64_t offset = 0, bytes = 0;  // position within the block
};
static_assert(sizeof(BufferHandle) == 40);

// The shared-memory blocks of a process. Thread safe.
//
// A block is free again when this process uses no part of it and all readers have released their
// tickets. A reader that died never releases its ticket, so the pool drops the block after
// lost_after. A reader that is only slow is not affected, because its mapping stays valid.
class SharedBufferPool {
 public:
  static constexpr std::size_t kBytesMax = std::size_t{512} << 20;  // total size of all blocks
  static constexpr std::size_t kBlocksMax = 256;       // number of blocks; each uses a descriptor
  static constexpr Duration kLostAfter = Seconds(60);  // time until an unreleased block is dropped
  static constexpr Duration kIdleAfter = Seconds(30);  // time until an unused block is freed
  // Limits and times of a pool; see the constants.
  struct Options {
    std::size_t bytes_max = kBytesMax, blocks_max = kBlocksMax;
    Duration lost_after = kLostAfter, idle_after = kIdleAfter;
    const Clock* clock = nullptr;  // must outlive this object; nullptr: system clock
  };
  static SharedBufferPool& Get();  // instance of this process; a forked child has its own
  explicit SharedBufferPool(const Options& options);
  SharedBufferPool(const SharedBufferPool&) = delete;
  ~SharedBufferPool();  // REQUIRES: no part is in use

  // Allocates a part; nullopt if a limit is reached or memory is exhausted.
  std::optional<MutableBuffer> Make(std::size_t bytes);
  // Issues a ticket for one reader: for the part itself if it is in a block, else for a copy.
  // Returns nullopt if the copy does not fit (as in Make).
  std::optional<BufferHandle> Share(const Buffer& part);
  // Revokes a ticket that was not sent.
  void RevokeHandle(const BufferHandle& ticket);
  // True while a reader has not released its ticket for the block that contains this part.
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
  // Maps the part of a ticket; the ticket is released when the last copy of the Buffer is
  // destroyed. Errors: kUnavailable: the block can't be opened here, or no longer exists;
  // kDataLoss: the ticket points outside the block.
  Result<Buffer> Open(const BufferHandle& ticket);
  // Reads a ticket from a frame; nullopt if the frame is not a ticket.
  static std::optional<BufferHandle> ParseHandle(std::span<const std::byte> frame);

 private:
  struct Mapping;
  std::list<std::shared_ptr<Mapping>> mappings_;  // most recently used first
};

}  // namespace troop
