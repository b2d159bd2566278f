// TableDurability: acknowledgements and checkpoints in the order of the journal.
#include "replay/serving/table_durability.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/base/log.h"

namespace troop {
namespace {

// Polls of the journal per call while idle: a snapshot round may use up to a millisecond per tick,
// at most one tick every two milliseconds.
constexpr int kIdlePolls = 64;

}  // namespace

// The queue stays in the order of positions, so Poll only looks at its front.
void TableDurability::AcknowledgeAt(LogPosition position, Reply reply, std::string body) {
  unacked_.push_back({position, std::move(reply), std::move(body)});
  journal_->RequestDurable(position);
}

// A round in progress may have begun before this call; the one after it certainly did not.
Status TableDurability::Checkpoint(Reply* reply) {
  if (!journal_) {
    return FailedPrecondition("replay: table {} is in memory only; set replay.persist", table_);
  }
  const Journal::Stats& stats = journal_->stats();
  // A failure counts only if it happens after this call, hence the absolute numbers.
  checkpoints_.push_back({stats.rounds + 2, stats.snapshot_failures + 1, std::move(*reply)});
  return Status::Ok();
}

void TableDurability::AddDictionary(std::uint32_t id, Buffer bytes) {
  if (journal_) journal_->AddDictionary(id, std::move(bytes));
}

Time TableDurability::Poll(Time now, std::string owner, bool idle, JournalSource* table) {
  journal_->SetOwner(std::move(owner));
  // Callers wait, so the round does not wait for its interval.
  if (!checkpoints_.empty()) journal_->SnapshotNow();
  Time next = journal_->Poll(now, table);
  // While no request waits, the journal may use the time of this thread.
  for (int i = 0; i < kIdlePolls && idle && next <= now; ++i) next = journal_->Poll(now, table);
  while (!unacked_.empty() && unacked_.front().position <= journal_->durable()) {
    unacked_.front().reply.Send(
        {.type = MessageType::kInsertReply, .body = std::move(unacked_.front().body)});
    unacked_.pop_front();
  }
  AnswerCheckpoints();
  return next;
}

// A failed round fails every caller that waits for it; the caller decides on a retry.
void TableDurability::AnswerCheckpoints() {
  std::erase_if(checkpoints_, [this](ParkedCheckpoint& parked) {
    const Journal::Stats& stats = journal_->stats();
    if (stats.rounds >= parked.rounds) {
      parked.reply.Send({.type = MessageType::kReplayCheckpointReply});
    } else if (stats.snapshot_failures >= parked.failures) {
      parked.reply.Fail(journal_->snapshot_error());
    } else {
      return false;
    }
    return true;
  });
}

std::string TableDurability::LagMessage() const {
  const std::string& error = journal_->error().message();
  return fmt::format("table {} accepts no inserts: {} MiB wait for the disk{}{}", table_,
                     journal_->lag_bytes() >> 20, error.empty() ? "" : ": ", error);
}

// Returns true at the moment when parked inserts may continue. Logged once per period.
bool TableDurability::NoteBehind() {
  const bool was = std::exchange(behind_, behind());
  if (behind_ && !was) LogWarning("replay: {}", LagMessage());
  return was && !behind_;
}

void TableDurability::Drain() {
  if (journal_) journal_->Drain();
}

std::string TableDurability::Blocked() const {
  if (journal_ == nullptr) return {};
  // A lag that blocks inserts is more urgent than acknowledgements that are late.
  if (behind_) return LagMessage();
  const std::string& error = journal_->error().message();
  if (error.empty() || unacked_.empty()) return {};
  return fmt::format("table {}: {} inserts wait for the disk (replay.durability = \"disk\"): {}",
                     table_, unacked_.size(), error);
}

void TableDurability::Report(const PrefixedMetrics& metrics) const {
  if (!journal_) return;
  const Journal::Stats& stats = journal_->stats();
  metrics.Count("commits", double(stats.commits));
  metrics.Count("commit_bytes", double(stats.commit_bytes));
  metrics.Count("snapshots", double(stats.rounds));
  metrics.Count("disk_failures", double(stats.failures));
  metrics.Level("unacked_inserts", double(unacked_.size()));
  metrics.Level("unwritten_bytes", double(journal_->lag_bytes()));
}

}  // namespace troop
