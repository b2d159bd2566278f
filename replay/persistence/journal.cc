// Journal: group commits of the log, snapshot rounds, removal of old files, and spilling.
#include "replay/persistence/journal.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <span>
#include <utility>

#include "core/base/log.h"
#include "replay/persistence/journal_job.h"
#include "replay/persistence/journal_reader.h"

namespace troop {
namespace {

constexpr Duration kQueueFull = Milliseconds(10);  // retry interval when the executor refuses a job

// Size of a snapshot file, in full images, above which a new one is started.
constexpr std::size_t kImagesPerFile = 2;

constexpr std::size_t kRemovalsPerJob = 256;  // keeps a job about as short as a sync

}  // namespace

std::string JournalSegmentName(std::uint64_t id) { return fmt::format("segments/{:016}.log", id); }
std::string JournalSnapshotName(std::uint64_t number) {
  return fmt::format("snapshot-{:016}", number);
}
std::string JournalDictionaryName(std::uint32_t id) { return fmt::format("dictionary-{:010}", id); }

// Snapshot, segment and dictionary names have their numbers padded with zeros.
std::uint64_t JournalNumber(std::string_view name, std::string_view prefix,
                            std::string_view suffix) {
  if (name.size() <= prefix.size() + suffix.size() || !name.starts_with(prefix) ||
      !name.ends_with(suffix)) {
    return 0;
  }
  name.remove_prefix(prefix.size());
  name.remove_suffix(suffix.size());
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  return error == std::errc() && end == name.data() + name.size() ? number : 0;
}

Journal::Journal(Storage* storage, Executor* executor, Options options, Found found)
    : storage_(storage),
      executor_(executor),
      options_(std::move(options)),
      lock_(std::move(found.lock)),
      written_(found.end),
      durable_(found.end),
      submitted_(found.end.segment),
      next_dictionary_(found.next_dictionary),
      removed_(std::move(found.removed)),
      next_snapshot_(found.next_snapshot),
      outdated_(std::move(found.outdated)) {
  log_.file = std::make_shared<OpenFile>();
  side_.file = std::make_shared<OpenFile>();
}

Journal::~Journal() = default;

std::string Journal::SegmentPath(std::uint64_t id) const {
  return options_.folder + "/" + JournalSegmentName(id);
}

std::string Journal::SnapshotPath(std::uint64_t number) const {
  return options_.folder + "/" + JournalSnapshotName(number);
}

void Journal::RequestDurable(LogPosition position) { wanted_ = std::max(wanted_, position); }

void Journal::AddDictionary(std::uint32_t id, Buffer bytes) {
  dictionaries_.emplace_back(id, EncodeDictionaryFile(next_dictionary_++, bytes));
}

// Order: take results, note freed segments, then start commits before snapshots and the rest.
Time Journal::Poll(Time now, JournalSource* table) {
  if (!std::exchange(started_, true)) {
    next_round_ = now + options_.snapshot_every;
    written_bytes_ = table->appended();
  }
  if (TakeDone(&log_)) FinishCommit(now);
  if (TakeDone(&side_)) FinishSide(now, table);
  NoteTable(table);
  if (CommitIsDue(now, *table)) Commit(now, *table);
  if (!round_.active && RoundIsDue(now, *table)) BeginRound(now, *table);
  if (round_.active && !round_.read) ReadLines(table);
  if (side_.job == 0) StartSide(now, *table);
  // A synchronous executor has finished its jobs on submission and sends no wakeup.
  if (TakeDone(&log_)) FinishCommit(now);
  if (TakeDone(&side_)) FinishSide(now, table);
  lag_ = table->appended() - written_bytes_;
  return NextTime(now);
}

// A segment that was freed before it was written leaves a hole in the log on disk. Its live
// content was moved to a later position, which must be durable before anything after the hole
// counts.
void Journal::NoteTable(JournalSource* table) {
  if (std::exchange(compacted_, table->compacted_bytes()) != compacted_) {
    moved_ = table->position();
  }
  for (const std::uint64_t id : table->TakeFreed()) {
    if (id >= written_.segment) hole_until_ = moved_;
    // Its file may exist: remove it later. Otherwise it is never written, which `skipped` records.
    if (id <= submitted_) {
      removals_.push_back({id, moved_, table->position()});
    } else {
      skipped_.Add(id);
      skipped_more_ = true;
    }
  }
}

// Earliest time at which one of the lanes has work.
Time Journal::NextTime(Time now) const {
  if (drained_) return kForever;
  Time next = kForever;
  if (log_.job == 0) {
    if (!dictionaries_.empty() || draining_) next = std::max(now, log_.retry_at);
    if (waiting_) {
      next = std::min(next, std::max(waiting_since_ + options_.commit_wait, log_.retry_at));
    }
  }
  if (side_.job == 0) {
    if (round_.active || snapshot_now_ || last_round_done_) {
      next = std::min(next, std::max(now, side_.retry_at));
    }
    if (!round_.active && options_.snapshot_every > Duration(0)) {
      next = std::min(next, std::max(next_round_, side_.retry_at));
    }
  } else if (round_.active && !round_.read && encoder_.size() < options_.snapshot_block_bytes) {
    next = now;
  }
  return next;
}

// ---- Jobs ----

// Submits a job for an idle lane; false if the executor is full.
bool Journal::Start(Lane* lane, std::string_view name, std::shared_ptr<Work> work, Time now) {
  work->storage = storage_;
  work->lock = lock_;
  work->file = lane->file;
  const Result<Executor::Job> job = executor_->Submit(name, [work] { work->Run(); });
  if (!job.ok()) {
    lane->retry_at = now + kQueueFull;
    return false;
  }
  lane->job = *job;
  lane->work = std::move(work);
  return true;
}

bool Journal::TakeDone(Lane* lane) {
  if (lane->job == 0 || !executor_->TakeDone(lane->job)) return false;
  lane->job = 0;
  return true;
}

// ---- The log ----

bool Journal::CommitIsDue(Time now, const JournalSource& table) {
  // A commit covers [written_, end); bytes of a running job do not count as waiting.
  const LogPosition end = table.position();
  const LogPosition submitted = log_.job != 0 ? log_.work->end : written_;
  if (end <= submitted && dictionaries_.empty()) return false;
  if (!std::exchange(waiting_, true)) waiting_since_ = now;
  if (log_.job != 0 || now < log_.retry_at) return false;
  return draining_ || wanted_ > durable_ || !dictionaries_.empty() || round_.read ||
         end.segment != written_.segment || end.offset - written_.offset >= options_.commit_bytes ||
         now - waiting_since_ >= options_.commit_wait;
}

// Submits the next part of the log: dictionaries first, since its frames need them.
void Journal::Commit(Time now, const JournalSource& table) {
  auto work = std::make_shared<Work>();
  for (const auto& [id, bytes] : dictionaries_) {
    work->writes.emplace_back(options_.folder + "/" + JournalDictionaryName(id), bytes);
  }
  if (skipped_more_) {
    work->note = {options_.folder + "/" + std::string(kJournalSkipped), skipped_.Encode()};
  }
  // A failed job may have left files after written_. Truncate them, last first, so that the log on
  // disk never has a gap.
  for (std::uint64_t id = submitted_; id > written_.segment; --id) {
    work->cuts.push_back(SegmentPath(id));
  }
  // Collects the unwritten bytes of all segments, up to job_bytes.
  LogPosition at = written_;
  std::size_t budget = options_.job_bytes;
  for (const std::shared_ptr<const Segment>& segment : table.segments()) {
    if (segment->id() < written_.segment) continue;
    const std::size_t from = segment->id() == at.segment ? at.offset : 0;
    const std::size_t bytes = std::min(segment->used() - from, budget);
    at = {segment->id(), from + bytes};
    budget -= bytes;
    if (bytes > 0) {
      work->pieces.push_back(
          {SegmentPath(at.segment), from, {segment->data() + from, bytes}, segment});
    }
    if (budget == 0) break;
  }
  // If the budget cut the commit short, the rest is the next one's.
  work->end = budget == 0 ? at : table.position();
  work->appended = budget == 0 ? written_bytes_ + (options_.job_bytes - budget) : table.appended();
  const std::uint64_t last = work->pieces.empty() ? 0 : at.segment;
  if (!Start(&log_, "replay commit", std::move(work), now)) return;
  submitted_ = std::max(submitted_, last);
  skipped_more_ = false;
  waiting_ = false;
}

// On success everything up to the job's end is written; on failure the same bytes are retried.
void Journal::FinishCommit(Time now) {
  const std::shared_ptr<Work> work = std::move(log_.work);
  if (!work->status.ok()) {
    ++stats_.failures;
    if (error_.ok()) LogWarning("replay: {}", work->status.ToString());
    error_ =
        MakeStatus(work->status.code(),
                   "replay: cannot make experience durable: {}. Free space or repair the disk; "
                   "retrying every {} s",
                   work->status.message(), ToSeconds(options_.retry_after));
    log_.retry_at = now + options_.retry_after;
    // Write the note again with the next commit. A draining journal gives up.
    skipped_more_ |= !work->note.path.empty();
    drained_ |= draining_;
    return;
  }
  if (!error_.ok()) LogInfo("replay: experience is durable again");
  error_ = Status::Ok();
  dictionaries_.erase(dictionaries_.begin(),
                      dictionaries_.begin() + std::ptrdiff_t(work->writes.size()));
  written_ = std::max(written_, work->end);
  written_bytes_ = work->appended;
  // After a hole, written bytes count only once the moved records are written too.
  if (written_ >= hole_until_) durable_ = written_;
  ++stats_.commits;
  for (const Work::Piece& piece : work->pieces) {
    stats_.commit_bytes += std::int64_t(piece.bytes.size());
  }
}

// ---- Snapshots ----

// The final round of a drain starts when the whole log is written.
bool Journal::RoundIsDue(Time now, const JournalSource& table) const {
  if (now < side_.retry_at || drained_ || last_round_done_) return false;
  if (draining_) return all_written(table) && dictionaries_.empty() && log_.job == 0;
  return snapshot_now_ || (options_.snapshot_every > Duration(0) && now >= next_round_);
}

// Begins a round if anything changed; a full one if the snapshot file is new or has grown too
// large.
void Journal::BeginRound(Time now, const JournalSource& table) {
  const bool changed = table.dirty_lines() > 0 || !(table.counters() == last_.counters) ||
                       owner_ != last_.owner || snapshot_ == 0;
  next_round_ = now + options_.snapshot_every;
  if (!changed && !draining_ && !snapshot_now_) return;
  // Bytes of a full image of the table.
  const std::size_t image = std::size_t(table.lines()) * SnapshotEncoder::kLineBytes;
  round_ = {.active = true, .final = draining_};
  snapshot_now_ = false;
  if (snapshot_ == 0 || snapshot_bytes_ > kImagesPerFile * image + options_.snapshot_block_bytes) {
    if (snapshot_ != 0) outdated_.push_back(SnapshotPath(snapshot_));
    snapshot_ = next_snapshot_++;
    snapshot_bytes_ = unsynced_bytes_ = 0;
    round_.full = true;
    encoder_ = SnapshotEncoder();
    encoder_.Head(table.lines());
  }
}

// Next line of the round; -1 if there is none. An incremental round ends after one pass over the
// table, even if lines keep changing.
std::int64_t Journal::NextLine(JournalSource* table) {
  if (round_.full) return round_.cursor < table->lines() ? round_.cursor++ : -1;
  if (round_.taken >= table->lines()) return -1;
  const std::int64_t line = table->TakeDirtyLine();
  if (line >= 0) ++round_.taken;
  return line;
}

// Reads some lines per Poll, so that a round does not delay requests.
void Journal::ReadLines(JournalSource* table) {
  SlotLine slot;
  for (int i = 0; i < options_.lines_per_poll; ++i) {
    if (encoder_.size() >= options_.snapshot_block_bytes) return;  // the disk must catch up first
    const std::int64_t line = NextLine(table);
    if (line < 0) return EndRound(*table);
    table->ReadLine(line, &slot);
    encoder_.Line(line, table->position(), slot);
    ++stats_.snapshot_lines;
  }
}

// Makes the trailer. It holds the log's position, up to which the log must be durable first.
void Journal::EndRound(const JournalSource& table) {
  last_.counters = table.counters();
  last_.owner = owner_;
  last_.end = table.position();
  last_.clean = round_.final;
  encoder_.Trailer(last_);
  round_.read = true;
}

bool Journal::StartSnapshot(Time now) {
  if (!round_.active) return false;
  // A round counts only together with the log that it describes: its last block waits for the log.
  if (round_.read && !refused_ && last_.end > durable_) return false;
  auto work = std::exchange(refused_, nullptr);
  if (!work) {
    if (!round_.read && encoder_.size() < options_.snapshot_block_bytes) return false;
    work = std::make_shared<Work>();
    work->block = encoder_.Take(std::move(spare_));
    const std::span<const std::byte> bytes = work->block;
    work->pieces.push_back({SnapshotPath(snapshot_), snapshot_bytes_, bytes, nullptr});
    if (round_.full) work->discard = SnapshotPath(snapshot_);  // the file has no complete round yet
    work->ends_round = round_.read;
    snapshot_bytes_ += bytes.size();
    unsynced_bytes_ += bytes.size();
    work->sync = round_.read || unsynced_bytes_ >= options_.snapshot_sync_bytes;
    if (work->sync) unsynced_bytes_ = 0;
    stats_.snapshot_bytes += std::int64_t(bytes.size());
  }
  if (!Start(&side_, "replay snapshot", work, now)) refused_ = std::move(work);
  return true;
}

// The trailer's block completes the round.
void Journal::FinishSnapshot(Time now, const Work& work) {
  if (!work.status.ok()) return FailSnapshot(now, work.status);
  snapshot_error_ = Status::Ok();
  if (!work.ends_round) return;
  ++stats_.rounds;
  last_round_done_ |= round_.final;
  drained_ |= round_.final && outdated_.empty();
  round_ = {};
}

// Abandons the file and its round; the next one begins with all lines.
void Journal::FailSnapshot(Time now, const Status& status) {
  ++stats_.failures;
  ++stats_.snapshot_failures;
  if (snapshot_error_.ok()) LogWarning("replay: can't write a snapshot: {}", status.ToString());
  snapshot_error_ = status.WithContext("replay: can't write a snapshot");
  side_.retry_at = now + options_.retry_after;
  outdated_.push_back(SnapshotPath(std::exchange(snapshot_, 0)));
  drained_ |= round_.final;
  snapshot_now_ = true;
  round_ = {};
}

// ---- Removal and spilling, on the second lane ----

// Snapshots have priority over removals, and removals over spilling.
void Journal::StartSide(Time now, const JournalSource& table) {
  if (now < side_.retry_at) return;
  if (StartSnapshot(now) || StartRemoval(now)) return;
  StartSpill(now, table);
}

bool Journal::StartRemoval(Time now) {
  auto work = std::make_shared<Work>();
  // A segment that the running commit may still write is not removed. A full disk relaxes the
  // order: removing files makes room for the moved records.
  const auto due = [this](const Removal& removal) {
    const bool may_be_written = log_.job != 0 && removal.segment >= written_.segment;
    const bool full = error_.code() == Code::kResourceExhausted;
    return (full ? removal.moved : removal.left) <= durable_ && !may_be_written;
  };
  std::size_t count = 0;
  for (; count < std::min(removals_.size(), kRemovalsPerJob) && due(removals_[count]); ++count) {
    work->removals.push_back(SegmentPath(removals_[count].segment));
    removed_.Add(removals_[count].segment);
  }
  // Older snapshot files are removed when the newest has a complete round.
  const bool complete = stats_.rounds > 0 && snapshot_ != 0 && !round_.full;
  if (count > 0) {
    work->note = {options_.folder + "/" + std::string(kJournalRemoved), removed_.Encode()};
  }
  if (complete) std::ranges::copy(outdated_, std::back_inserter(work->removals));
  if (work->removals.empty() || !Start(&side_, "replay removal", std::move(work), now)) {
    return false;
  }
  stats_.removed += std::int64_t(count);
  removals_.erase(removals_.begin(), removals_.begin() + std::ptrdiff_t(count));
  if (complete) outdated_.clear();
  return true;
}

// Maps the file of the next written and sealed segment, one per job.
bool Journal::StartSpill(Time now, const JournalSource& table) {
  if (!options_.spill || spilled_to_ + 1 >= written_.segment) return false;
  for (const std::shared_ptr<const Segment>& segment : table.segments()) {
    if (segment->id() <= spilled_to_ || segment->id() >= written_.segment) continue;
    auto work = std::make_shared<Work>();
    work->map = SegmentPath(segment->id());
    work->segment = segment->id();
    if (!Start(&side_, "replay spill", std::move(work), now)) return false;
    spilled_to_ = segment->id();
    return true;
  }
  spilled_to_ = written_.segment - 1;
  return false;
}

void Journal::FinishSide(Time now, JournalSource* table) {
  const std::shared_ptr<Work> work = std::move(side_.work);
  if (!work->pieces.empty()) {
    spare_ = std::move(work->block);
    return FinishSnapshot(now, *work);
  }
  if (!work->status.ok()) {
    // The cost is a superfluous file, or memory that is not released; a restart corrects both.
    ++stats_.failures;
    LogWarning("replay: {}", work->status.ToString());
  } else if (work->segment != 0) {
    stats_.spilled += table->MoveSegment(work->segment, std::move(work->mapped));
  }
  drained_ |= last_round_done_ && outdated_.empty();
}

}  // namespace troop
