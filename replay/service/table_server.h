#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/metrics/metrics.h"
#include "net/network.h"
#include "replay/persistence/restore.h"
#include "replay/service/messages.h"
#include "replay/service/request_queue.h"
#include "replay/service/server.h"
#include "replay/serving/sampler_clients.h"
#include "replay/serving/table_dictionaries.h"
#include "replay/serving/table_durability.h"
#include "replay/serving/table_metrics.h"
#include "replay/table/rate_limiter.h"
#include "replay/table/table.h"

namespace troop {

// One table of a ReplayServer: checks its requests and decides which of them must wait. Owner: the
// server, on the node's thread.
//
// Requests that must wait are parked in a RequestQueue. Inserts are answered in order of arrival,
// and so are samples that are charged to the rate limiter; samples without a charge wait for no
// other request. SamplerClients has the reservations, TableDurability the replies that wait for the
// disk, TableDictionaries the codec's dictionaries.
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
  Status HandleCheckpoint(Reply* reply) { return durability_.Checkpoint(reply); }

  void Settle() {  // after a call: answers all requests that no longer wait
    called_ = true;
    SettleAll();
  }
  // Notes the state of a client's connection. A client that stays away loses what it reserved, and
  // its parked requests are refused.
  void NotePeer(const Origin& origin, PeerState state) { clients_.NotePeer(origin, state, now_); }
  // Periodic work: expired clients, parked requests, dictionary training, the journal.
  void Tick(Time now);
  Time next_tick() const { return next_tick_; }  // latest time of the next Tick
  void Drain();                                  // no more calls will arrive
  bool drained() const { return durability_.drained(); }
  // Reports metrics. `prefix`: "replay/" for the first table, "replay/<name>/" for the others.
  void Report(std::string_view prefix, Metrics* metrics) const;
  TableInfo Info() const;
  // Reason why inserts are blocked or unacknowledged (disk or memory); empty if they are not.
  std::string Blocked() const;
  const std::string& name() const { return options_.table.name; }
  std::int64_t refused() const { return metrics_.refused(); }

 private:
  using ParkedInsert = RequestQueue::ParkedInsert;
  using ParkedSample = RequestQueue::ParkedSample;

  TableServer(const ReplayTableOptions& options, const ReplayServer::Options& server, Table table,
              RateLimiter limiter);
  Status Keep(RestoredTable* restored);
  std::string Counts() const;  // the limiter's counts, stored in snapshots and read by Keep
  Status AddDictionaries();
  void AddDictionary(std::shared_ptr<const FrameDictionary> dictionary);
  void PollJournal(Time now);
  Status CheckSample(const SampleBody& body) const;
  Status Park(const Message& message, ParkedSample parked, Reply* reply);
  Status Update(const Message& message, std::uint32_t updates);
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
  void ObservePolicyVersion(std::uint64_t version);
  // Identifies this incarnation of the table in table deltas; never 0.
  std::uint64_t TableIncarnation() const { return options_.table.incarnation + 1; }

  ReplayTableOptions options_;
  std::int64_t batch_size_max_;
  std::function<bool(std::uint64_t)> version_is_issued_;
  Table table_;
  TableDurability durability_;
  RateLimiter limiter_;
  SamplerClients clients_{&limiter_};
  TableDictionaries dictionaries_;
  RequestQueue queue_;
  TableMetrics metrics_;
  bool called_ = false;    // a request arrived since the last Tick
  bool ended_ = false;     // draining: requests are no longer answered
  bool draining_ = false;  // the last sampler request announced the end of experience
  Status insert_error_;    // error of the last insert, if memory was exhausted
  std::optional<Time> now_;
  Time next_tick_{};
  // Scratch.
  EncodedBatch drawn_;
  TableDelta delta_;
  std::vector<std::uint64_t> key_;
  std::vector<float> priority_;
};

}  // namespace troop
