#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/buffer.h"
#include "core/node.h"
#include "core/status.h"
#include "core/storage.h"
#include "core/time.h"
#include "replay/segment.h"
#include "replay/segment_ranges.h"
#include "replay/snapshot.h"

namespace troop {

// What a journal asks of a table (Table has a method for each).
class Journaled {
 public:
  virtual ~Journaled() = default;
  virtual std::vector<std::shared_ptr<const Segment>> segments() const = 0;  // by id, last is open
  virtual LogPosition position() const = 0;                                  // the log's end
  virtual std::uint64_t appended() const = 0;          // bytes of records so far
  virtual std::uint64_t compacted_bytes() const = 0;   // of them: moved records
  virtual std::vector<std::uint64_t> TakeFreed() = 0;  // became empty since the last call
  virtual bool MoveSegment(std::uint64_t id, Buffer bytes) = 0;
  virtual std::int64_t lines() const = 0;
  virtual std::int64_t dirty_lines() const = 0;
  virtual std::int64_t TakeDirtyLine() = 0;  // round robin; -1: none
  virtual void ReadLine(std::int64_t line, SlotLine* out) const = 0;
  virtual TableCounters counters() const = 0;
};

// Brings a table's log and its snapshots to the disk while the table goes on. A folder of the
// storage holds
//   segments/<id>.log  the bytes of the log's segments, as they are in memory
//   snapshot-<n>       replay/snapshot.h; the newest with a whole round counts
//   dictionary-<id>    of a codec
//   removed, skipped   replay/segment_ranges.h: segments whose files were removed, or never written
//   table, lock        replay/journal_read.h, which reads all of it
//
// Group commit: a job appends what is new to the files of segments and syncs them, in the order of
// the log. The next one starts when commit_bytes wait, or the oldest byte is commit_wait old, or,
// if somebody waits, at once. So the more comes the larger the commits are, and the disk decides.
// Snapshots: Poll reads a few lines of slots at a time, which are those that changed since they
// were last read; a job appends them. The file is begun anew when most of it is outdated.
//
// Owner: one thread. Nothing here blocks: the disk is touched by jobs alone, at most two at a time,
// which own what they touch. A disk that fails is told of (error()) and tried again for ever: the
// files are cut to what was synced, the last first, and what came since is still in memory. So that
// it stays there, the owner takes no inserts while behind() says that the disk is too far back.
// Invariants: what durable() names is found by a restart, or had left the table; durable() never
// goes back; a file is removed only when what was moved out of it is durable, and also what took
// its place in the table, unless the disk is full; what a restart finds of the log is its
// beginning.
class Journal {
 public:
  struct Options {
    std::string folder = "replay";
    std::size_t commit_bytes = 1 << 20;      // a commit costs one sync: larger ones waste less
    Duration commit_wait = Milliseconds(5);  // what a kill may cost where nobody waits
    std::size_t job_bytes = 8 << 20;         // of one commit: longer ones would delay the first
    Duration snapshot_every = Seconds(30);   // from round to round; 0: only when told
    std::size_t snapshot_block_bytes = 256 << 10;  // of one append: a job wakes a thread
    std::size_t snapshot_sync_bytes = 1 << 20;     // one sync of all at the end would take too long
    int lines_per_poll = 32;                       // 0.5 us each where memory is cold: 16 slots
    Duration retry_after = Seconds(2);
    std::size_t lag_bytes = 64 << 20;  // behind(): this much is not written
    bool spill = false;  // sealed segments: the file, mapped, takes the memory's place
  };
  // What was in the folder when it was opened.
  struct Found {
    LogPosition end;                    // all before it is durable, or had been removed
    std::uint64_t next_snapshot = 1;    // above all numbers that were there
    std::uint32_t next_dictionary = 1;  // likewise
    std::vector<std::string> outdated;  // to be removed after the next complete snapshot
    SegmentRanges removed;              // all numbers up to the end's that have no file
    std::unique_ptr<StorageLock> lock;
  };
  struct Stats {
    std::int64_t commits = 0, commit_bytes = 0;
    std::int64_t rounds = 0, snapshot_lines = 0, snapshot_bytes = 0;  // complete; read; written
    std::int64_t removed = 0, spilled = 0;                            // segments
    std::int64_t failures = 0;                                        // jobs that failed
    std::int64_t snapshot_failures = 0;                               // of them
  };

  // storage and executor outlive the journal's jobs.
  Journal(Storage* storage, Executor* executor, Options options, Found found);
  ~Journal();

  // Takes the results of jobs, starts new ones, reads some lines. Call after changes of the table,
  // when the host is woken, and at the latest at the time that is returned. ~10 us while a round is
  // read, else less than 1.
  Time Poll(Time now, Journaled* table);

  LogPosition durable() const { return durable_; }
  // Somebody waits for `position`: commits don't wait for company.
  void Want(LogPosition position);
  // Too much waits for the disk: ends some Polls later, when it has come nearer or was repaired.
  bool behind() const { return lag_ > options_.lag_bytes; }
  std::uint64_t lag_bytes() const { return lag_; }  // not written, as of the last Poll
  // Why the last commit failed; ok after one that went well. What waits may be told so.
  const Status& error() const { return error_; }
  const Status& snapshot_error() const { return snapshot_error_; }

