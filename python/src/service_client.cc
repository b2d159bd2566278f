// Client of a replay service: hands pushes and batches between Python threads and the host's
// thread.

#include "python/src/service_client.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <random>

#include "net/security/keys.h"
#include "net/wire/codec.h"

namespace troop {
namespace {

// A unique origin per writer or sampler, so that none replaces another at the server.
Origin NewOrigin(const KeyRing* keys) {
  std::random_device random;
  // The index is 31 random bits; the clock in microseconds makes the incarnation grow.
  return {.role = keys == nullptr ? Role::kTool : keys->role,
          .index = std::int32_t(random() & 0x7FFFFFFFu),
          .incarnation = std::uint64_t(WallSeconds() * 1e6)};
}

// Properties that shards of one replay must share. Sizes and numbers of items may differ.
bool SameTable(const TableInfo& a, const TableInfo& b) {
  const auto x = ParseTableInfo(a), y = ParseTableInfo(b);
  return x.ok() && y.ok() && x->name == y->name && x->trajectory == y->trajectory &&
         x->view == y->view && x->codec == y->codec;
}

}  // namespace

// The writer lives on the host's thread; one push waits here until the writer accepts it.
class ServiceClient::Sink final : public ExperienceSink {
 public:
  Sink(std::shared_ptr<Host> host, std::unique_ptr<ReplayWriter> writer)
      : host_(std::move(host)), writer_(std::move(writer)) {
    id_ = host_->Add([this](Time now) { return Turn(now); });
  }
  // Turns end first; then the writer is destroyed on the thread that owns its channels.
  ~Sink() override {
    host_->Remove(id_);
    host_->Run([this](Network*) { writer_.reset(); });
  }

  Status Push(std::vector<Chunk>* chunks, std::vector<Item>* items, Time deadline) override {
    // The lock is free between this wait and the store below: a sink has one owner at a time, so no
    // other push can come between.
    TROOP_RETURN_IF_ERROR(WaitFor(deadline, [this] { return !waiting_; }));
    // The host's thread takes the push in its next turn.
    const std::lock_guard lock(mutex_);
    chunks_ = std::move(*chunks);
    items_ = std::move(*items);
    waiting_ = true;
    idle_ = false;
    host_->Wake();
    return Status::Ok();
  }
  // Waits for acknowledgements: idle_ is false while a push waits or is unacknowledged.
  Status Flush(Time deadline) override {
    return WaitFor(deadline, [this] { return idle_; });
  }

 private:
  // An error of the writer is final and ends every wait.
  template <class Condition>
  Status WaitFor(Time deadline, Condition holds) {
    const SystemClock clock;
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::max(deadline - clock.Now(), Duration(0)),
                      [&] { return !error_.ok() || holds(); });
    if (!error_.ok()) return error_;
    if (holds()) return Status::Ok();
    return DeadlineExceeded("the replay accepts no more: {} pushes are not acknowledged", unacked_);
  }

  // Runs on the host's thread. Encodes without the lock.
  bool Turn(Time now) {
    writer_->Poll(now);
    std::vector<Chunk> chunks;
    std::vector<Item> items;
    {
      const std::lock_guard lock(mutex_);
      if (waiting_ && writer_->CanPush()) {
        chunks = std::move(chunks_);
        items = std::move(items_);
        waiting_ = false;
        changed_.notify_all();
      }
    }
    const bool pushes = !chunks.empty();
    const Status status =
        pushes ? writer_->Push(std::move(chunks), std::move(items)) : writer_->error();
    const std::lock_guard lock(mutex_);
    // The first error is kept; later ones are its consequences.
    if (error_.ok()) error_ = status;
    unacked_ = writer_->unacked_pushes();
    const bool idle = !waiting_ && unacked_ == 0;
    if (idle != idle_ || !error_.ok()) changed_.notify_all();
    idle_ = idle;
    // After a push the writer may have room for another one at once.
    return pushes;
  }

  const std::shared_ptr<Host> host_;
  std::unique_ptr<ReplayWriter> writer_;  // the host's thread's
  std::uint64_t id_ = 0;
  // Protects the members below.
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Chunk> chunks_;
  std::vector<Item> items_;
  bool waiting_ = false;  // chunks_ and items_ have a push
  bool idle_ = true;      // no push waits or is unacknowledged
  int unacked_ = 0;
  Status error_;
};

