#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "core/base/buffer.h"
#include "core/base/status.h"

namespace troop {

// Header of a record of the log. A record is a RecordHeader, a body (replay/storage/record.h), and
// zeros up to a multiple of 8 bytes. If the checksum of a record does not match, the process died
// while it wrote the record, or the record was damaged later.
struct RecordHeader {
  static constexpr std::uint32_t kMagic = 0x31505254;  // "TRP1"
  enum Kind : std::uint32_t {
    kInsert = 1,  // an insert call: chunks, and items with their keys
    kMoved = 2,   // frames and items that compaction copied out of an older segment
  };
  std::uint32_t magic = kMagic;
  std::uint32_t crc = 0;    // CRC-32C of all bytes after it; 0 if the table is not durable
  std::uint64_t bytes = 0;  // size of the whole record
  std::uint32_t kind = kInsert;
  std::uint32_t chunks = 0;  // number of chunks in the body
  std::uint32_t items = 0;   // number of items in the body
  std::uint32_t reserved = 0;
};
static_assert(sizeof(RecordHeader) == 32);

// Unit of memory and disk of the log: a block of bytes to which records are appended. Written bytes
// never change; they move only in MoveTo. If the table is durable, the segment's file holds exactly
// the bytes [0, used()), so that a restart maps the file and reads its records.
class Segment {
 public:
  // Creates an empty segment of `capacity` bytes. Errors: kResourceExhausted: no memory.
  static Result<std::shared_ptr<Segment>> Make(std::uint64_t id, std::size_t capacity);
  // Creates a sealed segment from existing bytes (a mapped file).
  static std::shared_ptr<Segment> Adopt(std::uint64_t id, Buffer bytes);

  std::uint64_t id() const { return id_; }  // 1, 2, … in order of opening; names the file
  const std::byte* data() const { return data_; }
  std::size_t used() const { return used_; }          // bytes of records
  std::size_t capacity() const { return capacity_; }  // in bytes
  bool sealed() const { return sealed_; }
  // Forbids further records and returns the pages after used() to the system.
  void Seal();
  // Reserves room for a record; nullptr if it does not fit. The caller fills the room before it is
  // read. REQUIRES: not sealed.
  std::byte* Reserve(std::size_t bytes);
  // Spills the segment: replaces its memory with equal bytes elsewhere (the mapped file). Pointers
  // from data() become invalid. REQUIRES: sealed, and bytes.size() == used().
  void MoveTo(Buffer bytes);

 private:
  Segment() = default;
  std::uint64_t id_ = 0;
  std::shared_ptr<std::byte> memory_;  // of Make; released by MoveTo
  Buffer elsewhere_;                   // of Adopt or MoveTo
  const std::byte* data_ = nullptr;
  std::size_t used_ = 0, capacity_ = 0;
  bool sealed_ = false;
};

}  // namespace troop
