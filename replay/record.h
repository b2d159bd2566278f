#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "core/status.h"
#include "core/trajectory.h"
#include "replay/segment.h"

namespace troop {

// Element `index` of a column, wherever its bytes begin.
template <class T>
T Load(const std::byte* column, std::size_t index = 0) {
  T value;
  std::memcpy(&value, column + index * sizeof(T), sizeof(T));
  return value;
}

// Bodies of the log's records: RecordHeader::chunks chunk headers, `items` item records, `items`
// states (of the spec's size, if it has one), then for each chunk its columns: action, reward f32,
// discount f32, final u8 (kFinalMark, kFirstMark), frame_bytes u32 (where a codec is used),
// observations as they are encoded. All little-endian, nothing aligned but the headers.
// Where episodes begin isn't always where others end: a stream may leave frames out.
inline constexpr std::byte kFinalMark{1}, kFirstMark{2};

struct ChunkRecord {
  std::uint64_t stream = 0;
  std::uint64_t first_frame = 0;
  std::uint32_t frames = 0;
  std::uint32_t encoded_bytes = 0;  // of all observations
};
static_assert(sizeof(ChunkRecord) == 24);

struct ItemRecord {
  std::uint64_t stream = 0;
  std::uint64_t first_frame = 0;  // of the item's own; its lead lies before
  std::uint64_t policy_version = 0;
  std::uint64_t number = 0;  // in the order of insertion
  std::uint32_t length = 0;
  std::uint32_t lead = 0;  // frames before first_frame that it looks at
  float priority = 0;      // as the selectors got it
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;
  std::uint32_t times_sampled = 0;
};
static_assert(sizeof(ItemRecord) == 56);

// The columns of a chunk, as the insert message brings them and as the log keeps them.
struct ChunkColumns {
  const std::byte* action = nullptr;
  const std::byte* reward = nullptr;
  const std::byte* discount = nullptr;
  const std::byte* final = nullptr;
  const std::byte* frame_bytes = nullptr;  // nullptr: without a codec
  const std::byte* observation = nullptr;
};

// Sizes of the parts of a table's records.
struct RecordLayout {
  RecordLayout() = default;
  RecordLayout(const TrajectorySpec& spec, bool has_codec);
  std::size_t observation_bytes = 0;  // of a decoded frame
  std::size_t action_bytes = 0;
  std::size_t state_bytes = 0;
  bool has_codec = false;

  // Of a frame's columns, its observation not counted.
  std::size_t column_bytes() const { return action_bytes + 9 + (has_codec ? 4 : 0); }
  std::size_t item_bytes() const { return sizeof(ItemRecord) + state_bytes; }
  // Of a record, a multiple of 8.
  std::size_t RecordBytes(std::size_t chunks, std::size_t items, std::size_t frames,
                          std::size_t encoded_bytes) const;
};

// A record that was read, its pieces pointing into the segment.
struct Record {
  struct ChunkAt {
    ChunkRecord header;
    ChunkColumns columns;
  };
  std::uint32_t kind = 0;
  std::size_t bytes = 0;  // of the whole record
  std::vector<ChunkAt> chunks;
  std::uint32_t items = 0;
  const std::byte* item = nullptr;   // [items] ItemRecord
  const std::byte* state = nullptr;  // [items, state_bytes]
  ItemRecord ItemAt(std::uint32_t i) const;
};

// The record that begins with the first of `bytes` (all that is left of the segment). Every size is
// checked; with `checksums` the checksum too. Frames' sizes add up to encoded_bytes.
// Errors: kDataLoss.
Status ReadRecord(std::span<const std::byte> bytes, const RecordLayout& layout, bool checksums,
                  Record* record);

// Writes headers into reserved memory and gives the places of the columns. Afterwards FinishRecord
// adds the padding and, with `checksum`, the checksum. `at`: RecordBytes(...) bytes.
struct RecordWriter {
  RecordWriter(const RecordLayout& layout, std::byte* at, RecordHeader::Kind kind,
               std::span<const ChunkRecord> chunks, std::uint32_t items, std::size_t bytes);
  std::byte* item;
  std::byte* state;
  std::byte* columns;  // of the next chunk
  // Copies a chunk's columns and goes on. Returns where its parts lie now.
  ChunkColumns AddChunk(const ChunkRecord& header, const ChunkColumns& from);
  // Places for the columns of a chunk, to be filled by the caller, and goes on.
  ChunkColumns Place(const ChunkRecord& header);
  void Finish(bool checksum);

 private:
  const RecordLayout& layout_;
  std::byte* begin_;
  std::size_t bytes_;
};

}  // namespace troop
