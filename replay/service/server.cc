// ReplayServer: dispatches requests to the tables of one replay shard.
#include "replay/service/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "net/wire/codec.h"
#include "replay/service/messages.h"
#include "replay/service/table_server.h"

namespace troop {
namespace {

// First generation by Fibonacci hashing: multiples of 2^31 / φ modulo 2^31 keep apart (Knuth,
// TAOCP vol. 3, 6.4).
std::uint32_t FirstGeneration(std::uint64_t incarnation) {
  return 1 + (std::uint32_t(incarnation) * 1327217885u & 0x7FFFFFFFu);
}

// Seed offset of a table, so that tables of a run use different random numbers: FNV-1a of the
// name.
std::uint64_t StreamOf(std::string_view name) {
  std::uint64_t hash = 14695981039346656037u;
  for (const char c : name) hash = (hash ^ std::uint8_t(c)) * 1099511628211u;
  return hash;
}

// Routes each message to its table by number. Requests without a table (describe, stats) are
// answered here. All state belongs to the node's thread.
class ReplayServerImpl final : public ReplayServer {
 public:
  explicit ReplayServerImpl(const Options& options) : options_(options) {}
  Status Build();

  void Handle(Message message, Reply reply) override;
  void PeerChanged(const Origin& peer, PeerState state) override {
    for (const auto& table : tables_) table->NotePeer(peer, state);
  }
  Time Tick(Time now) override;
  void Report(Metrics* metrics) const override;
  std::string Blocked() const override;
  void Drain() override;
  bool drained() const override;

 private:
  Status Serve(const Message& message, Reply* reply);
  template <class Body, class F>
  Status With(const Message& message, const F& f);
  template <class F>
  Status For(std::uint32_t number, const F& f);
  void Describe(Reply* reply) const;

