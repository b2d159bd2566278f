#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/histogram.h"
#include "core/metrics.h"
#include "net/network.h"
#include "replay/dictionary_trainer.h"
#include "replay/rate_limiter.h"
#include "replay/restore.h"
#include "replay/server.h"
#include "replay/table.h"
#include "replay/wire.h"

namespace troop {

// One table behind a ReplayServer, with what waits for it. Owner: the server.
//
// Requests that must wait are parked. Inserts are answered in the order of arrival; samples that
// are charged likewise; those that are not charged wait for nobody. Samples are *reserved* when the
// reply is made and *delivered* when their sampler says that its owner took them; what a sampler
// that was restarted had reserved is released.
class TableServer {
 public:
  // Blocks on the disk where the table is kept there. Errors: those of RestoreTable.
  static Result<std::unique_ptr<TableServer>> Make(const ReplayTableOptions& options,
                                                   const ReplayServer::Options& server);

  // Not ok: the call is refused, and `reply` is still the caller's.
  Status HandleInsert(const Message& message, const InsertBody& body, Reply* reply);
  Status HandleSample(const Message& message, const SampleBody& body, Reply* reply);
  Status HandleFeed(const Message& message, const FeedBody& body, Reply* reply);
  Status HandleUpdate(const Message& message, const UpdateBody& body, Reply* reply);
  Status HandleDictionary(const DictionaryBody& body, Reply* reply);
  Status HandleReconfigure(const ReconfigureBody& body, Reply* reply);
  // Answered when a snapshot from now on is complete, or failed.
  Status HandleCheckpoint(Reply* reply);

  void Settle() {  // after a call: answers what may be answered
    called_ = true;
    SettleAll();
  }
  // Of a client's connection. What one that stays away had reserved is released, and what it had
  // parked is refused.
  void NotePeer(const Origin& origin, PeerState state);
  void Tick(Time now);
  Time next_tick() const { return next_tick_; }  // at the latest, as of the last Tick
  void Drain();                                  // no call comes any more
  bool drained() const { return journal_ == nullptr || journal_->drained(); }
  // `prefix`: "replay/" of the first table, "replay/<name>/" of others.
  void Report(std::string_view prefix, Metrics* metrics) const;
  TableInfo Info() const;
  // Why inserts are not taken or not acknowledged: the disk or the memory; empty: they are.
  std::string Blocked() const;
  const std::string& name() const { return options_.table.name; }
  std::int64_t refused() const { return refused_; }

 private:
  struct ParkedInsert {
    EncodedInsert call;
    Reply reply;
  };
  struct ParkedSample {
    SampleBody body;
    Origin origin;
    Reply reply;
    std::optional<FeedBody> feed;  // the call was one for this
    bool waived = false;
    std::vector<Buffer> blocks;       // drawn so far: a table may run out of items on the way
    std::vector<std::uint32_t> rows;  // of each block
    std::uint32_t batches = 0;        // whole ones of them
    std::uint32_t rows_open = 0;      // of the batch that is not whole
    std::size_t bytes = 0;            // of the blocks
  };
  // Of one sampler: what it was charged, and what of it its owner took.
  struct Client {
    std::uint64_t incarnation = 0, reserved = 0, delivered = 0;
    std::optional<Time> gone;  // since then; nullopt: it is there
  };

  struct ParkedCheckpoint {
    std::int64_t rounds = 0, failures = 0;  // of the journal: answered when it has as many, or more
    Reply reply;
  };

  // An insert that a restart would not find yet.
  struct UnackedInsert {
    LogPosition position;
    Reply reply;
    std::string body;
  };

  TableServer(const ReplayTableOptions& options, const ReplayServer::Options& server, Table table,
              RateLimiter limiter);
  Status Keep(RestoredTable* restored);
  std::string Counts() const;  // what a snapshot keeps for Keep
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
  void SendFeed(ParkedSample* parked);
  void NoteExpired(const Item& item, std::int64_t count);
  void NoteDrawn();
  void SeePolicyVersion(std::uint64_t version);
  bool Fenced(const Origin& origin) const;
  // Differs from one life of the server to the next, and is never 0.
  std::uint64_t Life() const { return options_.table.incarnation + 1; }

  ReplayTableOptions options_;
  std::int64_t batch_size_max_;
  bool ack_on_disk_;
  std::function<bool(std::uint64_t)> version_is_issued_;
  Table table_;
  JournaledTable journaled_{&table_};
  std::unique_ptr<Journal> journal_;  // null: not on disk
  RateLimiter limiter_;
  DictionaryTrainer trainer_;
  std::vector<std::pair<std::uint32_t, Buffer>> dictionaries_;  // oldest first
  std::deque<ParkedInsert> inserts_;                            // in the order of arrival
  std::deque<ParkedSample> samples_;
  std::deque<UnackedInsert> unacked_;  // in the order of the log
  std::vector<ParkedCheckpoint> checkpoints_;
  bool called_ = false;    // since the last Tick
  bool ended_ = false;     // nothing is answered any more
  bool behind_ = false;    // the disk, at the last Tick
  Status insert_error_;    // of the last insert, where memory was refused
  bool draining_ = false;  // the last sampler heard said that no more experience will come
  std::map<std::pair<Role, std::int32_t>, Client> clients_;
  std::optional<Time> now_;
  Time next_tick_{};
  std::int64_t refused_ = 0, expired_ = 0, repeated_ = 0, rejected_ = 0;
  struct Before {
    std::int64_t inserts = 0, samples = 0, evicted = 0;
  } before_;  // of the servers that kept the table on disk: they have told theirs
  Table::UpdateCounts updates_;
  Histogram policy_age_, age_;  // of drawn items: updates, and items inserted since
  double policy_version_mean_ = 0, policy_version_min_ = 0;  // of the last draw
  Drawn drawn_;                                              // scratch
  Feed feed_;                                                // the same
  std::vector<std::uint64_t> key_;
  std::vector<float> priority_;
};

}  // namespace troop
