#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/buffer.h"
#include "core/status.h"
#include "core/storage.h"
#include "replay/journal.h"
#include "replay/segment.h"
#include "replay/snapshot.h"

namespace troop {

// What a journal's file `table` says. Text, with its checksum.
struct JournalManifest {
  std::string identity;  // of the table's options, as far as they say how to read its log
  std::uint32_t first_generation = 1;
  std::uint64_t incarnation = 0;
  // The snapshot, and the round of it, that the last start used: one that says that all ended well
  // is believed once.
  std::uint64_t used_snapshot = 0;
  std::int64_t used_round = 0;
  bool operator==(const JournalManifest&) const = default;
};
std::string EncodeManifest(const JournalManifest& manifest);
Result<JournalManifest> ParseManifest(std::string_view text);  // kDataLoss

// A file dictionary-<id>: magic u32, CRC-32C u32 of what follows it, number u32 (later dictionaries
// of a table have higher ones), 0 u32, the dictionary.
struct DictionaryFile {
  std::uint32_t number = 0;
  Buffer bytes;
};
Buffer EncodeDictionaryFile(std::uint32_t number, const Buffer& bytes);
Result<DictionaryFile> ParseDictionaryFile(const Buffer& file);  // kDataLoss

// All that a journal's folder holds. Segments are mapped; the last one is cut to its whole records.
struct JournalContents {
  std::vector<std::shared_ptr<Segment>> segments;  // by id
  Snapshot snapshot;                               // empty if there was none
  std::uint64_t snapshot_number = 0;
  std::int64_t rounds = 0;  // in it
  bool has_manifest = false;
  JournalManifest manifest;
  std::vector<Buffer> dictionaries;  // oldest first
  // Their files are not there, and nothing says that they were removed.
  std::vector<SegmentRanges::Range> lost;
  std::size_t torn_bytes = 0;         // behind the last whole record of the last segment
  std::vector<std::string> warnings;  // what is damaged, and what that costs
  Journal::Found found;
  // The last round says that nothing came after it, and that is so.
  bool clean() const;
};
// Errors: kAlreadyExists when another process has the folder; of the storage: what can't be read
// now may be whole, and must not be taken for lost. What is damaged is left out and told of in
// `warnings`.
Result<JournalContents> ReadJournal(Storage* storage, std::string_view folder);
// Says that the segments of found.removed have no files: from now on others that are missing count
// as lost.
Status NoteRemoved(Storage* storage, std::string_view folder, const Journal::Found& found);

}  // namespace troop