// The sampler lives on the host's thread, which decodes a few batches ahead.
class ServiceClient::Source final : public BatchSource {
 public:
  Source(std::shared_ptr<Host> host, std::unique_ptr<ReplaySampler> sampler, std::string table,
         const KeyCode& keys)
      : host_(std::move(host)),
        table_(std::move(table)),
        keys_(keys),
        sampler_(std::move(sampler)) {
    id_ = host_->Add([this](Time now) { return Turn(now); });
  }
  ~Source() override {
    host_->Remove(id_);
    host_->Run([this](Network*) { sampler_.reset(); });
  }

  Result<BatchSlot> Sample(Time deadline) override {
    const SystemClock clock;
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::max(deadline - clock.Now(), Duration(0)),
                      [this] { return !ready_.empty() || !error_.ok(); });
    // A ready batch is returned even after an error or a timeout.
    if (!ready_.empty()) {
      BatchSlot batch = std::move(ready_.front());
      ready_.pop_front();
      // There is room for another batch, which the host's thread decodes while Python computes.
      host_->Wake();
      return batch;
    }
    if (!error_.ok()) return error_;
    // Causes of a timeout with different remedies: dead shards, or a table that may not be sampled.
    if (alive_ == 0) {
      return DeadlineExceeded("table {}: no batch in time: no shard of the replay answers", table_);
    }
    return DeadlineExceeded(
        "table {}: no batch in time: too few items, or its rate limiter waits for inserts", table_);
  }

  Status Update(std::span<const std::uint64_t> key, std::span<const float> priority) override {
    if (key.size() != priority.size()) {
      return InvalidArgument("{} keys and {} priorities; give one priority per key", key.size(),
                             priority.size());
    }
    const std::lock_guard lock(mutex_);
    // Updates are queued without blocking; the limit detects a dead replay.
    if (key_.size() > kUpdatesMax) {
      return ResourceExhausted("{} priorities are waiting; check that the replay answers",
                               key_.size());
    }
    for (const std::uint64_t k : key) key_.push_back(keys_.Unpack(k));
    priority_.insert(priority_.end(), priority.begin(), priority.end());
    host_->Wake();
    return Status::Ok();
  }

 private:
  static constexpr std::size_t kAhead = 2;  // decoded batches; the server counts them as sampled
  static constexpr std::size_t kUpdatesMax = 1 << 24;  // bounds memory while the replay is away

  // Runs on the host's thread. Decodes without the lock.
  bool Turn(Time now) {
    bool wants;
    {
      const std::lock_guard lock(mutex_);
      if (!error_.ok()) return false;
      // Updates are passed on even if no batch is needed.
      if (!key_.empty()) sampler_->UpdatePriorities(key_, priority_);
      key_.clear();
      priority_.clear();
      wants = ready_.size() < kAhead;
    }
    sampler_->Poll(now);
    // Further replies stay encoded in the sampler, so kAhead bounds the memory of decoded batches.
    if (!wants) return false;
    auto next = sampler_->Next();
    BatchSlot batch;
    if (next.ok() && *next) {
      batch = pool_.Get();
      static_cast<SampleBatch&>(*batch) = std::move(**next);
      batch->SetCodes(keys_);
    }
    const std::lock_guard lock(mutex_);
    alive_ = sampler_->shards_alive();
    if (!next.ok()) {
      error_ = next.status();
    } else if (batch) {
      ready_.push_back(std::move(batch));
    } else {
      return false;
    }
    changed_.notify_all();
    return error_.ok();
  }

  const std::shared_ptr<Host> host_;
  const std::string table_;
  const KeyCode keys_;
  // Kept for reuse: the batches ahead, the caller's, and the one being decoded.
  BatchPool pool_{kAhead + 2};
  std::unique_ptr<ReplaySampler> sampler_;  // the host's thread's
  std::uint64_t id_ = 0;
  // Protects the members below.
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<BatchSlot> ready_;
  std::vector<ItemKey> key_;  // updates that the sampler has not taken yet
  std::vector<float> priority_;
  int alive_ = 0;
  Status error_;
};

