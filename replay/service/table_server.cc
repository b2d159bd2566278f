// TableServer: requests of one table, the queues of parked ones, and their replies.
#include "replay/service/table_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/base/log.h"
#include "net/wire/codec.h"

namespace troop {
namespace {

constexpr std::uint32_t kBatchesMax = 64;                       // per request
constexpr std::size_t kReplyBytesMax = std::size_t{192} << 20;  // below the limit of one message
constexpr double kManyItems = 1e12;                             // credit without a ratio limit
constexpr std::int64_t kFeedItemsMax = 1 << 16;                 // per reply
// Decoded frames per reply; the last item may exceed it.
constexpr std::size_t kFeedBytes = std::size_t{16} << 20;
constexpr std::size_t kDictionariesMax = 16;  // a decoder's 256 hold those of 16 shards
// A client that is disconnected for this long is removed: longer than a restart or a long pause.
constexpr Duration kForgetAfter = Seconds(60);

// Maximum number of frames of one sampled item.
std::size_t FramesPerItem(const ViewSpec& view) {
  return std::size_t(FramesOf(view, view.lead_max(), view.length_max).count());
}

// The limiter's counts in a snapshot, and the table's count of items at that time.
struct LimiterCounts {
  std::int64_t inserts = 0, samples = 0;
  std::uint64_t items = 0;
  template <class A>
  void serialize(A& a) {
    a(inserts, samples, items);
  }
};

}  // namespace

// Without storage the table starts empty; with it, it is restored from its journal.
Result<std::unique_ptr<TableServer>> TableServer::Make(const ReplayTableOptions& options,
                                                       const ReplayServer::Options& server) {
  TROOP_ASSIGN_OR_RETURN(RateLimiter limiter,
                         RateLimiter::Make({.samples_per_insert = options.samples_per_insert,
                                            .samples_per_insert_tolerance_rate =
                                                options.samples_per_insert_tolerance_rate,
                                            .min_items = options.table.min_items}));
  if (server.storage == nullptr) {
    TROOP_ASSIGN_OR_RETURN(Table table, Table::Make(options.table));
    std::unique_ptr<TableServer> made(new TableServer(options, server, std::move(table), limiter));
    TROOP_RETURN_IF_ERROR(made->AddDictionaries());
    return made;
  }
  Journal::Options journal = server.journal;
  journal.folder += "/" + options.table.name;
  TROOP_ASSIGN_OR_RETURN(RestoredTable restored,
                         RestoreTable(server.storage, server.executor, journal, options.table));
  std::unique_ptr<TableServer> made(
      new TableServer(options, server, std::move(restored.table), limiter));
  TROOP_RETURN_IF_ERROR(made->Keep(&restored));
  TROOP_RETURN_IF_ERROR(made->AddDictionaries());
  return made;
}

TableServer::TableServer(const ReplayTableOptions& options, const ReplayServer::Options& server,
                         Table table, RateLimiter limiter)
    : options_(options),
      batch_size_max_(server.batch_size_max),
      ack_on_disk_(server.ack_on_disk && server.storage != nullptr),
      version_is_issued_(server.version_is_issued),
      table_(std::move(table)),
      limiter_(limiter),
      trainer_(options.table.codec, options.table.trajectory.observation.bytes(), server.executor) {
}

// Takes over a restored table. The limiter continues from its counts, without a burst; items that
// the log has from after the snapshot count as inserts.
Status TableServer::Keep(RestoredTable* restored) {
  journal_ = std::move(restored->journal);
  for (const auto& dictionary : restored->dictionaries) {
    dictionaries_.emplace_back(DictionaryId(*dictionary), DictionaryBytes(*dictionary));
    trainer_.Finish();
  }
  if (!restored->restored) return Status::Ok();
  LimiterCounts counts;
  if (!restored->owner.empty()) {
    TROOP_ASSIGN_OR_RETURN(counts, DecodeBody<LimiterCounts>(restored->owner));
  }
  if (counts.inserts < 0 || counts.samples < 0) {
    return DataLoss("replay: the snapshot of table {} has negative counts: {} inserts, {} samples",
                    name(), counts.inserts, counts.samples);
  }
  const std::uint64_t items = table_.counters().inserted;
  const std::uint64_t later = items - std::min(items, counts.items);
  limiter_.Restore(counts.inserts + std::int64_t(later), counts.samples, table_.size());
  before_ = {limiter_.inserts(), limiter_.samples(), table_.evicted()};
  return Status::Ok();
}

// Stored in each snapshot trailer.
std::string TableServer::Counts() const {
  return EncodeBody(
      LimiterCounts{limiter_.inserts(), limiter_.samples(), table_.counters().inserted});
}

// Adds the configured dictionaries that the log does not have yet.
Status TableServer::AddDictionaries() {
  for (const Buffer& bytes : options_.dictionaries) {
    const auto dictionary = MakeFrameDictionary(bytes);
    if (dictionary == nullptr || options_.table.codec == Codec::kNone) {
      return InvalidArgument("replay: table {}: {} bytes are not a dictionary for codec {}", name(),
                             bytes.size(), CodecName(options_.table.codec));
    }
    const auto known = [id = DictionaryId(*dictionary)](const auto& d) { return d.first == id; };
    if (std::ranges::none_of(dictionaries_, known)) AddDictionary(dictionary);
    trainer_.Finish();
  }
  return Status::Ok();
}

// Makes a dictionary known to the table, the journal and the clients.
void TableServer::AddDictionary(const std::shared_ptr<const FrameDictionary>& dictionary) {
  const std::uint32_t id = DictionaryId(*dictionary);
  table_.AddDictionary(dictionary);
  if (journal_) journal_->AddDictionary(id, DictionaryBytes(*dictionary));
  dictionaries_.emplace_back(id, DictionaryBytes(*dictionary));
  if (dictionaries_.size() > kDictionariesMax) dictionaries_.erase(dictionaries_.begin());
}

// ---- requests -----------------------------------------------------------------------------------

Status TableServer::HandleInsert(const Message& message, const InsertBody& body, Reply* reply) {
  TROOP_ASSIGN_OR_RETURN(EncodedInsert call, ParseInsert(message, body, options_.table.trajectory,
                                                         options_.table.codec));
  if (options_.table.codec != Codec::kNone) TROOP_RETURN_IF_ERROR(CheckDictionaries(call));
  inserts_.push_back({std::move(call), std::move(*reply)});
  return Status::Ok();
}

// Distinguishes an unknown dictionary from damage. A writer resends frames encoded for an earlier
// incarnation of this table without the dictionary.
Status TableServer::CheckDictionaries(const EncodedInsert& call) const {
  for (const EncodedChunk& chunk : call.chunks) {
    std::size_t offset = 0;
    for (std::size_t i = 0; i < chunk.frames; ++i) {
      std::uint32_t bytes;
      std::memcpy(&bytes, chunk.frame_bytes.data() + i * sizeof bytes, sizeof bytes);
      if (bytes > chunk.observation.size() - offset) break;  // Table::Insert reports it
      const std::uint32_t id = NeedsDictionary({chunk.observation.data() + offset, bytes});
      const auto known = [id](const auto& dictionary) { return dictionary.first == id; };
      if (id != 0 && std::ranges::none_of(dictionaries_, known)) {
        return NotFound("insert: table {} has no dictionary {}", name(), id);
      }
      offset += bytes;
    }
  }
  return Status::Ok();
}

Status TableServer::HandleSample(const Message& message, const SampleBody& body, Reply* reply) {
  return Park(message, {.body = body, .origin = message.origin}, reply);
}

// Only tables with Options::feed record what a delta needs.
Status TableServer::HandleTableDelta(const Message& message, const TableDeltaBody& body,
                                     Reply* reply) {
  if (!options_.table.feed) {
    return FailedPrecondition("feed: table {} has no replicas; set replay.placement = \"gpu\"",
                              name());
  }
  if (body.sample.batch_size != 0 || body.start > body.next || body.items_max < 1) {
    return InvalidArgument(
        "feed: batch_size is {}, next {}, start {}, items_max {}; must be batch_size = 0, start <= "
        "next, items_max >= 1",
        body.sample.batch_size, body.next, body.start, body.items_max);
  }
  return Park(message, {.body = body.sample, .origin = message.origin, .feed = body}, reply);
}

// Common part of sample and feed requests: apply what they carry, then park them. Settle answers
// those that need not wait.
Status TableServer::Park(const Message& message, ParkedSample parked, Reply* reply) {
  const SampleBody body = parked.body;
  TROOP_RETURN_IF_ERROR(CheckSample(body));
  TROOP_RETURN_IF_ERROR(Update(message, body.updates));
  NoteClient(message.origin, body.taken);
  ObservePolicyVersion(body.policy_version);
  parked.reply = std::move(*reply);
  samples_.push_back(std::move(parked));
  SetDrain(body.drain, message.origin);
  return Status::Ok();
}

// Ignores versions that no learner can have yet: one would make all items too old (max_policy_age)
// permanently.
void TableServer::ObservePolicyVersion(std::uint64_t version) {
  if (version == 0 || (version_is_issued_ && !version_is_issued_(version >> 32))) return;
  table_.ObservePolicyVersion(version);
}

// Priorities without a request; also carries what was taken, a drain, and a waiver of parked
// samples.
Status TableServer::HandleUpdate(const Message& message, const UpdateBody& body, Reply* reply) {
  TROOP_RETURN_IF_ERROR(Update(message, body.updates));
  NoteClient(message.origin, body.taken);
  ObservePolicyVersion(body.policy_version);
  if (body.drain) SetDrain(true, message.origin);
  for (ParkedSample& parked : samples_) {
    if (parked.origin.role == message.origin.role && parked.origin.index == message.origin.index) {
      parked.waived = parked.waived || body.waive;
    }
  }
  reply->Send({.type = MessageType::kUpdatePrioritiesReply});
  return Status::Ok();
}

// Writers and samplers fetch dictionaries by id.
Status TableServer::HandleDictionary(const DictionaryBody& body, Reply* reply) {
  for (const auto& [id, bytes] : dictionaries_) {
    if (id != body.id) continue;
    Message message{.type = MessageType::kDictionaryReply};
    message.parts.push_back(bytes);
    reply->Send(std::move(message));
    return Status::Ok();
  }
  return NotFound("replay: table {} has no dictionary {}", name(), body.id);
}

// Changes the limiter at once; parked requests are settled after the call.
Status TableServer::HandleReconfigure(const ReconfigureBody& body, Reply* reply) {
  if (body.min_items > options_.table.capacity_items) {
    return InvalidArgument("replay: min_items is {}, must be at most capacity_items ({})",
                           body.min_items, options_.table.capacity_items);
  }
  TROOP_RETURN_IF_ERROR(limiter_.Reconfigure(
      {.samples_per_insert = body.samples_per_insert,
       .samples_per_insert_tolerance_rate = body.samples_per_insert_tolerance_rate,
       .min_items = body.min_items},
      table_.size()));
  options_.samples_per_insert = body.samples_per_insert;
  options_.samples_per_insert_tolerance_rate = body.samples_per_insert_tolerance_rate;
  options_.table.min_items = body.min_items;
  reply->Send({.type = MessageType::kReconfigureReply});
  return Status::Ok();
}

Status TableServer::HandleCheckpoint(Reply* reply) {
  if (!journal_) {
    return FailedPrecondition("replay: table {} is in memory only; set replay.persist", name());
  }
  // A round in progress may have begun before this call; the one after it certainly did not.
  const Journal::Stats& stats = journal_->stats();
  checkpoints_.push_back({stats.rounds + 2, stats.snapshot_failures + 1, std::move(*reply)});
  return Status::Ok();
}

// Bounds what a request may make the server allocate.
Status TableServer::CheckSample(const SampleBody& body) const {
  const auto charge_max = 4 * std::uint64_t(batch_size_max_) * kBatchesMax;
  if (body.charge > charge_max || (body.charge > 0 && body.batches == 0)) {
    return InvalidArgument("sample: invalid charge of {} items for {} batches", body.charge,
                           body.batches);
  }
  if (body.batch_size == 0 && body.batches <= kBatchesMax) return Status::Ok();
  if (body.batch_size < 1 || body.batch_size > batch_size_max_) {
    return InvalidArgument("sample: batch size is {}, must be in [1, {}]", body.batch_size,
                           batch_size_max_);
  }
  if (body.batches < 1 || body.batches > kBatchesMax) {
    return InvalidArgument("sample: {} batches in one request, must be in [1, {}]", body.batches,
                           kBatchesMax);
  }
  const Table::Options& table = options_.table;
  // Lower bound of the reply's size: encoded frames count as 8 bytes. DrawBlocks checks the actual
  // size.
  const std::size_t frame = table.codec == Codec::kNone ? table.trajectory.observation.bytes() : 8;
  const std::size_t item = 64 + FramesPerItem(table.view) * frame +
                           std::size_t(table.view.steps()) * (8 + table.trajectory.action.bytes());
  const std::size_t bytes = item * body.batch_size * body.batches;
  if (bytes > kReplyBytesMax) {
    return InvalidArgument(
        "sample: {} batches of {} are {} MiB, must be at most {} MiB; request fewer", body.batches,
        body.batch_size, bytes >> 20, kReplyBytesMax >> 20);
  }
  return Status::Ok();
}

// Applies the priorities that a request carries.
Status TableServer::Update(const Message& message, std::uint32_t updates) {
  TROOP_RETURN_IF_ERROR(ParseUpdates(message, updates, &key_, &priority_));
  if (updates == 0) return Status::Ok();
  const Table::UpdateCounts counts = table_.Update(key_, priority_);
  updates_.applied += counts.applied;
  updates_.stale += counts.stale;
  updates_.refused += counts.refused;
  return Status::Ok();
}

// Notes what a client has taken. What its earlier incarnation had reserved will never be taken.
void TableServer::NoteClient(const Origin& origin, std::uint64_t taken) {
  Client& client = clients_[{origin.role, origin.index}];
  if (origin.incarnation > client.incarnation) {
    limiter_.Release(std::int64_t(client.reserved - client.delivered));
    client = {.incarnation = origin.incarnation};
  }
  if (origin.incarnation < client.incarnation) return;
  client.gone.reset();
  // More than was reserved refers to an earlier incarnation of this shard.
  const std::uint64_t delivered = std::clamp(taken, client.delivered, client.reserved);
  limiter_.Deliver(std::int64_t(delivered - client.delivered));
  client.delivered = delivered;
}

void TableServer::NotePeer(const Origin& origin, PeerState state) {
  const auto it = clients_.find({origin.role, origin.index});
  if (it == clients_.end()) return;
  std::optional<Time>& gone = it->second.gone;
  gone = state == PeerState::kUp ? std::nullopt : gone ? gone : now_;
}

// Removes clients that stay away, and releases what they reserved. A tool has a new index in each
// run, so no newer incarnation would release it. A client that was only disconnected retries.
void TableServer::ForgetClients(Time now) {
  for (auto it = clients_.begin(); it != clients_.end();) {
    const auto& [who, client] = *it;
    if (!client.gone || now - *client.gone <= kForgetAfter) {
      ++it;
      continue;
    }
    limiter_.Release(std::int64_t(client.reserved - client.delivered));
    std::erase_if(samples_, [who = who](ParkedSample& parked) {
      if (std::pair(parked.origin.role, parked.origin.index) != who) return false;
      parked.reply.Fail(Unavailable("replay: the caller is disconnected"));
      return true;
    });
    it = clients_.erase(it);
  }
}

// True if a newer incarnation of the caller has sent a request.
bool TableServer::Fenced(const Origin& origin) const {
  const auto it = clients_.find({origin.role, origin.index});
  return it != clients_.end() && origin.incarnation < it->second.incarnation;
}

// A draining caller's parked requests do not wait either: Settle refuses them in order.
void TableServer::SetDrain(bool drain, const Origin& origin) {
  draining_ = drain;
  if (!drain) return;
  for (ParkedSample& parked : samples_) {
    if (parked.origin.role == origin.role && parked.origin.index == origin.index) {
      parked.body.drain = true;
    }
  }
}

// ---- admission ----------------------------------------------------------------------------------

// True if sampling is possible at all, apart from the ratio.
bool TableServer::Ready() const {
  return table_.can_draw() && table_.size() >= options_.table.min_items;
}

// Inserts bypass the limiter if nothing can be sampled (all priorities 0), since only they can
// change that, and when draining, since no samples will follow the last experience.
bool TableServer::CanInsert() const {
  if (journal_ && journal_->behind()) return false;
  return draining_ || !table_.can_draw() || limiter_.CanInsert(table_.size());
}

// Number of items that may be charged before samples must wait.
double TableServer::Credit() const {
  return options_.samples_per_insert == 0 ? kManyItems : limiter_.lead() - limiter_.lower();
}

// Requests without a charge, with a waived one, or already begun only need items.
bool TableServer::CanSample(const ParkedSample& parked) const {
  const SampleBody& body = parked.body;
  if (body.batches == 0) return true;
  if (body.charge == 0 || parked.waived || parked.batches > 0 || parked.rows_open > 0) {
    return Ready();
  }
  return table_.can_draw() && limiter_.CanSample(table_.size());
}

// Answers all requests that need not wait, alternating between the sides so that neither runs
// ahead. Terminates: each iteration removes a call from a queue.
void TableServer::SettleAll() {
  for (bool moved = true; moved;) {
    moved = SettleInsert();
    moved |= SettleSample();
  }
  NoteWaits();
}

// Reports the waiting sides to the limiter, from the last Tick on.
void TableServer::NoteWaits() {
  if (now_) limiter_.Note(*now_, !inserts_.empty(), !samples_.empty(), table_.size());
}

// Answers the first insert if the limiter admits it.
bool TableServer::SettleInsert() {
  if (inserts_.empty() || !CanInsert()) return false;
  ParkedInsert parked = std::move(inserts_.front());
  inserts_.pop_front();
  Insert(std::move(parked));
  return true;
}

// Answers the first sample request that need not wait. Charged ones stay in order, because the
// limiter's answer is the same for all.
bool TableServer::SettleSample() {
  for (auto it = samples_.begin(); it != samples_.end(); ++it) {
    if (!it->body.drain && !it->waived && !CanSample(*it)) continue;
    if (!Sample(&*it)) continue;
    samples_.erase(it);
    return true;
  }
  return false;
}

// ---- inserts ------------------------------------------------------------------------------------

// Inserts a parked call and acknowledges it, now or when it is durable.
void TableServer::Insert(ParkedInsert parked) {
  const auto counts = table_.Insert(parked.call);
  // Exhausted memory is reported in Blocked until an insert succeeds.
  const bool no_memory = counts.status().code() == Code::kResourceExhausted;
  insert_error_ = no_memory ? counts.status() : Status::Ok();
  if (!counts.ok()) {
    ++refused_;
    return parked.reply.Fail(counts.status());
  }
  limiter_.Inserted(counts->inserted + counts->rejected);
  if (counts->expired > 0) NoteExpired(parked.call.items.front(), counts->expired);
  repeated_ += counts->repeated;
  rejected_ += counts->rejected;
  if (counts->repeated == 0) trainer_.Offer(parked.call.chunks);
  std::string body =
      EncodeBody(InsertReplyBody{dictionaries_.empty() ? 0 : dictionaries_.back().first});
  if (ack_on_disk_) {  // also a repeat: the original may not be durable yet
    unacked_.push_back({table_.position(), std::move(parked.reply), std::move(body)});
    return journal_->RequestDurable(table_.position());
  }
  parked.reply.Send({.type = MessageType::kInsertReply, .body = std::move(body)});
}

// Logs expired items, each time their number reaches a power of two. `item`: the first of the
// call.
void TableServer::NoteExpired(const Item& item, std::int64_t count) {
  const auto before = std::uint64_t(expired_);
  expired_ += count;
  if (std::bit_width(before) == std::bit_width(std::uint64_t(expired_))) return;  // 1, 2, 4, …
  LogWarning(
      "replay: dropped {} items so far, the last of actor incarnation {}: their first frames were "
      "evicted before they arrived; the log holds {} frames; raise replay.capacity_items or use "
      "fewer actors",
      expired_, item.stream >> 32, table_.frame_capacity());
}

// ---- samples ------------------------------------------------------------------------------------

// Answers a sample request; false if it still waits.
bool TableServer::Sample(ParkedSample* parked) {
  if (Fenced(parked->origin)) return true;  // the caller was replaced: drop the request
  if (!CanSample(*parked)) {
    if (parked->waived) {
      SendSample(parked, true);
    } else {
      parked->reply.Fail(
          OutOfRange("replay: drained: {} items, {} inserted, {} sampled; no more will arrive",
                     table_.size(), limiter_.inserts(), limiter_.samples()));
    }
    return true;
  }
  if (parked->body.batch_size > 0 && parked->body.batches > 0 && !DrawBlocks(parked)) {
    return !parked->reply;
  }
  SendSample(parked, false);
  return true;
}

// Samples the missing batches; false if the table has run out of items, or the request was
// refused.
bool TableServer::DrawBlocks(ParkedSample* parked) {
  while (parked->batches < parked->body.batches) {
    if (!table_.can_draw()) return false;
    table_.Draw(parked->body.batch_size - parked->rows_open, &drawn_);
    if (drawn_.size() == 0) return false;
    NoteDrawn();
    parked->bytes +=
        PackedBytes(drawn_, options_.table.trajectory, options_.table.view, options_.table.codec);
    if (parked->bytes > kReplyBytesMax) {
      ++refused_;
      parked->reply.Fail(InvalidArgument("sample: {} batches of {} exceed {} MiB; request fewer",
                                         parked->body.batches, parked->body.batch_size,
                                         kReplyBytesMax >> 20));
      return false;
    }
    parked->blocks.push_back(PackEncodedBatch(drawn_, options_.table.trajectory,
                                              options_.table.view, options_.table.codec));
    parked->rows.push_back(std::uint32_t(drawn_.size()));
    parked->rows_open += std::uint32_t(drawn_.size());
    if (parked->rows_open < parked->body.batch_size) continue;
    parked->rows_open = 0;
    ++parked->batches;
  }
  return true;
}

// Statistics of the last sample: policy ages in updates, item ages in inserted items.
void TableServer::NoteDrawn() {
  double sum = 0;
  for (const std::uint64_t version : drawn_.policy_version) sum += double(UpdatesOf(version));
  const double newest = double(UpdatesOf(table_.newest_policy_version()));
  for (const std::uint64_t version : drawn_.policy_version) {
    policy_age_.Add(std::max(0.0, newest - double(UpdatesOf(version))));
  }
  for (const std::uint64_t age : table_.drawn_age()) age_.Add(double(age));
  policy_version_mean_ = sum / double(drawn_.size());
  policy_version_min_ = double(UpdatesOf(*std::ranges::min_element(drawn_.policy_version)));
}

// Reserves the charge and fills the common part of replies.
SampleReplyBody TableServer::Charge(const ParkedSample& parked) {
  Client& client = clients_[{parked.origin.role, parked.origin.index}];
  SampleReplyBody body{.batch_size = parked.body.batch_size,
                       .batches = parked.body.batches,
                       .charged = parked.waived ? 0 : parked.body.charge};
  limiter_.Reserve(body.charged);
  client.reserved += body.charged;
  body.reserved = client.reserved;
  body.total = Ready() ? table_.total() : 0;
  body.credit = Credit();
  for (const auto& dictionary : dictionaries_) body.dictionaries.push_back(dictionary.first);
  return body;
}

// `nothing`: the charge was waived and there are no items: an empty reply.
void TableServer::SendSample(ParkedSample* parked, bool nothing) {
  if (parked->feed) return SendTableDelta(parked);
  if (nothing) {
    parked->blocks.clear();
    parked->rows.clear();
  }
  SampleReplyBody body = Charge(*parked);
  if (nothing) body.batch_size = 0;
  body.rows = std::move(parked->rows);
  Message message{.type = MessageType::kSampleReply, .body = EncodeBody(body)};
  message.parts = std::move(parked->blocks);
  parked->reply.Send(std::move(message));
}

// Continues the caller's replica, or starts over if it is of another incarnation of the table.
void TableServer::SendTableDelta(ParkedSample* parked) {
  const TableDeltaBody& asked = *parked->feed;
  TableDeltaReplyBody body{.sample = Charge(*parked), .life = TableIncarnation()};
  table_.CountReplicaSamples(body.sample.charged);
  DeltaCursor at;
  const std::uint64_t end = table_.counters().inserted;
  if (asked.life == body.life && asked.next <= end) at = {asked.start, asked.next};
  at = table_.ReadDelta(at, std::min<std::int64_t>(asked.items_max, kFeedItemsMax), kFeedBytes,
                        &delta_);
  const ReplicaSizes sizes = table_.replica_sizes();
  body.start = at.start;
  body.next = at.next;
  body.oldest = table_.oldest_number();
  body.end = end;
  body.slots = sizes.slots;
  body.frames = sizes.frames;
  Message message{.type = MessageType::kTableDeltaReply, .body = EncodeBody(body)};
  message.parts.push_back(PackTableDelta(delta_, options_.table.trajectory, options_.table.codec));
  parked->reply.Send(std::move(message));
}

}  // namespace troop
