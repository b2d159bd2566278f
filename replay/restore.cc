#include "replay/restore.h"

#include <algorithm>
#include <string_view>

#include "core/log.h"
#include "replay/journal_read.h"

namespace troop {
namespace {

// Keys that were handed out and never became durable must not come again: after an end that was not
// in order every slot goes on this far above the generations that are known. A slot that was reused
// so often since the last snapshot would have to be written a quarter of a million times.
constexpr std::uint32_t kGenerationGap = 1 << 18;

std::string Identity(const Table::Options& options) {
  const auto& state = options.trajectory.state;
  return fmt::format(
      "observation={} action={} state={} {} length={} stack={} burn_in={} codec={}",
      options.trajectory.observation.ToString(), options.trajectory.action.ToString(),
      state ? state->ToString() : "none",
      options.view.kind == ViewSpec::Kind::kSequence ? "sequence" : "transition",
      options.view.length_max, options.view.stack, options.view.burn_in,
      options.codec == Codec::kNone ? "none" : "any");  // frames say which of the others they are
}

std::uint32_t GenerationsAfter(const JournalContents& contents) {
  std::uint32_t highest = contents.manifest.first_generation;
  for (const Snapshot::Line& line : contents.snapshot.lines) {
    for (const SlotState& slot : line.slot) highest = std::max(highest, slot.generation);
  }
  // After 2^32 generations the oldest keys are forgotten by all who could have held them.
  return highest + kGenerationGap < highest ? 1 : highest + kGenerationGap;
}

// What the table is made of: its options as they were, and as the end of its last life asks.
Status Adjust(const JournalContents& contents, Table::Options* options) {
  options->checksums = true;
  if (!contents.has_manifest) {
    if (!contents.segments.empty()) options->first_generation += kGenerationGap;
    return Status::Ok();
  }
  const JournalManifest& manifest = contents.manifest;
  if (manifest.identity != Identity(*options)) {
    return FailedPrecondition(
        "the replay table on disk is of \"{}\" and the one asked for of \"{}\": keep the options, "
        "or remove the folder",
        manifest.identity, Identity(*options));
  }
  // Draws after the last snapshot are not known: none of their random numbers comes again.
  options->incarnation = manifest.incarnation + (contents.clean() ? 0 : 1);
  options->first_generation =
      contents.clean() ? manifest.first_generation : GenerationsAfter(contents);
  return Status::Ok();
}

void LogRestored(const RestoredTable& restored, const JournalContents& contents) {
  for (const std::string& warning : contents.warnings) LogWarning("replay: {}", warning);
  const Table::RecoverCounts& counts = restored.counts;
  if (!contents.lost.empty()) {
    LogWarning("replay: missing segment files: {}; items lost with them: {} at most",
               ToString(contents.lost), counts.items_unfound);
  }
  // Without damage they are items that had left before the end, behind the newest snapshot: what
  // they shared with older ones was removed with these.
  if (counts.segments_damaged > 0 || counts.frames_unreadable > 0 ||
      (!contents.lost.empty() && counts.items_lost > 0)) {
    LogWarning(
        "replay: {} damaged segments cost {} bytes of records, lost dictionaries {} frames; {} "
        "items are gone with them",
        counts.segments_damaged, counts.bytes_dropped, counts.frames_unreadable, counts.items_lost);
  }
  if (!restored.restored) return;
  LogInfo("replay: restored {} items and {} frames of {} bytes, after {} end; {} bytes were torn",
          restored.table.size(), restored.table.frames(), restored.log_bytes,
          restored.clean ? "an orderly" : "a sudden", restored.torn_bytes);
}

// Items of lost segments that came after the last snapshot: their numbers are missing.
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

std::vector<std::shared_ptr<const FrameDictionary>> DictionariesOf(
    const JournalContents& contents) {
  std::vector<std::shared_ptr<const FrameDictionary>> all;
  for (const Buffer& bytes : contents.dictionaries) {
    if (auto dictionary = MakeFrameDictionary(bytes)) {
      all.push_back(std::move(dictionary));
    } else {
      LogWarning("replay: a dictionary is damaged; frames that need it can't be read");
    }
  }
  return all;
}

}  // namespace

Result<RestoredTable> RestoreTable(Storage* storage, Executor* executor,
                                   const Journal::Options& journal, Table::Options options) {
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
  counts.items_unfound = contents.lost.empty()
                             ? 0
                             : counts.items_unfound + LaterThanSnapshot(contents, counts.inserted);
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