Result<std::unique_ptr<ServiceClient>> ServiceClient::Make(std::vector<std::string> endpoints,
                                                           const std::string& key, Time deadline) {
  if (endpoints.empty())
    return InvalidArgument("no endpoints given; name at least one replay shard");
  TROOP_ASSIGN_OR_RETURN(std::shared_ptr<Host> host, Host::Make(key));
  std::unique_ptr<ServiceClient> client(new ServiceClient(std::move(host), std::move(endpoints)));
  // A client with an endpoint that does not answer is never returned.
  TROOP_RETURN_IF_ERROR(client->Refresh(deadline));
  return client;
}

// Queries all shards at once. The tables are replaced only if all shards agree on them.
Status ServiceClient::Refresh(Time deadline) {
  TROOP_ASSIGN_OR_RETURN(const std::vector<Message> answers,
                         CallAll({.type = MessageType::kDescribe}, deadline));
  std::vector<TableInfo> tables;
  for (std::size_t k = 0; k < answers.size(); ++k) {
    TROOP_ASSIGN_OR_RETURN(const auto body, DecodeBody<DescribeReplyBody>(answers[k].body));
    if (k == 0) {
      for (const TableInfo& info : body.tables)
        TROOP_RETURN_IF_ERROR(ParseTableInfo(info).status());
      // The first shard defines the tables; the others must match.
      tables = body.tables;
      continue;
    }
    if (!std::ranges::equal(tables, body.tables, SameTable)) {
      return InvalidArgument("{} and {} have different tables; they are not shards of one replay",
                             endpoints_[0], endpoints_[k]);
    }
    for (std::size_t t = 0; t < tables.size(); ++t) tables[t].items += body.tables[t].items;
  }
  const std::lock_guard lock(mutex_);
  tables_ = std::move(tables);
  return Status::Ok();
}

std::vector<TableInfo> ServiceClient::tables() const {
  const std::lock_guard lock(mutex_);
  return tables_;
}

// The number of a table is its position in the description, which is equal on all shards.
Result<ServiceClient::Described> ServiceClient::Find(const std::string& table) const {
  const std::lock_guard lock(mutex_);
  std::string known;
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    if (tables_[t].name == table) {
      TROOP_ASSIGN_OR_RETURN(TableDescription description, ParseTableInfo(tables_[t]));
      return Described{std::uint32_t(t), tables_[t].capacity_items, std::move(description)};
    }
    known += (known.empty() ? "" : ", ") + tables_[t].name;
  }
  return NotFound("the replay has no table {}; it has {}", table, known);
}

Result<std::vector<std::unique_ptr<Channel>>> ServiceClient::Connect(int window) {
  // One channel per shard; the window limits calls in flight.
  const ChannelOptions options{.origin = NewOrigin(host_->keys()), .window = window};
  std::vector<std::unique_ptr<Channel>> channels;
  Status status;
  // Channels belong to the host's thread. After one invalid endpoint none stays open.
  host_->Run([&](Network* network) {
    for (const std::string& endpoint : endpoints_) {
      auto channel = network->Connect(endpoint, options);
      if (!channel.ok()) {
        status = channel.status();
        channels.clear();
        return;
      }
      channels.push_back(std::move(channel).value());
    }
  });
  if (!status.ok()) return status;
  return channels;
}

Result<std::unique_ptr<ExperienceSink>> ServiceClient::MakeSink(const Described& table,
                                                                int window) {
  if (window < 1 || window > 64)
    return InvalidArgument("window is {}, must be 1 to 64 pushes", window);
  TROOP_ASSIGN_OR_RETURN(auto channels, Connect(window + 1));
  const ReplayWriter::Options options{
      .window = window, .table = table.number, .codec = table.description.codec};
  std::unique_ptr<ReplayWriter> writer;
  host_->Run([&](Network*) {
    writer = MakeReplayWriter(std::move(channels), table.description.trajectory, options);
  });
  return std::unique_ptr<ExperienceSink>(std::make_unique<Sink>(host_, std::move(writer)));
}

