// Reading and writing of log records.
#include "replay/storage/record.h"

#include <cstring>

#include "core/storage/crc32c.h"

namespace troop {
namespace {

constexpr std::size_t kCrcFrom = 8;  // the checksum covers all bytes after magic and crc

// Places of a chunk's columns from `at` on. *end: the byte after them.
ChunkColumns ColumnsAt(const RecordLayout& layout, const ChunkRecord& chunk, const std::byte* at,
                       const std::byte** end) {
  const std::size_t n = chunk.frames;
  ChunkColumns columns;
  columns.action = at;
  columns.reward = columns.action + n * layout.action_bytes;
  columns.discount = columns.reward + n * 4;
  columns.final = columns.discount + n * 4;
  columns.observation = columns.final + n;
  if (layout.has_codec) {
    columns.frame_bytes = columns.observation;
    columns.observation += n * 4;
  }
  *end = columns.observation + chunk.encoded_bytes;
  return columns;
}

// The sum is 64 bits wide: sizes in a damaged record can be anything.
bool SizesAddUp(const RecordLayout& layout, const ChunkRecord& chunk, const ChunkColumns& columns) {
  if (!layout.has_codec) return chunk.encoded_bytes == chunk.frames * layout.observation_bytes;
  std::uint64_t sum = 0;
  for (std::uint32_t i = 0; i < chunk.frames; ++i) {
    sum += Load<std::uint32_t>(columns.frame_bytes + std::size_t{i} * 4);
  }
  return sum == chunk.encoded_bytes;
}

// All errors are kDataLoss with the same prefix.
Status Damaged(std::string_view what) { return DataLoss("replay: damaged record: {}", what); }

}  // namespace

RecordLayout::RecordLayout(const TrajectorySpec& spec, bool codec)
    : observation_bytes(spec.observation.bytes()),
      action_bytes(spec.action.bytes()),
      state_bytes(spec.state ? spec.state->bytes() : 0),
      has_codec(codec) {}

// Rounded up to 8, so that the next header is aligned.
std::size_t RecordLayout::RecordBytes(std::size_t chunks, std::size_t items, std::size_t frames,
                                      std::size_t encoded_bytes) const {
  const std::size_t bytes = sizeof(RecordHeader) + chunks * sizeof(ChunkRecord) +
                            items * item_bytes() + frames * column_bytes() + encoded_bytes;
  return (bytes + 7) / 8 * 8;
}

ItemRecord Record::ItemAt(std::uint32_t i) const {
  return Load<ItemRecord>(item + std::size_t{i} * sizeof(ItemRecord));
}

// Compares each size with the remaining bytes before anything after it is read. Counts are 32-bit
// and element sizes below 2^31, so products fit 64 bits.
Status ReadRecord(std::span<const std::byte> bytes, const RecordLayout& layout, bool checksums,
                  Record* record) {
  if (bytes.size() < sizeof(RecordHeader)) return Damaged("no header");
  const auto header = Load<RecordHeader>(bytes.data());
  if (header.magic != RecordHeader::kMagic) return Damaged("no magic number");
  if (header.bytes < sizeof(RecordHeader) || header.bytes > bytes.size() || header.bytes % 8 != 0) {
    return Damaged("invalid size");
  }
  const std::size_t size = header.bytes;
  if (checksums && Crc32c(bytes.subspan(kCrcFrom, size - kCrcFrom)) != header.crc) {
    return Damaged("checksum mismatch");
  }
  if (header.kind != RecordHeader::kInsert && header.kind != RecordHeader::kMoved) {
    return Damaged("unknown kind");
  }
  const std::uint64_t heads = std::uint64_t{header.chunks} * sizeof(ChunkRecord);
  std::uint64_t left = size - sizeof(RecordHeader);
  if (heads > left) return Damaged("chunk headers exceed the record");
  // `left` counts the bytes that are not assigned yet.
  left -= heads;
  if (header.items > left / layout.item_bytes()) return Damaged("items exceed the record");
  left -= header.items * layout.item_bytes();

  // The fixed part fits. The chunk headers lie at its beginning, the columns follow the states.
  const std::byte* const chunk = bytes.data() + sizeof(RecordHeader);
  record->kind = header.kind;
  record->bytes = size;
  record->items = header.items;
  record->item = chunk + heads;
  record->state = record->item + header.items * sizeof(ItemRecord);
  record->chunks.clear();
  const std::byte* at = record->state + header.items * layout.state_bytes;
  for (std::uint32_t c = 0; c < header.chunks; ++c) {
    Record::ChunkAt part;
    part.header = Load<ChunkRecord>(chunk + std::size_t{c} * sizeof(ChunkRecord));
    // A chunk without frames, or with numbers that overflow, is damaged too.
    const std::uint64_t need = part.header.frames * std::uint64_t{layout.column_bytes()};
    if (part.header.frames == 0 || need > left || part.header.encoded_bytes > left - need ||
        part.header.first_frame > ~std::uint64_t{0} - part.header.frames) {
      return Damaged("a chunk exceeds the record");
    }
    left -= need + part.header.encoded_bytes;
    part.columns = ColumnsAt(layout, part.header, at, &at);
    if (!SizesAddUp(layout, part.header, part.columns)) {
      return Damaged("frame sizes do not add up");
    }
    record->chunks.push_back(part);
  }
  return left < 8 ? Status::Ok() : Damaged("superfluous bytes");
}

RecordWriter::RecordWriter(const RecordLayout& layout, std::byte* at, RecordHeader::Kind kind,
                           std::span<const ChunkRecord> chunks, std::uint32_t items,
                           std::size_t bytes)
    : layout_(layout), begin_(at), bytes_(bytes) {
  // Finish fills in the checksum.
  const RecordHeader header{
      .bytes = bytes, .kind = kind, .chunks = std::uint32_t(chunks.size()), .items = items};
  std::memcpy(at, &header, sizeof(header));
  if (!chunks.empty()) std::memcpy(at + sizeof(header), chunks.data(), chunks.size_bytes());
  item = at + sizeof(header) + chunks.size_bytes();
  state = item + items * sizeof(ItemRecord);
  columns = state + items * layout.state_bytes;
}

// The columns' places are const, as in a parsed record; writers cast by offset.
ChunkColumns RecordWriter::Place(const ChunkRecord& header) {
  const std::byte* end = nullptr;
  const ChunkColumns places = ColumnsAt(layout_, header, columns, &end);
  columns += end - columns;
  return places;
}

ChunkColumns RecordWriter::AddChunk(const ChunkRecord& header, const ChunkColumns& from) {
  // The columns are adjacent, so they are copied in order.
  std::byte* at = columns;
  const ChunkColumns places = Place(header);
  const auto copy = [&at](const std::byte* source, std::size_t size) {
    if (size > 0) std::memcpy(at, source, size);
    at += size;
  };
  const std::size_t n = header.frames;
  copy(from.action, n * layout_.action_bytes);
  copy(from.reward, n * 4);
  copy(from.discount, n * 4);
  copy(from.final, n);
  if (layout_.has_codec) copy(from.frame_bytes, n * 4);
  copy(from.observation, header.encoded_bytes);
  return places;
}

// Zero padding makes the record's bytes deterministic.
void RecordWriter::Finish(bool checksum) {
  std::memset(columns, 0, std::size_t(begin_ + bytes_ - columns));
  if (!checksum) return;
  const std::uint32_t crc =
      Crc32c(std::span<const std::byte>(begin_ + kCrcFrom, bytes_ - kCrcFrom));
  std::memcpy(begin_ + offsetof(RecordHeader, crc), &crc, sizeof(crc));
}

}  // namespace troop
