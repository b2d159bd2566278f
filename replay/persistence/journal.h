#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/buffer.h"
#include "core/base/node.h"
#include "core/base/status.h"
#include "core/base/time.h"
#include "core/storage/storage.h"
#include "replay/persistence/segment_ranges.h"
#include "replay/storage/segment.h"
#include "replay/storage/snapshot.h"

namespace troop {

// Data and operations that a journal needs from a table (Table has a method for each).
class JournalSource {
 public:
  virtual ~JournalSource() = default;
  virtual std::vector<std::shared_ptr<const Segment>> segments()
      const = 0;                                       // by id; the last is open
  virtual LogPosition position() const = 0;            // end of the log
  virtual std::uint64_t appended() const = 0;          // total bytes of records
  virtual std::uint64_t compacted_bytes() const = 0;   // of them: moved by compaction
  virtual std::vector<std::uint64_t> TakeFreed() = 0;  // became empty since the last call
  virtual bool MoveSegment(std::uint64_t id, Buffer bytes) = 0;
  virtual std::int64_t lines() const = 0;
  virtual std::int64_t dirty_lines() const = 0;
  virtual std::int64_t TakeDirtyLine() = 0;  // round robin; -1: none
  virtual void ReadLine(std::int64_t line, SlotLine* out) const = 0;
  virtual TableCounters counters() const = 0;
};

// Writes a table's log and snapshots to disk while the table keeps running. A folder of the
// storage holds
//   segments/<id>.log  the bytes of the log's segments, as they are in memory
//   snapshot-<n>       replay/storage/snapshot.h; the newest with a complete round is used
//   dictionary-<id>    dictionaries of a codec
//   removed, skipped   replay/persistence/segment_ranges.h: segments whose files were removed, or
//   never written table, lock        replay/persistence/journal_reader.h, which reads the whole
//   folder
//
// Group commit: a job appends new bytes to the segment files and syncs them in log order. The next
// job starts when commit_bytes are pending, the oldest pending byte is commit_wait old, or at once
// if a caller waits (RequestDurable). Commits grow with the load, at the pace of the disk.
//
// Snapshots: each Poll reads a few slot lines that changed since they were last read, and a job
// appends them. A new file is started when most of the current one is outdated.
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
  struct Options {
    std::string folder = "replay";
    std::size_t commit_bytes = 1 << 20;      // a commit costs one sync, so larger ones are cheaper
    Duration commit_wait = Milliseconds(5);  // time that a kill may lose when no caller waits
    std::size_t job_bytes = 8 << 20;        // per commit; a longer one would delay its first caller
    Duration snapshot_every = Seconds(30);  // between rounds; 0: only on SnapshotNow
    std::size_t snapshot_block_bytes = 256
                                       << 10;   // per append; amortizes waking a thread for a job
    std::size_t snapshot_sync_bytes = 1 << 20;  // a single sync at the end would take too long
    int lines_per_poll = 32;                    // 16 slots each; 0.5 us each with cold memory
    Duration retry_after = Seconds(2);
    std::size_t lag_bytes = 64 << 20;  // unwritten bytes above which behind() is true
    bool spill = false;  // spill: sealed segments move from memory to their mapped files
  };
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
  LogPosition durable() const { return durable_; }
  // Requests that `position` become durable soon: the next commit starts without waiting for more
  // bytes.
  void RequestDurable(LogPosition position);
  // True if too many bytes wait for the disk. Becomes false some Polls after the disk has caught
  // up or was repaired.
  bool behind() const { return lag_ > options_.lag_bytes; }
  std::uint64_t lag_bytes() const { return lag_; }  // unwritten bytes as of the last Poll
  // Reason why the last commit failed; ok after a successful one. Suitable for waiting callers.
  const Status& error() const { return error_; }
  const Status& snapshot_error() const { return snapshot_error_; }

  // Stores a dictionary before anything appended later is committed.
  void AddDictionary(std::uint32_t id, Buffer bytes);
  // Sets the owner's bytes in later snapshot trailers (its rate limiter's counts).
  void SetOwner(std::string bytes) { owner_ = std::move(bytes); }
  // Starts a round at the next Poll.
  void SnapshotNow() { snapshot_now_ = true; }

  // Ends the journal, once the table no longer changes: commits everything, writes a last round
  // that is marked clean, and removes the older snapshots. Gives up at the first failure; after
  // drained(), see error() and snapshot_error() for the outcome.
  void Drain() { draining_ = true; }
  bool drained() const { return drained_; }

  const Stats& stats() const { return stats_; }
  std::string SegmentPath(std::uint64_t id) const;

