// Hostile bytes against what a replay reads back from its folder, piece by piece. The first byte of
// an input chooses:
//   0 … 2: a record of the log, for tables of 2 floats without codec, of pictures with a codec, of
//          sequences with a state       3 … 5: the same, with magic, size and checksum made right
//   6: a snapshot                       7: the same, with the checksums of its blocks made right
//   8: the text of the file `table`     9: the same, with its checksum made right
//   10: a dictionary's file             11: the same, with its checksum made right
// Pieces of a record lie inside it and don't overlap; all else is written again and read the same.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "core/base/check.h"
#include "core/storage/crc32c.h"
#include "replay/persistence/journal_reader.h"
#include "replay/storage/record.h"
#include "replay/storage/snapshot.h"
#include "tests/fuzz/fuzz.h"
#include "tests/replay/table_world.h"

namespace troop {
namespace {

TrajectorySpec SpecOf(int kind) {
  if (kind == 0) return TinySpec();
  if (kind == 1) return {.observation = {DType::kU8, {8, 8}}, .action = {DType::kI32, {}}};
  return {.observation = {DType::kF32, {3}},
          .action = {DType::kF32, {2}},
          .state = TensorSpec{DType::kF32, {5}}};
}
RecordLayout LayoutOf(int kind) { return {SpecOf(kind), /*has_codec=*/kind != 0}; }

void CheckRecord(int kind, std::span<std::byte> bytes, bool mend) {
  const RecordLayout layout = LayoutOf(kind);
  if (mend && bytes.size() >= sizeof(RecordHeader)) {
    const std::size_t size = bytes.size() / 8 * 8;
    Overwrite(bytes, offsetof(RecordHeader, magic), RecordHeader::kMagic);
    Overwrite(bytes, offsetof(RecordHeader, bytes), std::uint64_t(size));
    Overwrite(bytes, offsetof(RecordHeader, crc), Crc32c(bytes.first(size).subspan(8)));
  }
  Record record;
  if (!ReadRecord(bytes, layout, /*checksums=*/mend, &record).ok()) return;
  TROOP_CHECK(record.bytes <= bytes.size() && record.bytes % 8 == 0, "a record of {} in {} bytes",
              record.bytes, bytes.size());
  const std::byte* at = bytes.data() + sizeof(RecordHeader);
  at += record.chunks.size() * sizeof(ChunkRecord);
  TROOP_CHECK(record.item == at, "items begin elsewhere");
  at += record.items * sizeof(ItemRecord);
  TROOP_CHECK(record.state == at, "states begin elsewhere");
  at += record.items * layout.state_bytes;
  std::size_t frames = 0, encoded = 0;
  for (const Record::ChunkAt& chunk : record.chunks) {
    const std::size_t n = chunk.header.frames;
    TROOP_CHECK(n > 0 && chunk.columns.action == at, "a chunk begins elsewhere");
    const std::byte* const end = chunk.columns.observation + chunk.header.encoded_bytes;
    at += n * layout.column_bytes() + chunk.header.encoded_bytes;
    TROOP_CHECK(end == at, "a chunk ends elsewhere");
    frames += n;
    encoded += chunk.header.encoded_bytes;
  }
  TROOP_CHECK(at <= bytes.data() + record.bytes, "a record beyond its end");
  TROOP_CHECK(
      layout.RecordBytes(record.chunks.size(), record.items, frames, encoded) == record.bytes,
      "a record of another size");
}

// Blocks: magic u32, CRC-32C u32 of what follows it, bytes u32 of the body, kind u32, body.
void MendBlocks(std::span<std::byte> bytes) {
  constexpr std::size_t kHead = SnapshotEncoder::kHeadBytes;
  for (std::size_t at = 0; at + kHead <= bytes.size();) {
    const auto body = ReadAt<std::uint32_t>(bytes, at + 8);
    if (body > bytes.size() - at - kHead) return;
    Overwrite(bytes, at + 4, Crc32c(bytes.subspan(at + 8, 8 + body)));
    at += kHead + body;
  }
}

std::string EncodeSnapshot(const Snapshot& snapshot) {
  SnapshotEncoder encoder;
  encoder.Head(std::int64_t(snapshot.lines.size()));
  for (std::size_t i = 0; i < snapshot.lines.size(); ++i) {
    encoder.Line(std::int64_t(i), snapshot.lines[i].read_at, snapshot.lines[i].slot);
  }
  encoder.Trailer(snapshot);
  return StringOf(encoder.Take());
}

void CheckSnapshot(std::span<const std::byte> bytes) {
  std::int64_t rounds = 0;
  std::size_t used = 0;
  const Result<Snapshot> snapshot = ReadSnapshot(bytes, &rounds, &used);
  if (!snapshot.ok()) return;
  TROOP_CHECK(rounds > 0 && used <= bytes.size(), "{} rounds in {} of {} bytes", rounds, used,
              bytes.size());
  TROOP_CHECK(snapshot->lines.size() * SnapshotEncoder::kLineBytes <= bytes.size(),
              "{} lines of {} bytes", snapshot->lines.size(), bytes.size());
  const std::string text = EncodeSnapshot(*snapshot);
  const Result<Snapshot> again = ReadSnapshot(std::as_bytes(std::span(text)));
  TROOP_CHECK(again.ok() && EncodeSnapshot(*again) == text, "another snapshot came back");
}

void CheckManifest(std::string text, bool mend) {
  if (mend) {
    const std::size_t sum = text.rfind("checksum ");
    if (sum != text.npos) text.resize(sum);
    text += fmt::format("checksum {}\n", Crc32c(std::as_bytes(std::span(text))));
  }
  const Result<JournalManifest> manifest = ParseManifest(text);
  if (!manifest.ok()) return;
  const Result<JournalManifest> again = ParseManifest(EncodeManifest(*manifest));
  TROOP_CHECK(again.ok() && *again == *manifest, "another manifest came back");
}

void CheckDictionary(std::span<std::byte> bytes, bool mend) {
  if (mend && bytes.size() >= 8) Overwrite(bytes, 4, Crc32c(bytes.subspan(8)));
  const Result<DictionaryFile> file = ParseDictionaryFile(Buffer::Copy(bytes));
  if (!file.ok()) return;
  const Buffer again = EncodeDictionaryFile(file->number, file->bytes);
  const Result<DictionaryFile> second = ParseDictionaryFile(again);
  TROOP_CHECK(again.size() == bytes.size() && second.ok() && second->number == file->number &&
                  second->bytes.text() == file->bytes.text(),
              "another dictionary came back");
}

// The first segment of a table that took two streams, as it lies on the disk.
std::string RealSegment(int kind) {
  Table::Options options = TinyOptions(50);
  options.trajectory = SpecOf(kind);
  options.checksums = true;
  if (kind != 0) options.codec = Codec::kLz4;
  if (kind == 2) options.view = {.kind = ViewSpec::Kind::kSequence, .length_max = 3, .burn_in = 2};
  Table table = MakeTable(options);
  for (const StreamId stream : {1, 2}) {
    std::vector<Item> items = TinyItems(stream, 0, 2, 1, kind == 2 ? 3 : 1);
    if (kind == 2) {
      for (Item& item : items) item.state = MutableBuffer::Zeros(20).Freeze();
    }
    Put(&table, EncodeFrames(options.trajectory, options.codec, stream, EpisodeEnd(0, 7, 1)),
        std::move(items));
  }
  const auto segment = table.journal_source().segments().front();
  return StringOf({segment->data(), segment->used()});
}

}  // namespace

void VisitSeeds(const SeedWriter& write) {
  const auto seed = [&](std::string_view name, int way, const std::string& bytes) {
    write(name, std::string(1, char(way)) + bytes);
  };
  for (const int kind : {0, 1, 2}) {
    const std::string segment = RealSegment(kind);
    const auto first =
        ReadAt<std::uint64_t>(std::as_bytes(std::span(segment)), offsetof(RecordHeader, bytes));
    seed(fmt::format("record_{}", kind), kind, segment.substr(0, first));
    seed(fmt::format("record_{}_mended", kind), kind + 3, segment.substr(0, first));
  }
  Snapshot snapshot{.owner = "limiter 1 2 3", .end = {3, 4096}, .clean = true};
  snapshot.counters.inserted = 1000;
  snapshot.lines.resize(3);
  for (Snapshot::Line& line : snapshot.lines) {
    line.read_at = {2, 512};
    line.slot.fill({.generation = 7, .priority = 0.5f, .times_sampled = 3});
  }
  const std::string round = EncodeSnapshot(snapshot);
  SnapshotEncoder second;
  second.Line(1, {3, 64}, snapshot.lines[0].slot);
  second.Trailer(snapshot);
  seed("snapshot", 6, round);
  seed("snapshot_rounds", 7, round + StringOf(second.Take()));
  const std::string manifest = EncodeManifest({.identity = "observation=f32[2] codec=none",
                                               .first_generation = 262145,
                                               .incarnation = 3,
                                               .used_snapshot = 2,
                                               .used_round = 5});
  seed("manifest", 8, manifest);
  seed("manifest_mended", 9, manifest);
  const Buffer dictionary = EncodeDictionaryFile(3, Buffer::Copy("the bytes of a dictionary"));
  seed("dictionary", 10, std::string(dictionary.text()));
  seed("dictionary_mended", 11, std::string(dictionary.text()));
}

}  // namespace troop

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troop;
  FuzzInput input(data, size);
  const int way = input.Take<std::uint8_t>();
  const std::span<std::byte> bytes = input.TakeRest();
  const bool mend = way >= 8 ? way % 2 == 1 : way == 7 || (way >= 3 && way <= 5);
  if (way <= 5) CheckRecord(way % 3, bytes, mend);
  if (way == 7) MendBlocks(bytes);
  if (way == 6 || way == 7) CheckSnapshot(bytes);
  if (way == 8 || way == 9) CheckManifest(StringOf(bytes), mend);
  if (way == 10 || way == 11) CheckDictionary(bytes, mend);
  return 0;
}
