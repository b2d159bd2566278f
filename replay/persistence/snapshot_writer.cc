// SnapshotWriter: snapshot rounds, their blocks and their files.
#include "replay/persistence/snapshot_writer.h"

#include <algorithm>
#include <cstddef>

#include "core/base/log.h"
#include "replay/persistence/journal_names.h"

namespace troop {
namespace {

// Size of a snapshot file, in full images, above which a new one is started.
constexpr std::size_t kImagesPerFile = 2;

}  // namespace

SnapshotWriter::SnapshotWriter(JournalOptions options, std::uint64_t next_number,
                               std::vector<std::string> outdated)
    : options_(std::move(options)), next_number_(next_number), outdated_(std::move(outdated)) {}

std::string SnapshotWriter::Path(std::uint64_t number) const {
  return options_.folder + "/" + JournalSnapshotName(number);
}

bool SnapshotWriter::due(Time now) const {
  return requested_ || (options_.snapshot_every > Duration(0) && now >= next_round_);
}

Time SnapshotWriter::NextTime(Time now, const JournalLane& lane) const {
  Time next = kForever;
  if (!lane.idle()) {
    // Lines are read while a block is written, until the next block is full.
    const bool reads = round_.active && !round_.read;
    return reads && encoder_.size() < options_.snapshot_block_bytes ? now : next;
  }
  if (round_.active || requested_ || last_round_done_) next = std::max(now, lane.retry_at());
  if (!round_.active && options_.snapshot_every > Duration(0)) {
    next = std::min(next, std::max(next_round_, lane.retry_at()));
  }
  return next;
}

// ---- Reading ------------------------------------------------------------------------------------

// The round is a full one if the snapshot file is new or has grown too large.
void SnapshotWriter::BeginRound(Time now, const JournalSource& table, bool last) {
  const bool changed = table.dirty_lines() > 0 || !(table.counters() == trailer_.counters) ||
                       owner_ != trailer_.owner || number_ == 0;
  next_round_ = now + options_.snapshot_every;
  if (!changed && !last && !requested_) return;
  // Bytes of a full image of the table.
  const std::size_t image = std::size_t(table.lines()) * SnapshotEncoder::kLineBytes;
  round_ = {.active = true, .last = last};
  requested_ = false;
  if (number_ == 0 || file_bytes_ > kImagesPerFile * image + options_.snapshot_block_bytes) {
    BeginFile(table.lines());
  }
}

void SnapshotWriter::BeginFile(std::int64_t lines) {
  if (number_ != 0) outdated_.push_back(Path(number_));
  number_ = next_number_++;
  file_bytes_ = unsynced_bytes_ = 0;
  round_.full = true;
  encoder_ = SnapshotEncoder();
  encoder_.Head(lines);
}

// Next line of the round; -1 if there is none. An incremental round ends after one pass over the
// table, even if lines keep changing.
std::int64_t SnapshotWriter::NextLine(JournalSource* table) {
  if (round_.full) return round_.cursor < table->lines() ? round_.cursor++ : -1;
  if (round_.taken >= table->lines()) return -1;
  const std::int64_t line = table->TakeDirtyLine();
  if (line >= 0) ++round_.taken;
  return line;
}

// Few lines per call, so that a round does not delay requests.
void SnapshotWriter::ReadLines(JournalSource* table) {
  SlotLine slot;
  for (int i = 0; i < options_.lines_per_poll; ++i) {
    if (encoder_.size() >= options_.snapshot_block_bytes) return;  // the disk must catch up first
    const std::int64_t line = NextLine(table);
    if (line < 0) return EndRound(*table);
    table->ReadLine(line, &slot);
    encoder_.Line(line, table->position(), slot);
    ++stats_.lines;
  }
}

// Makes the trailer. It holds the log's position, up to which the log must be durable first.
void SnapshotWriter::EndRound(const JournalSource& table) {
  trailer_.counters = table.counters();
  trailer_.owner = owner_;
  trailer_.end = table.position();
  trailer_.clean = round_.last;
  encoder_.Trailer(trailer_);
  round_.read = true;
}

// ---- Writing ------------------------------------------------------------------------------------

bool SnapshotWriter::StartBlock(Time now, LogPosition durable, JournalLane* lane) {
  if (!round_.active) return false;
  // A round counts only together with the log that it describes: its last block waits for the log.
  if (round_.read && !refused_ && trailer_.end > durable) return false;
  auto job = std::exchange(refused_, nullptr);
  if (!job) {
    if (!round_.read && encoder_.size() < options_.snapshot_block_bytes) return false;
    job = TakeBlock();
  }
  if (!lane->Start("replay snapshot", job, now)) refused_ = std::move(job);
  return true;
}

// Makes a job of the bytes that were encoded since the last block.
std::shared_ptr<JournalJob> SnapshotWriter::TakeBlock() {
  auto job = std::make_shared<JournalJob>();
  job->block = encoder_.Take(std::move(spare_));
  const std::span<const std::byte> bytes = job->block;
  job->pieces.push_back({Path(number_), file_bytes_, bytes, nullptr});
  if (round_.full) job->discard = Path(number_);  // the file has no complete round yet
  job->ends_round = round_.read;
  file_bytes_ += bytes.size();
  unsynced_bytes_ += bytes.size();
  job->sync = round_.read || unsynced_bytes_ >= options_.snapshot_sync_bytes;
  if (job->sync) unsynced_bytes_ = 0;
  stats_.bytes += std::int64_t(bytes.size());
  return job;
}

// The trailer's block completes the round.
bool SnapshotWriter::FinishBlock(JournalJob* job) {
  spare_ = std::move(job->block);
  if (!job->status.ok()) {
    NoteFailure(job->status);
    return false;
  }
  error_ = Status::Ok();
  if (!job->ends_round) return true;
  ++stats_.rounds;
  last_round_done_ |= round_.last;
  round_ = {};
  return true;
}

// Abandons the file and its round; the next one begins with all lines.
void SnapshotWriter::NoteFailure(const Status& status) {
  ++stats_.failures;
  if (error_.ok()) LogWarning("replay: can't write a snapshot: {}", status.ToString());
  error_ = status.WithContext("replay: can't write a snapshot");
  outdated_.push_back(Path(std::exchange(number_, 0)));
  gave_up_ |= round_.last;
  requested_ = true;
  round_ = {};
}

// ---- Older files --------------------------------------------------------------------------------

std::span<const std::string> SnapshotWriter::removable() const {
  const bool complete = stats_.rounds > 0 && number_ != 0 && !round_.full;
  return complete ? std::span<const std::string>(outdated_) : std::span<const std::string>();
}

void SnapshotWriter::ForgetRemovable() {
  if (!removable().empty()) outdated_.clear();
}

}  // namespace troop
