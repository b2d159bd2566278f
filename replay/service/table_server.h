#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/metrics/histogram.h"
#include "core/metrics/metrics.h"
#include "net/network.h"
#include "replay/persistence/restore.h"
#include "replay/service/dictionary_trainer.h"
#include "replay/service/messages.h"
#include "replay/service/server.h"
#include "replay/table/rate_limiter.h"
#include "replay/table/table.h"

namespace troop {

// One table of a ReplayServer and its waiting requests. Owner: the server, on the node's thread.
//
// Requests that must wait are parked. Inserts are answered in order of arrival, and so are samples
// that are charged to the rate limiter; samples without a charge wait for no other request.
// Samples are *reserved* when the reply is made and *delivered* when the sampler reports that its
// owner took them. What a restarted sampler had reserved is released.
class TableServer {
 public:
  // Creates or restores the table. Blocks on the disk if the table is persistent. Errors: those of
  // RestoreTable.
  static Result<std::unique_ptr<TableServer>> Make(const ReplayTableOptions& options,
                                                   const ReplayServer::Options& server);

  // Request handlers. On error the call is refused, and `reply` still belongs to the caller.
  Status HandleInsert(const Message& message, const InsertBody& body, Reply* reply);
  Status HandleSample(const Message& message, const SampleBody& body, Reply* reply);
  Status HandleTableDelta(const Message& message, const TableDeltaBody& body, Reply* reply);
  Status HandleUpdate(const Message& message, const UpdateBody& body, Reply* reply);
  Status HandleDictionary(const DictionaryBody& body, Reply* reply);
  Status HandleReconfigure(const ReconfigureBody& body, Reply* reply);
  // Replies when a snapshot that starts after this call is complete or has failed.
  Status HandleCheckpoint(Reply* reply);

  void Settle() {  // after a call: answers all requests that no longer wait
    called_ = true;
    SettleAll();
  }
  // Notes the state of a client's connection. A client that stays away loses what it reserved, and
  // its parked requests are refused.
  void NotePeer(const Origin& origin, PeerState state);
  // Periodic work: expired clients, parked requests, dictionary training, the journal.
  void Tick(Time now);
  Time next_tick() const { return next_tick_; }  // latest time of the next Tick
  void Drain();                                  // no more calls will arrive
  bool drained() const { return journal_ == nullptr || journal_->drained(); }
  // Reports metrics. `prefix`: "replay/" for the first table, "replay/<name>/" for the others.
  void Report(std::string_view prefix, Metrics* metrics) const;
  TableInfo Info() const;
  // Reason why inserts are blocked or unacknowledged (disk or memory); empty if they are not.
  std::string Blocked() const;
  const std::string& name() const { return options_.table.name; }
  std::int64_t refused() const { return refused_; }

 private:
  // An insert that waits for the rate limiter or for the disk.
  struct ParkedInsert {
    EncodedInsert call;
    Reply reply;
  };
  // A sample or feed request that waits for the rate limiter or for items.
  struct ParkedSample {
    SampleBody body;
    Origin origin;
    Reply reply;
    std::optional<TableDeltaBody> feed;  // set for a feed request
    bool waived = false;
    std::vector<Buffer> blocks;       // sampled so far; the table may run out of items
    std::vector<std::uint32_t> rows;  // rows of each block
    std::uint32_t batches = 0;        // complete batches among them
    std::uint32_t rows_open = 0;      // rows of the incomplete batch
    std::size_t bytes = 0;            // total size of the blocks
  };
  // Per sampler, in items: the charge so far, and how much of it the owner has taken.
  struct Client {
    std::uint64_t incarnation = 0, reserved = 0, delivered = 0;
    std::optional<Time> gone;  // time of disconnection; nullopt: connected
  };

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

  TableServer(const ReplayTableOptions& options, const ReplayServer::Options& server, Table table,
              RateLimiter limiter);
  Status Keep(RestoredTable* restored);
  std::string Counts() const;  // the limiter's counts, stored in snapshots and read by Keep
  Status AddDictionaries();
  void AddDictionary(const std::shared_ptr<const FrameDictionary>& dictionary);
  void PollDictionary();
  void PollJournal(Time now);
  void NoteBehind();
  Status CheckDictionaries(const EncodedInsert& call) const;
  Status CheckSample(const SampleBody& body) const;
  Status Park(const Message& message, ParkedSample parked, Reply* reply);
  Status Update(const Message& message, std::uint32_t updates);
  void NoteClient(const Origin& origin, std::uint64_t taken);
  void ForgetClients(Time now);
  void SetDrain(bool drain, const Origin& origin);
  bool Ready() const;
  double Credit() const;
  bool CanInsert() const;
  bool CanSample(const ParkedSample& parked) const;
  void NoteWaits();
  void SettleAll();
  bool SettleInsert();
  bool SettleSample();
  void Insert(ParkedInsert parked);
  bool Sample(ParkedSample* parked);
  bool DrawBlocks(ParkedSample* parked);
  SampleReplyBody Charge(const ParkedSample& parked);
  void SendSample(ParkedSample* parked, bool nothing);
  void SendTableDelta(ParkedSample* parked);
  void NoteExpired(const Item& item, std::int64_t count);
  void NoteDrawn();
  void ObservePolicyVersion(std::uint64_t version);
  bool Fenced(const Origin& origin) const;
  // Identifies this incarnation of the table in table deltas; never 0.
  std::uint64_t TableIncarnation() const { return options_.table.incarnation + 1; }

  ReplayTableOptions options_;
  std::int64_t batch_size_max_;
  bool ack_on_disk_;
  std::function<bool(std::uint64_t)> version_is_issued_;
  Table table_;
  TableJournalSource journaled_{&table_};
  std::unique_ptr<Journal> journal_;  // null: the table is in memory only
  RateLimiter limiter_;
  DictionaryTrainer trainer_;
  std::vector<std::pair<std::uint32_t, Buffer>> dictionaries_;  // oldest first
  std::deque<ParkedInsert> inserts_;                            // in order of arrival
  std::deque<ParkedSample> samples_;
  std::deque<UnackedInsert> unacked_;  // in log order
  std::vector<ParkedCheckpoint> checkpoints_;
  bool called_ = false;    // a request arrived since the last Tick
  bool ended_ = false;     // draining: requests are no longer answered
  bool behind_ = false;    // inserts were blocked by the disk at the last Tick
  Status insert_error_;    // error of the last insert, if memory was exhausted
  bool draining_ = false;  // the last sampler request announced the end of experience
  std::map<std::pair<Role, std::int32_t>, Client> clients_;
  std::optional<Time> now_;
  Time next_tick_{};
  std::int64_t refused_ = 0, expired_ = 0, repeated_ = 0, rejected_ = 0;
  struct Before {
    std::int64_t inserts = 0, samples = 0, evicted = 0;
  } before_;  // counts of earlier processes, which reported them themselves
  Table::UpdateCounts updates_;
  Histogram policy_age_, age_;  // ages of sampled items: in updates, and in items inserted since
  double policy_version_mean_ = 0, policy_version_min_ = 0;  // statistics of the last sample
  EncodedBatch drawn_;                                       // scratch
  TableDelta delta_;                                         // scratch
  std::vector<std::uint64_t> key_;
  std::vector<float> priority_;
};

}  // namespace troop