 private:
  struct Work;      // one job's input and result
  struct OpenFile;  // passed from job to job
  // A segment file to remove, and the positions that must be durable before.
  struct Removal {
    std::uint64_t segment = 0;
    LogPosition moved;  // end of the records moved out of it
    // End of the log when the segment left: keeps the disk from holding less than a table. Ignored
    // when the disk is full.
    LogPosition left;
  };
  // A sequence of jobs: at most one runs at a time. `log_` commits; `side_` does everything else.
  struct Lane {
    Executor::Job job = 0;  // 0: idle
    std::shared_ptr<Work> work;
    std::shared_ptr<OpenFile> file;
    Time retry_at{};
  };
  // State of the snapshot round that is being read.
  struct Round {
    bool active = false, full = false, final = false;
    bool read = false;        // all lines were read and the trailer was made
    std::int64_t cursor = 0;  // full rounds: the next line
    std::int64_t taken = 0;   // other rounds: lines read so far
  };

  bool Start(Lane* lane, std::string_view name, std::shared_ptr<Work> work, Time now);
  bool TakeDone(Lane* lane);
  void NoteTable(JournalSource* table);
  void FinishCommit(Time now);
  void FinishSide(Time now, JournalSource* table);
  void FinishSnapshot(Time now, const Work& work);
  void FailSnapshot(Time now, const Status& status);
  bool CommitIsDue(Time now, const JournalSource& table);
  void Commit(Time now, const JournalSource& table);
  bool RoundIsDue(Time now, const JournalSource& table) const;
  void BeginRound(Time now, const JournalSource& table);
  void ReadLines(JournalSource* table);
  std::int64_t NextLine(JournalSource* table);
  void EndRound(const JournalSource& table);
  void StartSide(Time now, const JournalSource& table);
  bool StartSnapshot(Time now);
  bool StartRemoval(Time now);
  bool StartSpill(Time now, const JournalSource& table);
  bool all_written(const JournalSource& table) const { return written_ >= table.position(); }
  Time NextTime(Time now) const;
  std::string SnapshotPath(std::uint64_t number) const;

  Storage* const storage_;
  Executor* const executor_;
  const Options options_;
  const std::shared_ptr<StorageLock> lock_;  // shared with jobs: the last owner releases it
  Stats stats_;

  Lane log_, side_;
  LogPosition written_, durable_, wanted_;
  LogPosition hole_until_;       // end of moved records that the written log needs
  LogPosition moved_;            // at or after the end of the last moved record
  std::uint64_t compacted_ = 0;  // as of the last Poll
  std::uint64_t submitted_ = 0;  // files up to this segment may exist
  std::uint64_t submitted_bytes_ = 0, written_bytes_ = 0;  // JournalSource::appended() of them
  std::uint64_t lag_ = 0;                                  // unwritten bytes
  bool waiting_ = false;                                   // some bytes are unwritten
  Time waiting_since_{};
  std::vector<std::pair<std::uint32_t, Buffer>> dictionaries_;  // file contents
  std::uint32_t next_dictionary_;
  Status error_, snapshot_error_;

  SegmentRanges removed_, skipped_;  // removed or to be removed; freed before being written
  bool skipped_more_ = false;        // than the file `skipped` lists
  std::deque<Removal> removals_;     // positions ascend
  std::uint64_t spilled_to_ = 0;     // segments up to here were considered

  SnapshotEncoder encoder_;
  std::vector<std::byte> spare_;  // memory of the last block, reused for the next
  Round round_;
  std::shared_ptr<Work> refused_;  // a job of the round that the full executor refused
  Time next_round_{};
  bool started_ = false, snapshot_now_ = false, draining_ = false, drained_ = false;
  bool last_round_done_ = false;  // drained when older snapshots are removed
  std::uint64_t next_snapshot_;
  std::uint64_t snapshot_ = 0;      // number of the current file; 0: none yet
  std::size_t snapshot_bytes_ = 0;  // bytes in it
  std::size_t unsynced_bytes_ = 0;  // of them: since the last sync
  std::vector<std::string> outdated_;
  std::string owner_;
  Snapshot last_;  // trailer of the last round, without lines
};

// File names in a journal's folder.
std::string JournalSegmentName(std::uint64_t id);       // segments/0000000000000001.log
std::string JournalSnapshotName(std::uint64_t number);  // snapshot-0000000000000001
std::string JournalDictionaryName(std::uint32_t id);    // dictionary-0000000001
inline constexpr std::string_view kJournalRemoved = "removed";
inline constexpr std::string_view kJournalSkipped = "skipped";
// Number in a name of the form prefix, digits, suffix; 0 if the name has another form.
std::uint64_t JournalNumber(std::string_view name, std::string_view prefix,
                            std::string_view suffix);

}  // namespace troop
