#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/buffer.h"
#include "core/base/node.h"
#include "core/base/status.h"
#include "core/base/time.h"
#include "core/storage/storage.h"
#include "replay/persistence/journal_job.h"
#include "replay/persistence/journal_lane.h"
#include "replay/persistence/journal_options.h"
#include "replay/persistence/segment_ranges.h"
#include "replay/persistence/segment_writer.h"
#include "replay/persistence/snapshot_writer.h"
#include "replay/persistence/space_reclaimer.h"
#include "replay/storage/snapshot.h"
#include "replay/table/journal_source.h"

namespace troop {

// Writes a table's log and snapshots to disk while the table keeps running. A folder of the
// storage holds
//   segments/<id>.log  the bytes of the log's segments, as they are in memory
//   snapshot-<n>       replay/storage/snapshot.h; the newest with a complete round is used
//   dictionary-<id>    dictionaries of a codec
//   removed, skipped   replay/persistence/segment_ranges.h: segments whose files were removed, or
//                      were never written
//   table, lock        replay/persistence/journal_reader.h, which reads the whole folder
//
// Group commit: a job appends new bytes to the segment files and syncs them in log order. The next
// job starts when commit_bytes are pending, the oldest pending byte is commit_wait old, or at once
// if a caller waits (RequestDurable). Commits grow with the load, at the pace of the disk.
//
// Snapshots: each Poll reads a few slot lines that changed since they were last read, and a job
// appends them. A new file is started when most of the current one is outdated.
//
// The journal decides when its parts work: SegmentWriter commits, on its own lane;
// SnapshotWriter and SpaceReclaimer take turns on the second lane.
//
// Owner: one thread. No call blocks: only jobs touch the disk, at most two at a time, and each
// owns what it touches. A failing disk is reported (error()) and retried forever: files are
// truncated to their synced size, the last one first, and later bytes are still in memory. To keep
// them there, the owner must accept no inserts while behind() reports that the disk lags too far.
//
// Invariants:
//   - Everything up to durable() is found by a restart, or had left the table.
//   - durable() never decreases.
//   - A file is removed only when the records moved out of it are durable, and also those that took
//     their place in the table, unless the disk is full.
//   - The log that a restart finds is a prefix of the log.
class Journal {
 public:
  using Options = JournalOptions;
  // Content of the folder when it was opened.
  struct Found {
    LogPosition end;                    // everything before it is durable, or had been removed
    std::uint64_t next_snapshot = 1;    // above all numbers in the folder
    std::uint32_t next_dictionary = 1;  // likewise
    std::vector<std::string> outdated;  // files to remove after the next complete snapshot
    SegmentRanges removed;              // all segment numbers up to `end` that have no file
    std::unique_ptr<StorageLock> lock;
  };
  struct Stats {
    std::int64_t commits = 0, commit_bytes = 0;
    std::int64_t rounds = 0, snapshot_lines = 0,
                 snapshot_bytes = 0;        // complete rounds; lines read; bytes written
    std::int64_t removed = 0, spilled = 0;  // segments
    std::int64_t failures = 0;              // failed jobs
    std::int64_t snapshot_failures = 0;     // of them: snapshot jobs
  };

  // `storage` and `executor` outlive the journal's jobs.
  Journal(Storage* storage, Executor* executor, Options options, Found found);
  ~Journal();

  // Takes results of jobs, starts new ones, and reads some lines. Call after changes of the table,
  // when the host is woken, and at the latest at the returned time. Costs ~10 us while a round is
  // read, else less than 1 us.
  Time Poll(Time now, JournalSource* table);

  // End of the durable log.
  LogPosition durable() const { return log_.durable(); }
  // Requests that `position` become durable soon: the next commit starts without waiting for more
  // bytes.
  void RequestDurable(LogPosition position) { log_.RequestDurable(position); }
  // True if too many bytes wait for the disk. Becomes false some Polls after the disk has caught
  // up or was repaired.
  bool behind() const { return log_.lag_bytes() > options_.lag_bytes; }
  std::uint64_t lag_bytes() const { return log_.lag_bytes(); }  // as of the last Poll
  // Reason why the last commit failed; ok after a successful one. Suitable for waiting callers.
  const Status& error() const { return log_.error(); }
  const Status& snapshot_error() const { return snapshots_.error(); }

  // Stores a dictionary before anything appended later is committed.
  void AddDictionary(std::uint32_t id, const Buffer& bytes) { log_.AddDictionary(id, bytes); }
  // Sets the owner's bytes in later snapshot trailers (its rate limiter's counts).
  void SetOwner(std::string bytes) { snapshots_.SetOwner(std::move(bytes)); }
  // Starts a round at the next Poll.
  void SnapshotNow() { snapshots_.RequestRound(); }

  // Ends the journal, once the table no longer changes: commits everything, writes a last round
  // that is marked clean, and removes the older snapshots. Gives up at the first failure; after
  // drained(), see error() and snapshot_error() for the outcome.
  void Drain() { draining_ = true; }
  bool drained() const { return drained_; }

  Stats stats() const;
  std::string SegmentPath(std::uint64_t id) const;

 private:
  void TakeResults(Time now, JournalSource* table);
  void NoteFreed(JournalSource* table);
  bool RoundIsDue(Time now, const JournalSource& table) const;
  void StartSide(Time now, const JournalSource& table);
  void FinishSide(Time now, JournalJob* job, JournalSource* table);

  const Options options_;
  const std::shared_ptr<StorageLock> lock_;  // shared with jobs: the last owner releases it
  JournalLane side_;                         // for snapshots, removals and spilling
  SegmentWriter log_;
  SnapshotWriter snapshots_;
  SpaceReclaimer reclaimer_;
  bool started_ = false, draining_ = false, drained_ = false;
};

}  // namespace troop
