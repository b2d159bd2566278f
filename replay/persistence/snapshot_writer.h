#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/base/time.h"
#include "replay/persistence/journal_job.h"
#include "replay/persistence/journal_lane.h"
#include "replay/persistence/journal_options.h"
#include "replay/storage/snapshot.h"
#include "replay/table/journal_source.h"

namespace troop {

// Writes rounds of a table's slot lines to snapshot files while the table keeps running. A round
// reads the lines that changed since they were last read, a few per call; a full round reads all
// lines and begins a new file. Owner: one thread (a Journal).
//
// Invariants:
//   - The last block of a round is written only when the log that it describes is durable.
//   - A file is listed as removable only when a newer one has a complete round.
//   - After a failed block the file is abandoned, and the next round is full.
class SnapshotWriter {
 public:
  struct Stats {
    std::int64_t rounds = 0, lines = 0, bytes = 0;  // complete rounds; lines read; bytes written
    std::int64_t failures = 0;                      // failed blocks
  };

  // `next_number`: above the numbers of all files in the folder. `outdated`: files to remove after
  // the next complete round.
  SnapshotWriter(JournalOptions options, std::uint64_t next_number,
                 std::vector<std::string> outdated);

  // Sets the owner's bytes in later trailers.
  void SetOwner(std::string bytes) { owner_ = std::move(bytes); }
  // Sets the time from which the periods between rounds count.
  void Begin(Time now) { next_round_ = now + options_.snapshot_every; }
  // Requests a round as soon as possible.
  void RequestRound() { requested_ = true; }

  bool active() const { return round_.active; }  // a round was begun and is incomplete
  // True if the round has only its last block to write, which waits for the log.
  bool needs_log() const { return round_.read; }
  // True if a round was requested, or its period has passed.
  bool due(Time now) const;
  // Begins a round if anything changed. `last`: the round is marked as clean, and no other follows.
  void BeginRound(Time now, const JournalSource& table, bool last);
  // Reads some lines of the active round.
  void ReadLines(JournalSource* table);
  // Starts a job that writes a block. False if there is none to write now.
  bool StartBlock(Time now, LogPosition durable, JournalLane* lane);
  // Takes the result of that job. False: it failed.
  [[nodiscard]] bool FinishBlock(JournalJob* job);

  // Older files, once the newest has a complete round.
  std::span<const std::string> removable() const;
  // Forgets the files that removable() returns: a job removes them.
  void ForgetRemovable();

  // True if the last round is complete.
  bool last_round_done() const { return last_round_done_; }
  // True if also all older files were removed, or if the last round failed.
  bool finished() const { return gave_up_ || (last_round_done_ && outdated_.empty()); }
  const Status& error() const { return error_; }  // of the last block
  const Stats& stats() const { return stats_; }
  // Earliest time at which there is work on `lane`.
  Time NextTime(Time now, const JournalLane& lane) const;

 private:
  // State of the round that is being read.
  struct Round {
    bool active = false, full = false, last = false;
    bool read = false;        // all lines were read and the trailer was made
    std::int64_t cursor = 0;  // full rounds: the next line
    std::int64_t taken = 0;   // other rounds: lines read so far
  };

  void BeginFile(std::int64_t lines);
  std::int64_t NextLine(JournalSource* table);
  void EndRound(const JournalSource& table);
  std::shared_ptr<JournalJob> TakeBlock();
  void NoteFailure(const Status& status);
  std::string Path(std::uint64_t number) const;

  JournalOptions options_;
  SnapshotEncoder encoder_;
  std::vector<std::byte> spare_;  // memory of the last block, reused for the next
  Round round_;
  std::shared_ptr<JournalJob> refused_;  // a job of the round that the full executor refused
  Time next_round_{};
  bool requested_ = false;
  bool last_round_done_ = false, gave_up_ = false;
  std::uint64_t next_number_;
  std::uint64_t number_ = 0;        // of the current file; 0: none yet
  std::size_t file_bytes_ = 0;      // bytes in it
  std::size_t unsynced_bytes_ = 0;  // of them: since the last sync
  std::vector<std::string> outdated_;
  std::string owner_;
  Snapshot trailer_;  // of the last round, without lines
  Status error_;
  Stats stats_;
};

}  // namespace troop
