#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "core/buffer.h"
#include "core/status.h"

namespace troop {

// The log's unit of memory and of disk: a run of bytes that records are appended to. What is
// written never changes and never moves. Where the table is durable, the file of the segment holds
// exactly bytes [0, used), so that a restart maps files and reads records.
//
// A record is a RecordHeader, a body, and zeros up to a multiple of 8. Bodies are those of
// replay/record.h. The checksum is CRC-32C of all bytes after it; a reader stops at the first
// record that does not match: it was being written when the process died.
struct RecordHeader {
  static constexpr std::uint32_t kMagic = 0x31505254;  // "TRP1"
  enum Kind : std::uint32_t {
    kInsert = 1,  // an insert call: chunks and items with the keys they were given
    kMoved = 2,   // the same, of frames and items that were copied out of an older segment
  };
  std::uint32_t magic = kMagic;
  std::uint32_t crc = 0;    // 0 where the table is not durable
  std::uint64_t bytes = 0;  // of the whole record
  std::uint32_t kind = kInsert;
  std::uint32_t chunks = 0;
  std::uint32_t items = 0;
  std::uint32_t reserved = 0;
};
static_assert(sizeof(RecordHeader) == 32);

class Segment {
 public:
  static Result<std::shared_ptr<Segment>> Make(std::uint64_t id, std::size_t capacity);
  // Over bytes that are there already (a mapped file): sealed.
  static std::shared_ptr<Segment> Adopt(std::uint64_t id, Buffer bytes);

  std::uint64_t id() const { return id_; }  // 1, 2, … in the order of opening; names the file
  const std::byte* data() const { return data_; }
  std::size_t used() const { return used_; }
  std::size_t capacity() const { return capacity_; }
  bool sealed() const { return sealed_; }
  // The system gets the pages behind used() back.
  void Seal();
  // Room for a record; nullptr: does not fit. The caller fills it before anyone reads.
  std::byte* Reserve(std::size_t bytes);
  // Replaces the memory by equal bytes kept elsewhere (the mapped file): cold segments on disk.
  // REQUIRES: sealed, and bytes.size() == used().
  void MoveTo(Buffer bytes);

 private:
  Segment() = default;
  std::uint64_t id_ = 0;
  std::shared_ptr<std::byte> memory_;
  Buffer elsewhere_;
  const std::byte* data_ = nullptr;
  std::size_t used_ = 0, capacity_ = 0;
  bool sealed_ = false;
};

}  // namespace troop