  // Kept before the commit of anything that is appended from now on.
  void AddDictionary(std::uint32_t id, Buffer bytes);
  // The owner's bytes of coming trailers (its limiter's counts).
  void SetOwner(std::string bytes) { owner_ = std::move(bytes); }
  void SnapshotNow() { snapshot_now_ = true; }

  // The table changes no more: commits all, ends with a round that says so, and removes the older
  // snapshots. Gives up at the first failure. drained(): see error(), snapshot_error() for whether
  // it went well.
  void Drain() { draining_ = true; }
  bool drained() const { return drained_; }

  const Stats& stats() const { return stats_; }
  std::string SegmentPath(std::uint64_t id) const;

 private:
  struct Work;      // a job's: what it does, and what came of it
  struct OpenFile;  // goes from job to job
  struct Removal {
    std::uint64_t segment = 0;
    LogPosition moved;  // durable first: the end of what was moved before
    LogPosition
        left;  // likewise, so that the disk never holds less than a table, unless it is full
  };
  struct Lane {
    Executor::Job job = 0;  // 0: idle
    std::shared_ptr<Work> work;
    std::shared_ptr<OpenFile> file;
    Time retry_at{};
  };
  struct Round {
    bool active = false, full = false, final = false;
    bool read = false;        // all lines; the trailer is made
    std::int64_t cursor = 0;  // full: the next line
    std::int64_t taken = 0;   // lines, else
  };

  bool Start(Lane* lane, std::string_view name, std::shared_ptr<Work> work, Time now);
  bool TakeDone(Lane* lane);
  void NoteTable(Journaled* table);
  void FinishCommit(Time now);
  void FinishSide(Time now, Journaled* table);
  void FinishSnapshot(Time now, const Work& work);
  void FailSnapshot(Time now, const Status& status);
  bool CommitIsDue(Time now, const Journaled& table);
  void Commit(Time now, const Journaled& table);
  bool RoundIsDue(Time now, const Journaled& table) const;
  void BeginRound(Time now, const Journaled& table);
  void ReadLines(Journaled* table);
  std::int64_t NextLine(Journaled* table);
  void EndRound(const Journaled& table);
  void StartSide(Time now, const Journaled& table);
  bool StartSnapshot(Time now);
  bool StartRemoval(Time now);
  bool StartSpill(Time now, const Journaled& table);
  bool all_written(const Journaled& table) const { return written_ >= table.position(); }
  Time NextTime(Time now) const;
  std::string SnapshotPath(std::uint64_t number) const;

  Storage* const storage_;
  Executor* const executor_;
  const Options options_;
  const std::shared_ptr<StorageLock> lock_;  // also of jobs: the last of them gives it back
  Stats stats_;

  Lane log_, side_;
  LogPosition written_, durable_, wanted_;
  LogPosition hole_until_;       // bytes were left out: what they held is durable when this is
  LogPosition moved_;            // the end of the last moved record, or a place behind it
  std::uint64_t compacted_ = 0;  // as of the last Poll
  std::uint64_t submitted_ = 0;  // files up to this segment may be there
  std::uint64_t submitted_bytes_ = 0, written_bytes_ = 0;  // Journaled::appended() of them
  std::uint64_t lag_ = 0;                                  // bytes that are not written
  bool waiting_ = false;                                   // something is not written
  Time waiting_since_{};
  std::vector<std::pair<std::uint32_t, Buffer>> dictionaries_;  // bytes of files
  std::uint32_t next_dictionary_;
  Status error_, snapshot_error_;

  SegmentRanges removed_, skipped_;  // removed, or to be; left before they were written
  bool skipped_more_ = false;        // than the file says
  std::deque<Removal> removals_;     // positions ascend
  std::uint64_t spilled_to_ = 0;     // segments up to here were looked at

  SnapshotEncoder encoder_;
  std::vector<std::byte> spare_;  // memory of the last block, for the next
  Round round_;
  std::shared_ptr<Work> refused_;  // of the round: the executor had too much to do
  Time next_round_{};
  bool started_ = false, snapshot_now_ = false, draining_ = false, drained_ = false;
  bool last_round_done_ = false;  // drained as soon as older snapshots are removed
  std::uint64_t next_snapshot_;
  std::uint64_t snapshot_ = 0;      // the file of rounds; 0: none yet
  std::size_t snapshot_bytes_ = 0;  // in it
  std::size_t unsynced_bytes_ = 0;  // of them since the last sync
  std::vector<std::string> outdated_;
  std::string owner_;
  Snapshot last_;  // trailer of the last round, without lines
};

// Names in a journal's folder, for those who read it.
std::string JournalSegmentName(std::uint64_t id);       // segments/0000000000000001.log
std::string JournalSnapshotName(std::uint64_t number);  // snapshot-0000000000000001
std::string JournalDictionaryName(std::uint32_t id);    // dictionary-0000000001
inline constexpr std::string_view kJournalRemoved = "removed";
inline constexpr std::string_view kJournalSkipped = "skipped";
// The number in a name: prefix, digits, suffix. 0: it is none.
std::uint64_t JournalNumber(std::string_view name, std::string_view prefix,
                            std::string_view suffix);

}  // namespace troop
