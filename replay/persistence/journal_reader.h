#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/buffer.h"
#include "core/base/status.h"
#include "core/storage/storage.h"
#include "replay/persistence/journal.h"
#include "replay/storage/segment.h"
#include "replay/storage/snapshot.h"

namespace troop {

// Content of a journal's file `table`: text with a checksum.
struct JournalManifest {
  std::string identity;  // the table options that determine the log's format
  std::uint32_t first_generation = 1;
  std::uint64_t incarnation = 0;
  // Snapshot and round that the last start used: a round that is marked clean is trusted only
  // once.
  std::uint64_t used_snapshot = 0;
  std::int64_t used_round = 0;
  bool operator==(const JournalManifest&) const = default;
};
std::string EncodeManifest(const JournalManifest& manifest);
Result<JournalManifest> ParseManifest(std::string_view text);  // kDataLoss

// A file dictionary-<id>: magic u32, CRC-32C u32 of the rest, number u32 (later dictionaries of a
// table have higher numbers), 0 u32, the dictionary.
struct DictionaryFile {
  std::uint32_t number = 0;
  Buffer bytes;
};
Buffer EncodeDictionaryFile(std::uint32_t number, const Buffer& bytes);
Result<DictionaryFile> ParseDictionaryFile(const Buffer& file);  // kDataLoss

// Content of a journal's folder. Segments are mapped; the last one is cut to its complete records.
struct JournalContents {
  std::vector<std::shared_ptr<Segment>> segments;  // by id
  Snapshot snapshot;                               // empty if there is none
  std::uint64_t snapshot_number = 0;
  std::int64_t rounds = 0;  // complete rounds in it
  bool has_manifest = false;
  JournalManifest manifest;
  std::vector<Buffer> dictionaries;  // oldest first
  // Segments whose files are missing without a record of their removal.
  std::vector<SegmentRanges::Range> lost;
  std::size_t torn_bytes = 0;         // after the last complete record of the last segment
  std::vector<std::string> warnings;  // damage and its consequences
  Journal::Found found;
  // True after a clean shutdown: the last round is marked clean, and the log ends where it says.
  bool clean() const;
};
// Reads a journal's folder. Damaged parts are left out and described in `warnings`. Errors:
// kAlreadyExists: another process holds the folder; those of the storage, since unreadable data
// may still be intact and must not be treated as lost.
Result<JournalContents> ReadJournal(Storage* storage, std::string_view folder);
// Records that the segments of found.removed have no files, so that any other missing segment
// counts as lost from now on.
Status NoteRemoved(Storage* storage, std::string_view folder, const Journal::Found& found);

}  // namespace troop
