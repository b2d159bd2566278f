#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/base/buffer.h"
#include "core/base/status.h"
#include "core/base/time.h"
#include "replay/persistence/journal_lane.h"
#include "replay/persistence/journal_options.h"
#include "replay/persistence/segment_ranges.h"
#include "replay/storage/snapshot.h"
#include "replay/table/journal_source.h"

namespace troop {

// Positions of the log on disk.
struct LogProgress {
  LogPosition written;      // end of the bytes that segment files hold and that are synced
  LogPosition durable;      // end of the bytes that a restart finds
  bool committing = false;  // a job may write to files of segments from `written` on
  bool disk_full = false;   // the last commit failed for lack of space
};

// Writes the bytes of a table's segments, and the dictionaries that they need, to files: the group
// commits of a journal. Owner: one thread (a Journal).
//
// A commit appends the bytes after `written`, and syncs the files in the order of the log. After a
// failure the same bytes are written again: they are still in memory.
//
// Invariants:
//   - durable() never decreases, and is at most `written`.
//   - After a hole (a segment that was freed before it was written) written bytes count as durable
//     only together with the records that were moved out of it.
class SegmentWriter {
 public:
  struct Stats {
    std::int64_t commits = 0, commit_bytes = 0;
    std::int64_t failures = 0;  // failed commits
  };

  // `end`: everything before it is durable.
  SegmentWriter(JournalLane lane, JournalOptions options, LogPosition end,
                std::uint32_t next_dictionary);

  // Begins to count unwritten bytes. REQUIRES: the table's log ends where the files do.
  void Begin(const JournalSource& table) { written_bytes_ = table.appended(); }
  // Takes the result of the running commit if it has ended. False: it failed.
  [[nodiscard]] bool Finish(Time now);
  // Notes what compaction moved since the last call. Call before NoteFreed.
  void NoteMoves(const JournalSource& table);
  // Notes that a segment was freed. True if a file of it may exist, which must be removed later.
  bool NoteFreed(std::uint64_t segment);
  // Starts a commit if enough bytes wait, or for long enough. `urgent`: starts one for any byte.
  void CommitIfDue(Time now, const JournalSource& table, bool urgent);
  // Counts the bytes that no commit has written yet.
  void UpdateLag(const JournalSource& table) { lag_ = table.appended() - written_bytes_; }

  // Requests that `position` become durable soon.
  void RequestDurable(LogPosition position);
  // Stores a dictionary before any byte that is appended later.
  void AddDictionary(std::uint32_t id, const Buffer& bytes);

  LogPosition durable() const { return durable_; }
  LogPosition moved() const { return moved_; }  // at or after the end of the last moved record
  LogProgress progress() const;
  // True if no byte of the log and no dictionary is unwritten.
  bool all_written(const JournalSource& table) const;
  std::uint64_t lag_bytes() const { return lag_; }  // as of the last UpdateLag
  const Status& error() const { return error_; }    // of the last commit
  const Stats& stats() const { return stats_; }
  // Earliest time of the next commit. `draining`: a commit is due at any time.
  Time NextTime(Time now, bool draining) const;

 private:
  bool CommitIsDue(Time now, const JournalSource& table, bool urgent);
  void Commit(Time now, const JournalSource& table);
  void AddPieces(const JournalSource& table, JournalJob* job) const;
  void NoteFailure(Time now, const JournalJob& job);
  std::string Path(std::uint64_t segment) const;

  JournalOptions options_;
  JournalLane lane_;
  LogPosition written_, durable_, wanted_;
  LogPosition hole_until_;           // end of moved records that the written log needs
  LogPosition moved_;                // at or after the end of the last moved record
  std::uint64_t compacted_ = 0;      // JournalSource::compacted_bytes() at the last NoteMoves
  std::uint64_t submitted_ = 0;      // files up to this segment may exist
  std::uint64_t written_bytes_ = 0;  // JournalSource::appended() of written_
  std::uint64_t lag_ = 0;            // unwritten bytes
  bool waiting_ = false;             // some bytes are unwritten
  Time waiting_since_{};
  std::vector<std::pair<std::uint32_t, Buffer>> dictionaries_;  // file contents
  std::uint32_t next_dictionary_;
  SegmentRanges skipped_;      // segments that were freed before they were written
  bool skipped_more_ = false;  // than the file `skipped` lists
  Status error_;
  Stats stats_;
};

}  // namespace troop
