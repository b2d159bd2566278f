// RestoreTable: reads a journal's folder, rebuilds the table, and writes a new manifest.
#include "replay/persistence/restore.h"

#include <algorithm>
#include <string_view>

#include "core/base/log.h"
#include "replay/persistence/journal_reader.h"

namespace troop {
namespace {

// Distance between generations before and after an unclean end: keys that were handed out but
// never became durable must not be reused. A slot would have to be reused a quarter of a million
// times after the last snapshot to reach it.
constexpr std::uint32_t kGenerationGap = 1 << 18;

// The options that determine the format of the log, as text.
std::string Identity(const Table::Options& options) {
  const auto& state = options.trajectory.state;
  return fmt::format("observation={} action={} state={} {} length={} stack={} burn_in={} codec={}",
                     options.trajectory.observation.ToString(),
                     options.trajectory.action.ToString(), state ? state->ToString() : "none",
                     options.view.kind == ViewSpec::Kind::kSequence ? "sequence" : "transition",
                     options.view.length_max, options.view.stack, options.view.burn_in,
                     options.codec == Codec::kNone
                         ? "none"
                         : "any");  // encoded frames are tagged with their codec
}

// First generation that is safe after an unclean end.
std::uint32_t GenerationsAfter(const JournalContents& contents) {
  std::uint32_t highest = contents.manifest.first_generation;
  for (const Snapshot::Line& line : contents.snapshot.lines) {
    for (const SlotState& slot : line.slot) highest = std::max(highest, slot.generation);
  }
  // Wrap around: after 2^32 generations no process holds the oldest keys.
  return highest + kGenerationGap < highest ? 1 : highest + kGenerationGap;
}

// Adapts the options to the folder: checks that they match its log, and sets checksums,
// incarnation and first generation.
Status Adjust(const JournalContents& contents, Table::Options* options) {
  options->checksums = true;
  if (!contents.has_manifest) {
    if (!contents.segments.empty()) options->first_generation += kGenerationGap;
    return Status::Ok();
  }
  const JournalManifest& manifest = contents.manifest;
  if (manifest.identity != Identity(*options)) {
    return FailedPrecondition(
        "the replay table on disk has options \"{}\", the config has \"{}\"; restore the options "
        "or remove the folder",
        manifest.identity, Identity(*options));
  }
  // The draws after the last snapshot are unknown: a new incarnation avoids repeating their random
  // numbers.
  options->incarnation = manifest.incarnation + (contents.clean() ? 0 : 1);
  options->first_generation =
      contents.clean() ? manifest.first_generation : GenerationsAfter(contents);
  return Status::Ok();
}

// Reports damage as warnings, and the outcome in one line.
void LogRestored(const RestoredTable& restored, const JournalContents& contents) {
  for (const std::string& warning : contents.warnings) LogWarning("replay: {}", warning);
  const Table::RecoverCounts& counts = restored.counts;
  if (!contents.lost.empty()) {
    LogWarning("replay: segment files {} are missing; at most {} items are lost with them",
               ToString(contents.lost), counts.items_unfound);
  }
  // Without damage, lost items are those that left after the newest snapshot: the frames that they
  // shared with older items were removed with these. That is not worth a warning.
  if (counts.segments_damaged > 0 || counts.frames_unreadable > 0 ||
      (!contents.lost.empty() && counts.items_lost > 0)) {
    LogWarning(
        "replay: lost {3} items: {0} damaged segments with {1} bytes of records, and {2} frames "
        "without their dictionary",
        counts.segments_damaged, counts.bytes_dropped, counts.frames_unreadable, counts.items_lost);
  }
  if (!restored.restored) return;
  LogInfo(
      "replay: restored {} items and {} frames from {} bytes after {} shutdown; dropped {} bytes "
      "of an incomplete record",
      restored.table.size(), restored.table.usage().frames, restored.log_bytes,
      restored.clean ? "a clean" : "an unclean", restored.torn_bytes);
}

// Number of items in lost segments that were inserted after the last snapshot, from gaps in the
// numbers of the remaining items.
std::int64_t LaterThanSnapshot(const JournalContents& contents,
                               const std::vector<Table::RecoverCounts::Inserted>& inserted) {
  std::uint64_t count = 0;
  for (const SegmentRanges::Range& range : contents.lost) {
    std::uint64_t low = contents.snapshot.counters.inserted, high = low;
    for (const auto& numbers : inserted) {
      if (numbers.segment < range.first) low = std::max(low, numbers.end);
    }
    for (const auto& numbers : inserted) {
      if (numbers.segment <= range.last) continue;
      high = std::max(low, numbers.first);
      break;
    }
    count += high > low ? high - low : 0;
  }
  return std::int64_t(count);
}

// Parses the dictionaries; damaged ones only cost their frames.
std::vector<std::shared_ptr<const FrameDictionary>> DictionariesOf(
    const JournalContents& contents) {
  std::vector<std::shared_ptr<const FrameDictionary>> all;
  for (const Buffer& bytes : contents.dictionaries) {
    if (auto dictionary = MakeFrameDictionary(bytes)) {
      all.push_back(std::move(dictionary));
    } else {
      LogWarning("replay: a dictionary is damaged; frames that need it cannot be read");
    }
  }
  return all;
}

}  // namespace

Result<RestoredTable> RestoreTable(Storage* storage, Executor* executor,
                                   const Journal::Options& journal, Table::Options options) {
  // The lock in `contents` passes to the journal, so no other process can change the folder.
  TROOP_ASSIGN_OR_RETURN(JournalContents contents, ReadJournal(storage, journal.folder));
  TROOP_RETURN_IF_ERROR(Adjust(contents, &options).WithContext(journal.folder));
  const bool clean = contents.clean();
  std::size_t log_bytes = 0;
  for (const auto& segment : contents.segments) log_bytes += segment->used();
  Table::RecoverCounts counts;
  const bool restored = !contents.segments.empty();
  auto dictionaries = DictionariesOf(contents);
  TROOP_ASSIGN_OR_RETURN(Table table, restored
                                          ? Table::Recover(options, contents.segments,
                                                           contents.snapshot, &counts, dictionaries)
                                          : Table::Make(options));
  // Without lost segments, missing items had left the table.
  counts.items_unfound = contents.lost.empty()
                             ? 0
                             : counts.items_unfound + LaterThanSnapshot(contents, counts.inserted);
  // The list of removed segments is written first; the manifest then marks the snapshot as used.
  TROOP_RETURN_IF_ERROR(NoteRemoved(storage, journal.folder, contents.found));
  const JournalManifest manifest{.identity = Identity(options),
                                 .first_generation = options.first_generation,
                                 .incarnation = options.incarnation,
                                 .used_snapshot = contents.snapshot_number,
                                 .used_round = contents.rounds};
  TROOP_RETURN_IF_ERROR(storage->WriteAtomic(journal.folder + "/table", EncodeManifest(manifest)));
  RestoredTable result{
      .journal = std::make_unique<Journal>(storage, executor, journal, std::move(contents.found)),
      .table = std::move(table),
      .owner = contents.snapshot.owner,
      .dictionaries = std::move(dictionaries),
      .counts = counts,
      .log_bytes = log_bytes,
      .torn_bytes = contents.torn_bytes,
      .restored = restored,
      .clean = clean};
  LogRestored(result, contents);
  return result;
}

}  // namespace troop
