#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "core/base/status.h"
#include "core/tensor/trajectory.h"
#include "replay/storage/segment.h"

namespace troop {

// Element `index` of a column of any alignment.
template <class T>
T Load(const std::byte* column, std::size_t index = 0) {
  T value;
  std::memcpy(&value, column + index * sizeof(T), sizeof(T));
  return value;
}

// Body of a log record: RecordHeader::chunks chunk headers, `items` item records, `items` states
// (of the spec's size, if it has one), then for each chunk its columns: action, reward f32,
// discount f32, final u8 (kFinalMark, kFirstMark), frame_bytes u32 (with a codec), encoded
// observations. All integers are little-endian; only the headers are aligned. An episode's first
// frame is marked, because it need not follow a final frame: a stream may leave frames out.
inline constexpr std::byte kFinalMark{1}, kFirstMark{2};

// Header of one chunk: consecutive frames of a stream.
struct ChunkRecord {
  std::uint64_t stream = 0;
  std::uint64_t first_frame = 0;
  std::uint32_t frames = 0;
  std::uint32_t encoded_bytes = 0;  // all observations
};
static_assert(sizeof(ChunkRecord) == 24);

// One item as stored in the log.
struct ItemRecord {
  std::uint64_t stream = 0;
  std::uint64_t first_frame = 0;  // first frame after the lead frames
  std::uint64_t policy_version = 0;
  std::uint64_t number = 0;  // in the order of insertion
  std::uint32_t length = 0;
  std::uint32_t lead = 0;  // frames before first_frame that it refers to
  float priority = 0;      // as the selectors store it (ε added)
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;
  std::uint32_t times_sampled = 0;
};
static_assert(sizeof(ItemRecord) == 56);

// Columns of a chunk, as the insert message carries them and the log stores them.
struct ChunkColumns {
  const std::byte* action = nullptr;
  const std::byte* reward = nullptr;
  const std::byte* discount = nullptr;
  const std::byte* final = nullptr;
  const std::byte* frame_bytes = nullptr;  // nullptr without a codec
  const std::byte* observation = nullptr;
};

// Sizes of the parts of a table's records, in bytes.
struct RecordLayout {
  RecordLayout() = default;
  RecordLayout(const TrajectorySpec& spec, bool has_codec);
  std::size_t observation_bytes = 0;  // one decoded frame
  std::size_t action_bytes = 0;
  std::size_t state_bytes = 0;
  bool has_codec = false;

  // Columns of one frame, without its observation.
  std::size_t column_bytes() const { return action_bytes + 9 + (has_codec ? 4 : 0); }
  std::size_t item_bytes() const { return sizeof(ItemRecord) + state_bytes; }
  // Size of a whole record, a multiple of 8.
  std::size_t RecordBytes(std::size_t chunks, std::size_t items, std::size_t frames,
                          std::size_t encoded_bytes) const;
};

// A parsed record; its pointers refer to the segment.
struct Record {
  struct ChunkAt {
    ChunkRecord header;
    ChunkColumns columns;
  };
  std::uint32_t kind = 0;
  std::size_t bytes = 0;  // the whole record
  std::vector<ChunkAt> chunks;
  std::uint32_t items = 0;
  const std::byte* item = nullptr;   // [items] ItemRecord
  const std::byte* state = nullptr;  // [items, state_bytes]
  ItemRecord ItemAt(std::uint32_t i) const;
};

// Parses the record at the beginning of `bytes`, the rest of a segment. Checks every size, and the
// checksum if `checksums` is set. Frame sizes add up to encoded_bytes. Errors: kDataLoss.
Status ReadRecord(std::span<const std::byte> bytes, const RecordLayout& layout, bool checksums,
                  Record* record);

// Writes a record into reserved memory: the constructor writes the headers, AddChunk or Place
// fills or assigns the columns, and Finish adds the padding and, with `checksum`, the checksum.
// `at`: RecordBytes(...) bytes.
struct RecordWriter {
  RecordWriter(const RecordLayout& layout, std::byte* at, RecordHeader::Kind kind,
               std::span<const ChunkRecord> chunks, std::uint32_t items, std::size_t bytes);
  std::byte* item;
  std::byte* state;
  std::byte* columns;  // place of the next chunk's columns
  // Copies a chunk's columns and advances. Returns their new places.
  ChunkColumns AddChunk(const ChunkRecord& header, const ChunkColumns& from);
  // Returns the places of a chunk's columns, for the caller to fill, and advances.
  ChunkColumns Place(const ChunkRecord& header);
  void Finish(bool checksum);

 private:
  const RecordLayout& layout_;
  std::byte* begin_;
  std::size_t bytes_;
};

}  // namespace troop
