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

#include "core/buffer.h"
#include "core/status.h"
#include "core/time.h"

namespace troop {

// Big parts of messages between processes of one machine lie in memory that both map (anonymous
// files, memfd), and a ticket travels in their place: one copy at most, where a socket makes two
// and wakes both sides for each half a megabyte. Nothing is left behind however processes end.

// Memory for a part: where processes of this machine can read it, if it is big and there is room.
MutableBuffer MakePart(std::size_t bytes);
Buffer CopyPart(std::span<const std::byte> bytes);
// Whether others read in what MakePart gave, or are about to: who goes on writing there asks.
bool IsReadByOthers(const void* part);

// Where a part lies. A reader opens /proc/<process>/fd/<descriptor>: of the same user.
struct PartTicket {
  std::uint64_t magic = 0;
  std::uint64_t id = 0;  // of the block, drawn at random: descriptors and processes come again
  std::uint32_t process = 0;
  std::int32_t descriptor = 0;
  std::uint64_t offset = 0, bytes = 0;  // in the block
};
static_assert(sizeof(PartTicket) == 40);

// The blocks of a process. Thread safe.
//
// A block is free again when nobody here holds a part of it and its readers have let go of theirs.
// A reader that died never does: after kLostAfter the block is given up, which takes nothing from
// one who still reads, since its mapping stays.
class PartMemory {
 public:
  static constexpr std::size_t kBytesMax = std::size_t{512} << 20;
  static constexpr std::size_t kBlocksMax = 256;  // each has a descriptor
  static constexpr Duration kLostAfter = Seconds(60);
  static constexpr Duration kIdleAfter = Seconds(30);  // unused blocks are given back
  struct Options {
    std::size_t bytes_max = kBytesMax, blocks_max = kBlocksMax;
    Duration lost_after = kLostAfter, idle_after = kIdleAfter;
    const Clock* clock = nullptr;  // outlives it; nullptr: the system's
  };
  static PartMemory& Get();  // of this process; a forked child has its own
  explicit PartMemory(const Options& options);
  PartMemory(const PartMemory&) = delete;
  ~PartMemory();  // REQUIRES: no part is left

  // nullopt: no room now, or the system has none.
  std::optional<MutableBuffer> Make(std::size_t bytes);
  // For one reader: of what lies here itself, of anything else a copy. nullopt: as Make.
  std::optional<PartTicket> Share(const Buffer& part);
  // The ticket was not sent.
  void TakeBack(const PartTicket& ticket);
  bool IsReadByOthers(const void* part) const;
  std::size_t bytes() const;  // of all blocks

 private:
  struct Block;
  using Blocks = std::list<std::unique_ptr<Block>>;
  // The one with this address within its capacity, and how far into it; nullptr: none.
  Block* Find(const void* part, std::size_t* offset) const;
  Block* Take(std::size_t bytes);
  Block* Create(std::size_t capacity);
  void Sweep();
  void Release(Block* block);
  void Drop(Blocks::iterator block);

  Time Now() const;

  const Options options_;
  mutable std::mutex mutex_;
  Blocks blocks_;  // most recently used first
  std::map<const std::byte*, Block*> by_address_;
  std::size_t bytes_ = 0;
};

// A socket's view of other processes' blocks. One owner thread; the parts may go anywhere.
class PartReader {
 public:
  // Errors: kUnavailable: no such block can be opened here; kDataLoss: it is not as the ticket
  // says.
  Result<Buffer> Open(const PartTicket& ticket);
  static std::optional<PartTicket> TicketOf(std::span<const std::byte> frame);  // if it is one

 private:
  struct Mapping;
  std::list<std::shared_ptr<Mapping>> mappings_;  // most recently used first
};

}  // namespace troop
