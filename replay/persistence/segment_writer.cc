// SegmentWriter: group commits of the log.
#include "replay/persistence/segment_writer.h"

#include <algorithm>
#include <cstddef>
#include <memory>

#include "core/base/log.h"
#include "replay/persistence/journal_names.h"
#include "replay/persistence/journal_reader.h"

namespace troop {

SegmentWriter::SegmentWriter(JournalLane lane, JournalOptions options, LogPosition end,
                             std::uint32_t next_dictionary)
    : options_(std::move(options)),
      lane_(std::move(lane)),
      written_(end),
      durable_(end),
      submitted_(end.segment),
      next_dictionary_(next_dictionary) {}

std::string SegmentWriter::Path(std::uint64_t segment) const {
  return options_.folder + "/" + JournalSegmentName(segment);
}

void SegmentWriter::RequestDurable(LogPosition position) { wanted_ = std::max(wanted_, position); }

void SegmentWriter::AddDictionary(std::uint32_t id, const Buffer& bytes) {
  dictionaries_.emplace_back(id, EncodeDictionaryFile(next_dictionary_++, bytes));
}

LogProgress SegmentWriter::progress() const {
  return {.written = written_,
          .durable = durable_,
          .committing = !lane_.idle(),
          .disk_full = error_.code() == Code::kResourceExhausted};
}

bool SegmentWriter::all_written(const JournalSource& table) const {
  return written_ >= table.position() && dictionaries_.empty() && lane_.idle();
}

Time SegmentWriter::NextTime(Time now, bool draining) const {
  Time next = kForever;
  if (!lane_.idle()) return next;
  if (!dictionaries_.empty() || draining) next = std::max(now, lane_.retry_at());
  if (waiting_) {
    next = std::min(next, std::max(waiting_since_ + options_.commit_wait, lane_.retry_at()));
  }
  return next;
}

// ---- Freed segments -----------------------------------------------------------------------------

void SegmentWriter::NoteMoves(const JournalSource& table) {
  if (std::exchange(compacted_, table.compacted_bytes()) != compacted_) moved_ = table.position();
}

// A segment that was freed before it was written leaves a hole in the log on disk. Its live
// content was moved to a later position, which must be durable before anything after the hole
// counts.
bool SegmentWriter::NoteFreed(std::uint64_t segment) {
  if (segment >= written_.segment) hole_until_ = moved_;
  if (segment <= submitted_) return true;
  // Its file is never written, which the file `skipped` records.
  skipped_.Add(segment);
  skipped_more_ = true;
  return false;
}

// ---- Commits ------------------------------------------------------------------------------------

void SegmentWriter::CommitIfDue(Time now, const JournalSource& table, bool urgent) {
  if (CommitIsDue(now, table, urgent)) Commit(now, table);
}

bool SegmentWriter::CommitIsDue(Time now, const JournalSource& table, bool urgent) {
  // A commit covers [written_, end); bytes of a running job do not count as waiting.
  const LogPosition end = table.position();
  const LogPosition submitted = lane_.idle() ? written_ : lane_.running().end;
  if (end <= submitted && dictionaries_.empty()) return false;
  if (!std::exchange(waiting_, true)) waiting_since_ = now;
  if (!lane_.idle() || now < lane_.retry_at()) return false;
  return urgent || wanted_ > durable_ || !dictionaries_.empty() ||
         end.segment != written_.segment || end.offset - written_.offset >= options_.commit_bytes ||
         now - waiting_since_ >= options_.commit_wait;
}

// Submits the next part of the log: dictionaries first, since its frames need them.
void SegmentWriter::Commit(Time now, const JournalSource& table) {
  auto job = std::make_shared<JournalJob>();
  for (const auto& [id, bytes] : dictionaries_) {
    job->writes.emplace_back(options_.folder + "/" + JournalDictionaryName(id), bytes);
  }
  if (skipped_more_) {
    job->note = {options_.folder + "/" + std::string(kJournalSkipped), skipped_.Encode()};
  }
  // A failed job may have left files after written_. Truncate them, last first, so that the log on
  // disk never has a gap.
  for (std::uint64_t id = submitted_; id > written_.segment; --id) job->cuts.push_back(Path(id));
  AddPieces(table, job.get());
  const std::uint64_t last = job->pieces.empty() ? 0 : job->last_segment;
  if (!lane_.Start("replay commit", std::move(job), now)) return;
  submitted_ = std::max(submitted_, last);
  skipped_more_ = false;
  waiting_ = false;
}

// Collects the unwritten bytes of all segments, up to job_bytes.
void SegmentWriter::AddPieces(const JournalSource& table, JournalJob* job) const {
  LogPosition at = written_;
  std::size_t budget = options_.job_bytes;
  for (const std::shared_ptr<const Segment>& segment : table.segments()) {
    if (segment->id() < written_.segment) continue;
    const std::size_t from = segment->id() == at.segment ? at.offset : 0;
    const std::size_t bytes = std::min(segment->used() - from, budget);
    at = {segment->id(), from + bytes};
    budget -= bytes;
    if (bytes > 0) {
      job->pieces.push_back({Path(at.segment), from, {segment->data() + from, bytes}, segment});
    }
    if (budget == 0) break;
  }
  // If the budget cut the commit short, the rest is the next one's.
  job->end = budget == 0 ? at : table.position();
  job->appended = budget == 0 ? written_bytes_ + (options_.job_bytes - budget) : table.appended();
  job->last_segment = at.segment;
}

// On success everything up to the job's end is written; on failure the same bytes are retried.
bool SegmentWriter::Finish(Time now) {
  const std::shared_ptr<JournalJob> job = lane_.TakeDone();
  if (!job) return true;
  if (!job->status.ok()) {
    NoteFailure(now, *job);
    return false;
  }
  if (!error_.ok()) LogInfo("replay: experience is durable again");
  error_ = Status::Ok();
  dictionaries_.erase(dictionaries_.begin(),
                      dictionaries_.begin() + std::ptrdiff_t(job->writes.size()));
  written_ = std::max(written_, job->end);
  written_bytes_ = job->appended;
  // After a hole, written bytes count only once the moved records are written too.
  if (written_ >= hole_until_) durable_ = written_;
  ++stats_.commits;
  for (const JournalJob::Piece& piece : job->pieces) {
    stats_.commit_bytes += std::int64_t(piece.bytes.size());
  }
  return true;
}

void SegmentWriter::NoteFailure(Time now, const JournalJob& job) {
  ++stats_.failures;
  if (error_.ok()) LogWarning("replay: {}", job.status.ToString());
  error_ = MakeStatus(job.status.code(),
                      "replay: cannot make experience durable: {}. Free space or repair the disk; "
                      "retrying every {} s",
                      job.status.message(), ToSeconds(options_.retry_after));
  lane_.RetryAt(now + options_.retry_after);
  // Write the note again with the next commit.
  skipped_more_ |= !job.note.path.empty();
}

}  // namespace troop