Result<std::unique_ptr<BatchSource>> ServiceClient::MakeSource(const Described& table,
                                                               const SamplerOptions& options) {
  TROOP_RETURN_IF_ERROR(CheckSampler(options.batch_size, options.beta, options.decode_threads));
  if (options.prefetch < 1 || options.prefetch > 64) {
    return InvalidArgument("prefetch is {}, must be 1 to 64 requests", options.prefetch);
  }
  TROOP_ASSIGN_OR_RETURN(const KeyCode keys,
                         KeyCode::Make(endpoints_.size(), table.capacity_items));
  // Besides requests for samples: priorities, totals, dictionaries.
  TROOP_ASSIGN_OR_RETURN(auto channels, Connect(options.prefetch + 4));
  std::random_device random;
  const ReplaySampler::Options sampler_options{.batch_size = options.batch_size,
                                               .prefetch = options.prefetch,
                                               .beta = options.beta,
                                               .table = table.number,
                                               .view = table.description.view,
                                               .codec = table.description.codec,
                                               .decode_threads = options.decode_threads,
                                               .seed = random()};
  std::unique_ptr<ReplaySampler> sampler;
  host_->Run([&](Network*) {
    sampler = MakeReplaySampler(std::move(channels), table.description.trajectory, sampler_options);
  });
  return std::unique_ptr<BatchSource>(
      std::make_unique<Source>(host_, std::move(sampler), table.description.name, keys));
}

// Steps: connect, send on the host's thread, poll there in each turn, wait here, close.
Result<std::vector<Message>> ServiceClient::CallAll(const Message& message, Time deadline) {
  TROOP_ASSIGN_OR_RETURN(auto channels, Connect(2));
  std::vector<std::optional<Result<Message>>> answers(channels.size());
  std::vector<Ticket> tickets(channels.size());
  host_->Run([&](Network*) {
    for (std::size_t k = 0; k < channels.size(); ++k) {
      Message copy = message;
      const auto ticket = channels[k]->Send(copy, deadline);
      if (ticket.ok()) tickets[k] = *ticket;
      // A call that could not be sent has its answer already; otherwise the wait would not end.
      if (!ticket.ok()) answers[k] = ticket.status();
    }
  });
  // Local to the call: the step below runs on the host's thread.
  std::mutex mutex;
  std::condition_variable all;
  const auto complete = [&] { return std::ranges::all_of(answers, [](auto& a) { return !!a; }); };
  const std::uint64_t id = host_->Add([&](Time) {
    const std::lock_guard lock(mutex);
    for (std::size_t k = 0; k < channels.size(); ++k) {
      if (!answers[k]) answers[k] = channels[k]->Poll(tickets[k]);
    }
    if (complete()) all.notify_all();
    return false;
  });
  {
    std::unique_lock lock(mutex);
    all.wait(lock, complete);  // the channels enforce the deadline
  }
  // After Remove no turn refers to the local variables of this call.
  host_->Remove(id);
  host_->Run([&](Network*) { channels.clear(); });
  std::vector<Message> messages;
  for (std::size_t k = 0; k < answers.size(); ++k) {
    // One failed shard fails the call; its endpoint is named.
    if (!answers[k]->ok()) return answers[k]->status().WithContext(endpoints_[k]);
    messages.push_back(std::move(**answers[k]));
  }
  return messages;
}

// Names of shard 0 have no prefix, so a service with one shard has plain names.
Result<std::vector<std::pair<std::string, double>>> ServiceClient::Stats(Time deadline) {
  TROOP_ASSIGN_OR_RETURN(const auto answers,
                         CallAll({.type = MessageType::kReplayStats}, deadline));
  std::vector<std::pair<std::string, double>> stats;
  for (std::size_t k = 0; k < answers.size(); ++k) {
    TROOP_ASSIGN_OR_RETURN(const auto body, DecodeBody<ReplayStatsBody>(answers[k].body));
    for (const auto& [name, value] : body.metrics) {
      stats.emplace_back(k == 0 ? name : fmt::format("shard{}/{}", k, name), value.value);
    }
  }
  return stats;
}

// Not atomic: after an error, some shards may have the new limits.
Status ServiceClient::Reconfigure(const ReconfigureBody& body, Time deadline) {
  return CallAll({.type = MessageType::kReconfigure, .body = EncodeBody(body)}, deadline).status();
}

}  // namespace troop