  Options options_;
  std::vector<std::unique_ptr<TableServer>> tables_;
  std::int64_t refused_ = 0;
  bool draining_ = false;
  // Replies of calls received while draining; the next process answers their retries.
  std::vector<Reply> late_;
};

// Creates all tables; with persistence this restores them and blocks on the disk.
Status ReplayServerImpl::Build() {
  if (options_.tables.empty()) return InvalidArgument("replay: no tables are configured");
  // Options that are the server's: incarnation, first generation, and a seed per table.
  for (ReplayTableOptions table : options_.tables) {
    table.table.incarnation = options_.incarnation;
    table.table.first_generation = FirstGeneration(options_.incarnation);
    table.table.seed += StreamOf(table.table.name);
    for (const auto& other : tables_) {
      if (other->name() == table.table.name) {
        return InvalidArgument("replay: two tables are named {}", table.table.name);
      }
    }
    TROOP_ASSIGN_OR_RETURN(auto made, TableServer::Make(table, options_));
    tables_.push_back(std::move(made));
  }
  return Status::Ok();
}

void ReplayServerImpl::Handle(Message message, Reply reply) {
  // While draining, replies are held back: an error would make clients treat the request as
  // refused, and without a reply they resend it to the next process.
  if (draining_) {
    late_.push_back(std::move(reply));
    return;
  }
  const Status status = Serve(message, &reply);
  // Refused requests are counted here; those refused later, while parked, by their table.
  if (!status.ok()) {
    ++refused_;
    reply.Fail(status);
  }
}

// Decodes the body and calls f(table, body).
template <class Body, class F>
Status ReplayServerImpl::With(const Message& message, const F& f) {
  TROOP_ASSIGN_OR_RETURN(const Body body, DecodeBody<Body>(message.body));
  return For(body.table, [&](TableServer& table) { return f(table, body); });
}

// Calls f(table) and then answers requests that this may have unblocked.
template <class F>
Status ReplayServerImpl::For(std::uint32_t number, const F& f) {
  if (number >= tables_.size()) {
    return InvalidArgument("replay: table number is {}, must be in [0, {}]", number,
                           tables_.size() - 1);
  }
  TableServer& table = *tables_[number];
  const Status status = f(table);
  table.Settle();
  return status;
}

Status ReplayServerImpl::Serve(const Message& message, Reply* reply) {
  switch (message.type) {
    case MessageType::kInsert:
      return With<InsertBody>(message, [&](TableServer& table, const InsertBody& body) {
        return table.HandleInsert(message, body, reply);
      });
    case MessageType::kSample:
      return With<SampleBody>(message, [&](TableServer& table, const SampleBody& body) {
        return table.HandleSample(message, body, reply);
      });
    case MessageType::kTableDelta: {
      // The table's number is inside the sample request.
      TROOP_ASSIGN_OR_RETURN(const TableDeltaBody feed, DecodeBody<TableDeltaBody>(message.body));
      return For(feed.sample.table,
                 [&](TableServer& table) { return table.HandleTableDelta(message, feed, reply); });
    }
    case MessageType::kUpdatePriorities:
      return With<UpdateBody>(message, [&](TableServer& table, const UpdateBody& body) {
        return table.HandleUpdate(message, body, reply);
      });
    case MessageType::kDictionary:
      return With<DictionaryBody>(message, [&](TableServer& table, const DictionaryBody& body) {
        return table.HandleDictionary(body, reply);
      });
    case MessageType::kReconfigure:
      return With<ReconfigureBody>(message, [&](TableServer& table, const ReconfigureBody& body) {
        return table.HandleReconfigure(body, reply);
      });
    case MessageType::kReplayCheckpoint:
      return With<TableBody>(message, [&](TableServer& table, const TableBody&) {
        return table.HandleCheckpoint(reply);
      });
    case MessageType::kDescribe:
      Describe(reply);
      return Status::Ok();
    case MessageType::kReplayStats: {
      Metrics metrics;
      Report(&metrics);
      reply->Send({.type = MessageType::kReplayStatsReply,
                   .body = EncodeBody(ReplayStatsBody{metrics.snapshot()})});
      return Status::Ok();
    }
    default:
      return InvalidArgument("replay: message type {} is not served by a replay server",
                             int(message.type));
  }
}

void ReplayServerImpl::Describe(Reply* reply) const {
  DescribeReplyBody body{.batch_size_max = std::uint32_t(options_.batch_size_max)};
  for (const auto& table : tables_) body.tables.push_back(table->Info());
  reply->Send({.type = MessageType::kDescribeReply, .body = EncodeBody(body)});
}

// The earliest of the tables' next ticks decides.
Time ReplayServerImpl::Tick(Time now) {
  Time next = kForever;
  for (const auto& table : tables_) {
    table->Tick(now);
    next = std::min(next, table->next_tick());
  }
  return next;
}

void ReplayServerImpl::Drain() {
  draining_ = true;
  for (const auto& table : tables_) table->Drain();
}

// Each table has its own journal, so draining ends when the last one has.
bool ReplayServerImpl::drained() const {
  return draining_ && std::ranges::all_of(tables_, [](const auto& t) { return t->drained(); });
}

// One reason is enough for a status line: that of the first blocked table.
std::string ReplayServerImpl::Blocked() const {
  for (const auto& table : tables_) {
    if (std::string why = table->Blocked(); !why.empty()) return why;
  }
  return {};
}

// The first table has the plain prefix, since most runs have only one.
void ReplayServerImpl::Report(Metrics* metrics) const {
  std::int64_t refused = refused_;
  for (std::size_t i = 0; i < tables_.size(); ++i) {
    const std::string prefix = i == 0 ? "replay/" : fmt::format("replay/{}/", tables_[i]->name());
    tables_[i]->Report(prefix, metrics);
    refused += tables_[i]->refused();
  }
  metrics->Gauge("replay/rejected_requests", double(refused), MetricKind::kCounter);
}

}  // namespace

// The limit of batch_size_max keeps request sizes within 32 bits.
Result<std::unique_ptr<ReplayServer>> MakeReplayServer(const ReplayServer::Options& options) {
  if (options.batch_size_max < 1 || options.batch_size_max > 1 << 20) {
    return InvalidArgument("replay: batch_size_max is {}, must be in [1, {}]",
                           options.batch_size_max, 1 << 20);
  }
  auto server = std::make_unique<ReplayServerImpl>(options);
  TROOP_RETURN_IF_ERROR(server->Build());
  return std::unique_ptr<ReplayServer>(std::move(server));
}

std::size_t PredictReplayBytes(const ReplayServer::Options& options) {
  std::size_t bytes = 0;
  for (const ReplayTableOptions& table : options.tables) bytes += Table::PredictBytes(table.table);
  return bytes;
}

}  // namespace troop
