// The folder of a replay table with one hostile file, as a replay that starts reads it. The first
// byte of an input chooses the table, the second the file, whose bytes are the rest:
//   table   0: 2 floats, no codec   1: sequences with a state, LZ4
//   file    0: the last segment   1: the first   2: the snapshot   3: `table`   4: a dictionary
//           5 … 9: the same, with the checksums made right
// Whatever is restored stays inside its options, can be drawn from, takes new experience, and is
// kept whole: a second start finds the same items.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "core/base/check.h"
#include "core/base/executor.h"
#include "core/storage/crc32c.h"
#include "core/storage/memory_storage.h"
#include "replay/persistence/journal_reader.h"
#include "replay/persistence/restore.h"
#include "tests/fuzz/fuzz.h"
#include "tests/replay/table_world.h"

namespace troop {
namespace {

using Files = std::map<std::string, std::string>;

Table::Options OptionsOf(int kind) {
  Table::Options options = TinyOptions(40);
  options.segment_bytes = 4096;
  if (kind == 1) {
    options.trajectory = {.observation = {DType::kF32, {16}},
                          .action = {DType::kI32, {}},
                          .state = TensorSpec{DType::kF32, {2}}};
    options.view = {.kind = ViewSpec::Kind::kSequence, .length_max = 3, .burn_in = 2};
    options.codec = Codec::kLz4;
  }
  return options;
}

Journal::Options Eager() {
  Journal::Options options;
  options.commit_bytes = 1;
  options.snapshot_every = Duration(0);
  return options;
}

void PutChunk(const Table::Options& options, Table* table, StreamId stream, std::uint64_t first,
              std::uint32_t frames) {
  std::vector<Item> items =
      TinyItems(stream, first, frames > 3 ? frames - 3 : 0, 1, options.view.length_max);
  for (Item& item : items) {
    if (options.trajectory.state) item.state = MutableBuffer::Zeros(8).Freeze();
  }
  const EncodedChunk chunk =
      EncodeFrames(options.trajectory, options.codec, stream, PlainFrames(first, frames));
  // A stream that was restored may have come further.
  static_cast<void>(table->Insert({{chunk}, std::move(items)}));
}

void Close(RestoredTable* restored) {
  JournalSource& table = restored->table.journal_source();
  restored->journal->Drain();
  for (int i = 0; i < 10000 && !restored->journal->drained(); ++i) {
    restored->journal->Poll(Time{}, &table);
  }
  TROOP_CHECK(restored->journal->drained() && restored->journal->error().ok(), "not kept: {}",
              restored->journal->error().ToString());
}

// The files of a table that lived for a while and ended in order.
const Files& FilesOf(int kind) {
  static std::map<int, Files> all;
  Files& files = all[kind];
  if (!files.empty()) return files;
  MemoryStorage disk;
  InlineExecutor executor;
  const Table::Options options = OptionsOf(kind);
  {
    auto table = RestoreTable(&disk, &executor, Eager(), options);
    TROOP_CHECK(table.ok(), "{}", table.status().ToString());
    for (std::uint64_t t = 0; t < 60; t += 6) {
      for (const StreamId stream : {1, 2}) PutChunk(options, &table->table, stream, t, 6);
    }
    table->journal->SetOwner("limiter 1 2 3");
    Close(&*table);
  }
  const auto add = [&](const std::string& folder) {
    const std::vector<std::string> names = *disk.List(folder);
    for (const std::string& name : names) {
      if (name.ends_with('/') || name == "lock") continue;
      const std::string path = folder + "/" + name;
      files[path] = std::string((*disk.Read(path, 1 << 20)).text());
    }
  };
  add("replay");
  add("replay/segments");
  return files;
}

std::string PathOf(const Files& files, int place) {
  if (place == 3) return "replay/table";
  if (place == 4) return "replay/dictionary-7";
  std::string path;
  for (const auto& [name, bytes] : files) {
    if (place <= 1 && !name.starts_with("replay/segments/")) continue;
    if (place == 2 && !name.starts_with("replay/snapshot-")) continue;
    path = name;
    if (place == 1) break;
  }
  TROOP_CHECK(!path.empty(), "no file for {}", place);
  return path;
}

void MendRecords(std::span<std::byte> bytes) {
  for (std::size_t at = 0; at + sizeof(RecordHeader) <= bytes.size();) {
    const auto size = ReadAt<std::uint64_t>(bytes, at + offsetof(RecordHeader, bytes));
    if (size < sizeof(RecordHeader) || size > bytes.size() - at) return;
    Overwrite(bytes, at + offsetof(RecordHeader, crc), Crc32c(bytes.subspan(at + 8, size - 8)));
    at += size;
  }
}

void MendBlocks(std::span<std::byte> bytes) {
  constexpr std::size_t kHead = SnapshotEncoder::kHeadBytes;
  for (std::size_t at = 0; at + kHead <= bytes.size();) {
    const auto body = ReadAt<std::uint32_t>(bytes, at + 8);
    if (body > bytes.size() - at - kHead) return;
    Overwrite(bytes, at + 4, Crc32c(bytes.subspan(at + 8, 8 + body)));
    at += kHead + body;
  }
}

std::string Mended(int place, std::span<std::byte> bytes) {
  if (place <= 1) MendRecords(bytes);
  if (place == 2) MendBlocks(bytes);
  if (place == 4 && bytes.size() >= 8) Overwrite(bytes, 4, Crc32c(bytes.subspan(8)));
  if (place != 3) return StringOf(bytes);
  std::string text = StringOf(bytes);
  text.resize(std::min(text.rfind("checksum "), text.size()));
  return text + fmt::format("checksum {}\n", Crc32c(std::as_bytes(std::span(text))));
}

// Frames whose record has a valid checksum are not checked on restore (the sampler decodes them),
// so with repaired checksums they may hold any bytes.
void CheckTable(Table* table, bool mended) {
  const Table::Options& options = table->options();
  TROOP_CHECK(table->size() <= options.capacity_items * 9 / 8 + 1, "{} items", table->size());
  TROOP_CHECK(std::isfinite(table->total()) && table->total() >= 0, "a total of {}",
              table->total());
  if (!table->can_draw()) return;
  EncodedBatch drawn;
  table->Draw(16, &drawn);
  FrameCoder coder(options.codec, options.trajectory.observation.bytes());
  std::vector<std::byte> frame(options.trajectory.observation.bytes());
  for (const EncodedBatch::Frame& f : drawn.frame) {
    if (options.codec == Codec::kNone) {
      TROOP_CHECK(f.bytes == frame.size(), "a frame of {} bytes", f.bytes);
    } else {
      const bool decodes = coder.Decode({f.data, f.bytes}, frame.data()).ok();
      TROOP_CHECK(decodes || mended, "a frame that does not decode");
    }
  }
  for (const double p : drawn.probability) TROOP_CHECK(p > 0 && p <= 1, "a probability of {}", p);
  for (const std::uint64_t key : drawn.key) TROOP_CHECK(table->Alive(key), "a dead item is drawn");
}

void CheckFolder(int kind, const Files& files, bool mended) {
  MemoryStorage disk;
  InlineExecutor executor;
  for (const auto& [path, bytes] : files) {
    TROOP_CHECK(disk.WriteAtomic(path, bytes).ok(), "no disk");
  }
  const Table::Options options = OptionsOf(kind);
  std::int64_t items = 0;
  double total = 0;
  {
    auto first = RestoreTable(&disk, &executor, Eager(), options);
    if (!first.ok()) return;
    CheckTable(&first->table, mended);
    for (const StreamId stream : {1, 7}) PutChunk(options, &first->table, stream, 60, 6);
    CheckTable(&first->table, mended);
    Close(&*first);
    items = first->table.size();
    total = first->table.total();
  }
  auto second = RestoreTable(&disk, &executor, Eager(), options);
  TROOP_CHECK(second.ok(), "{}", second.status().ToString());
  TROOP_CHECK(second->clean && second->table.size() == items, "{} items became {}", items,
              second->table.size());
  TROOP_CHECK(std::abs(second->table.total() - total) <= 1e-6 * total, "total {} became {}", total,
              second->table.total());
  CheckTable(&second->table, mended);
}

}  // namespace

void VisitSeeds(const SeedWriter& write) {
  for (const int kind : {0, 1}) {
    for (const int place : {0, 1, 2, 3}) {
      const Files& files = FilesOf(kind);
      constexpr const char* kNames[] = {"last", "first", "snapshot", "table"};
      for (const bool mend : {false, true}) {
        write(
            fmt::format("{}_{}{}", kNames[place], kind, mend ? "_mended" : ""),
            std::string{char(kind), char(place + (mend ? 5 : 0))} + files.at(PathOf(files, place)));
      }
    }
  }
  const Buffer dictionary = EncodeDictionaryFile(3, Buffer::Copy("no dictionary at all"));
  write("dictionary", std::string{1, 9} + std::string(dictionary.text()));
}

}  // namespace troop

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troop;
  QuietLog();
  FuzzInput input(data, size);
  const int kind = input.Take<std::uint8_t>(), place = input.Take<std::uint8_t>();
  if (kind > 1 || place > 9) return 0;
  Files files = FilesOf(kind);
  const std::span<std::byte> bytes = input.TakeRest();
  files[PathOf(files, place % 5)] = place >= 5 ? Mended(place - 5, bytes) : StringOf(bytes);
  CheckFolder(kind, files, place >= 5);
  return 0;
}
