#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/base/time.h"
#include "net/network.h"
#include "replay/persistence/journal.h"
#include "replay/serving/prefixed_metrics.h"

namespace troop {

// A table's journal, and the replies that wait for it: inserts that are acknowledged when they are
// on disk (replay.durability = "disk"), and checkpoints. A failing disk is retried forever, and
// dependent requests wait. Owner: the table's server, on one thread; nothing blocks. Without a
// journal the table is in memory only, and nothing waits.
class TableDurability {
 public:
  // `table`: name, for messages. `ack_on_disk`: acknowledge inserts only once they are durable.
  TableDurability(std::string table, bool ack_on_disk)
      : table_(std::move(table)), ack_on_disk_(ack_on_disk) {}
  void Open(std::unique_ptr<Journal> journal) { journal_ = std::move(journal); }

  bool ack_on_disk() const { return ack_on_disk_; }
  // True if too many bytes wait for the disk: commits read the log in memory, which must not turn
  // over before they are written, so the table must accept no inserts.
  bool behind() const { return journal_ != nullptr && journal_->behind(); }
  // Updates what Blocked reports, and logs a new lag. True if the disk has caught up.
  bool NoteBehind();

  // Replies when the log is durable up to `position`; positions ascend. REQUIRES: ack_on_disk().
  void AcknowledgeAt(LogPosition position, Reply reply, std::string body);
  // Replies when a snapshot that starts after this call is complete or has failed. Errors:
  // kFailedPrecondition: no journal; `reply` still belongs to the caller.
  Status Checkpoint(Reply* reply);
  void AddDictionary(std::uint32_t id, Buffer bytes);
  // Polls the journal and answers what it has completed. `owner`: bytes for the next snapshot.
  // `idle`: the journal may use the time for a snapshot. Returns the latest time of the next Poll.
  // REQUIRES: a journal.
  Time Poll(Time now, std::string owner, bool idle, JournalSource* table);

  void Drain();  // the table no longer changes
  bool persistent() const { return journal_ != nullptr; }
  bool drained() const { return journal_ == nullptr || journal_->drained(); }
  // Reason why inserts are blocked or unacknowledged; empty if they are not.
  std::string Blocked() const;
  void Report(const PrefixedMetrics& metrics) const;

 private:
  // A checkpoint request that waits for the journal.
  struct ParkedCheckpoint {
    std::int64_t rounds = 0, failures = 0;  // answered at this count of the journal's stats
    Reply reply;
  };
  // An insert in the table whose record is not durable yet.
  struct UnackedInsert {
    LogPosition position;
    Reply reply;
    std::string body;
  };
  void AnswerCheckpoints();
  std::string LagMessage() const;

  std::string table_;
  bool ack_on_disk_;
  std::unique_ptr<Journal> journal_;   // null: the table is in memory only
  std::deque<UnackedInsert> unacked_;  // in log order
  std::vector<ParkedCheckpoint> checkpoints_;
  bool behind_ = false;  // as of the last NoteBehind
};

}  // namespace troop
