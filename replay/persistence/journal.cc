// Journal: the order in which its writers and its reclaimer work, and the end of a run.
#include "replay/persistence/journal.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "replay/persistence/journal_names.h"

namespace troop {

Journal::Journal(Storage* storage, Executor* executor, Options options, Found found)
    : options_(std::move(options)),
      lock_(std::move(found.lock)),
      side_(storage, executor, lock_),
      log_(JournalLane(storage, executor, lock_), options_, found.end, found.next_dictionary),
      snapshots_(options_, found.next_snapshot, std::move(found.outdated)),
      reclaimer_(options_, std::move(found.removed)) {}

Journal::~Journal() = default;

std::string Journal::SegmentPath(std::uint64_t id) const {
  return options_.folder + "/" + JournalSegmentName(id);
}

Journal::Stats Journal::stats() const {
  const SegmentWriter::Stats& log = log_.stats();
  const SnapshotWriter::Stats& snapshots = snapshots_.stats();
  const SpaceReclaimer::Stats& space = reclaimer_.stats();
  return {.commits = log.commits,
          .commit_bytes = log.commit_bytes,
          .rounds = snapshots.rounds,
          .snapshot_lines = snapshots.lines,
          .snapshot_bytes = snapshots.bytes,
          .removed = space.removed,
          .spilled = space.spilled,
          .failures = log.failures + snapshots.failures + space.failures,
          .snapshot_failures = snapshots.failures};
}

// Order: take results, note freed segments, then start commits before snapshots and the rest.
Time Journal::Poll(Time now, JournalSource* table) {
  if (!std::exchange(started_, true)) {
    snapshots_.Begin(now);
    log_.Begin(*table);
  }
  TakeResults(now, table);
  NoteFreed(table);
  // The last block of a round waits for the log.
  log_.CommitIfDue(now, *table, draining_ || snapshots_.needs_log());
  if (RoundIsDue(now, *table)) snapshots_.BeginRound(now, *table, draining_);
  if (snapshots_.active() && !snapshots_.needs_log()) snapshots_.ReadLines(table);
  if (side_.idle()) StartSide(now, *table);
  // A synchronous executor has finished its jobs on submission and sends no wakeup.
  TakeResults(now, table);
  log_.UpdateLag(*table);
  if (drained_) return kForever;
  return std::min(log_.NextTime(now, draining_), snapshots_.NextTime(now, side_));
}

// A draining journal gives up at the first failed commit.
void Journal::TakeResults(Time now, JournalSource* table) {
  if (!log_.Finish(now)) drained_ |= draining_;
  if (const std::shared_ptr<JournalJob> job = side_.TakeDone()) FinishSide(now, job.get(), table);
}

void Journal::NoteFreed(JournalSource* table) {
  log_.NoteMoves(*table);
  for (const std::uint64_t id : table->TakeFreed()) {
    if (log_.NoteFreed(id)) reclaimer_.RemoveLater({id, log_.moved(), table->position()});
  }
}

// The last round of a drain starts when the whole log is written.
bool Journal::RoundIsDue(Time now, const JournalSource& table) const {
  if (snapshots_.active() || snapshots_.last_round_done() || drained_) return false;
  if (now < side_.retry_at()) return false;
  return draining_ ? log_.all_written(table) : snapshots_.due(now);
}

// Snapshots have priority over removals, and removals over spilling.
void Journal::StartSide(Time now, const JournalSource& table) {
  if (now < side_.retry_at()) return;
  if (snapshots_.StartBlock(now, log_.durable(), &side_)) return;
  const LogProgress log = log_.progress();
  if (reclaimer_.StartRemoval(now, log, snapshots_.removable(), &side_)) {
    snapshots_.ForgetRemovable();
  } else {
    reclaimer_.StartSpill(now, log.written, table, &side_);
  }
}

void Journal::FinishSide(Time now, JournalJob* job, JournalSource* table) {
  if (job->pieces.empty()) {
    reclaimer_.Finish(job, table);
  } else if (!snapshots_.FinishBlock(job)) {
    side_.RetryAt(now + options_.retry_after);
  }
  drained_ |= snapshots_.finished();
}

}  // namespace troop
