// Encoding and reading of snapshot files.
#include "replay/storage/snapshot.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/check.h"
#include "core/storage/crc32c.h"

namespace troop {
namespace {

constexpr std::uint32_t kMagic = 0x53505254;  // "TRPS"
constexpr std::uint32_t kVersion = 1;         // file format
constexpr std::size_t kHeadBytes = SnapshotEncoder::kHeadBytes;
constexpr std::size_t kLineBytes = SnapshotEncoder::kLineBytes;
constexpr std::size_t kLinesPerBlock = 64;  // checksum of a block: about a microsecond

enum Kind : std::uint32_t { kHead = 1, kLines = 2, kTrailer = 3 };

// On-disk structures; layout as described in snapshot.h.
struct BlockHead {
  std::uint32_t magic = kMagic;
  std::uint32_t crc = 0;
  std::uint32_t bytes = 0;
  std::uint32_t kind = 0;
};
static_assert(sizeof(BlockHead) == kHeadBytes);

struct FileHead {
  std::uint32_t version = kVersion;
  std::uint32_t slots = std::uint32_t(kSlotsPerLine);
  std::uint64_t lines = 0;
};
static_assert(sizeof(FileHead) == 16);

struct LineHead {
  std::uint64_t line = 0;
  LogPosition read_at;
};
static_assert(sizeof(LineHead) + sizeof(SlotLine) == kLineBytes);

struct TrailerHead {
  TableCounters counters;
  LogPosition end;
  std::uint64_t clean = 0;
};
static_assert(sizeof(TrailerHead) == 88);

template <class T>
T Get(std::span<const std::byte> bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  return value;
}

// A complete block with a valid checksum, or kind 0.
struct Block {
  std::uint32_t kind = 0;
  std::span<const std::byte> body;
};
Block NextBlock(std::span<const std::byte> bytes) {
  if (bytes.size() < kHeadBytes) return {};
  const auto head = Get<BlockHead>(bytes);
  // The size is checked before the checksum reads that many bytes.
  if (head.magic != kMagic || head.bytes > bytes.size() - kHeadBytes) return {};
  if (Crc32c(bytes.subspan(8, 8 + head.bytes)) != head.crc) return {};
  return {head.kind, bytes.subspan(kHeadBytes, head.bytes)};
}

// Applies the lines of a block; a line number out of range is ignored.
void TakeLines(std::span<const std::byte> body, Snapshot* snapshot) {
  for (; body.size() >= kLineBytes; body = body.subspan(kLineBytes)) {
    const auto head = Get<LineHead>(body);
    if (head.line >= snapshot->lines.size()) continue;
    Snapshot::Line& line = snapshot->lines[head.line];
    line.read_at = head.read_at;
    line.slot = Get<SlotLine>(body.subspan(sizeof(LineHead)));
  }
}

// Takes the counters, the log's end, and the owner's bytes, which fill the rest of the block.
void TakeTrailer(std::span<const std::byte> body, Snapshot* snapshot) {
  const auto trailer = Get<TrailerHead>(body);
  snapshot->counters = trailer.counters;
  snapshot->end = trailer.end;
  snapshot->clean = trailer.clean != 0;
  const auto owner = body.subspan(sizeof(TrailerHead));
  snapshot->owner.assign(reinterpret_cast<const char*>(owner.data()), owner.size());
}

}  // namespace

template <class T>
void SnapshotEncoder::Put(const T& value) {
  const auto* const at = reinterpret_cast<const std::byte*>(&value);
  bytes_.insert(bytes_.end(), at, at + sizeof(T));
}

// Reserves the header of a block; End fills it in.
void SnapshotEncoder::Begin(std::uint32_t kind) {
  if (kind_ != 0) End();
  kind_ = kind;
  block_ = bytes_.size();
  Put(BlockHead{.kind = kind});
}

void SnapshotEncoder::End() {
  const auto body = std::uint32_t(bytes_.size() - block_ - kHeadBytes);
  // The checksum covers the rest of the header and the body, so the header is written twice.
  BlockHead head{.bytes = body, .kind = std::exchange(kind_, 0)};
  std::memcpy(bytes_.data() + block_, &head, sizeof(head));
  head.crc = Crc32c(std::span(bytes_).subspan(block_ + 8, 8 + body));
  std::memcpy(bytes_.data() + block_, &head, sizeof(head));
}

// The number of lines is fixed for a file: it depends on the table's capacity.
void SnapshotEncoder::Head(std::int64_t lines) {
  Begin(kHead);
  Put(FileHead{.lines = std::uint64_t(lines)});
  End();
}

// Lines share a block up to kLinesPerBlock, which amortizes its header.
void SnapshotEncoder::Line(std::int64_t line, LogPosition read_at, const SlotLine& slot) {
  if (kind_ != kLines || bytes_.size() - block_ >= kHeadBytes + kLinesPerBlock * kLineBytes) {
    Begin(kLines);
  }
  Put(LineHead{std::uint64_t(line), read_at});
  Put(slot);
}

// Writes a separate block, so that a torn write invalidates only the trailer.
void SnapshotEncoder::Trailer(const Snapshot& end) {
  Begin(kTrailer);
  Put(TrailerHead{end.counters, end.end, end.clean});
  const auto* const owner = reinterpret_cast<const std::byte*>(end.owner.data());
  bytes_.insert(bytes_.end(), owner, owner + end.owner.size());
  End();
}

// Closes the open block, so that every piece written to disk consists of complete blocks.
std::vector<std::byte> SnapshotEncoder::Take(std::vector<std::byte> spare) {
  if (kind_ != 0) End();
  spare.clear();
  return std::exchange(bytes_, std::move(spare));
}

Result<Snapshot> ReadSnapshot(std::span<const std::byte> bytes, std::int64_t* rounds,
                              std::size_t* used) {
  // The head, then rounds until the first incomplete or damaged block.
  Block block = NextBlock(bytes);
  if (block.kind != kHead || block.body.size() < sizeof(FileHead)) {
    return DataLoss("snapshot of {} bytes has no valid head", bytes.size());
  }
  const auto head = Get<FileHead>(block.body);
  if (head.version != kVersion || head.slots != std::uint32_t(kSlotsPerLine)) {
    return FailedPrecondition(
        "snapshot has version {} with {} slots per line; this program reads version {} with {}",
        head.version, head.slots, kVersion, kSlotsPerLine);
  }
  // The first round has every line, so the file bounds their number.
  if (head.lines > bytes.size() / kLineBytes) {
    return DataLoss("snapshot of {} bytes is too small for {} lines", bytes.size(), head.lines);
  }
  Snapshot snapshot;
  snapshot.lines.resize(head.lines);
  std::vector<std::span<const std::byte>> round;  // blocks of lines since the last trailer
  std::int64_t complete = 0;
  std::size_t at = kHeadBytes + block.body.size(), end = 0;
  while ((block = NextBlock(bytes.subspan(at))).kind != 0) {
    at += kHeadBytes + block.body.size();
    if (block.kind == kLines) round.push_back(block.body);
    if (block.kind != kTrailer || block.body.size() < sizeof(TrailerHead)) continue;
    // A trailer makes its round valid: only now do its lines count.
    for (const auto& lines : round) TakeLines(lines, &snapshot);
    round.clear();
    TakeTrailer(block.body, &snapshot);
    ++complete;
    end = at;
  }
  if (complete == 0) return DataLoss("snapshot of {} bytes has no complete round", bytes.size());
  if (rounds != nullptr) *rounds = complete;
  if (used != nullptr) *used = end;
  return snapshot;
}

}  // namespace troop
