// TableServer: requests of one table, their admission, and their replies.
#include "replay/service/table_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/config/enum_names.h"
#include "net/wire/codec.h"

namespace troop {
namespace {

constexpr std::uint32_t kBatchesMax = 64;                       // per request
constexpr std::size_t kReplyBytesMax = std::size_t{192} << 20;  // below the limit of one message
constexpr double kManyItems = 1e12;                             // credit without a ratio limit
constexpr std::int64_t kFeedItemsMax = 1 << 16;                 // per reply
// Decoded frames per reply; the last item may exceed it.
constexpr std::size_t kFeedBytes = std::size_t{16} << 20;
constexpr Duration kTickEveryMin = Milliseconds(2);
// Upper bound, for detecting disconnected clients and for the limiter's waiting times.
constexpr Duration kTickEveryMax = Seconds(1);

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
      version_is_issued_(server.version_is_issued),
      table_(std::move(table)),
      durability_(options.table.name, server.ack_on_disk && server.storage != nullptr),
      limiter_(limiter),
      dictionaries_({.table = options.table.name,
                     .codec = options.table.codec,
                     .frame_bytes = options.table.trajectory.observation.bytes(),
                     .executor = server.executor}) {}

// Takes over a restored table. The limiter continues from its counts, without a burst; items that
// the log has from after the snapshot count as inserts.
Status TableServer::Keep(RestoredTable* restored) {
  durability_.Open(std::move(restored->journal));
  for (const auto& dictionary : restored->dictionaries) {
    dictionaries_.Add(*dictionary);
    dictionaries_.FinishTraining();
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
  const std::uint64_t items = table_.journal_source().counters().inserted;
  const std::uint64_t later = items - std::min(items, counts.items);
  limiter_.Restore(counts.inserts + std::int64_t(later), counts.samples, table_.size());
  metrics_.Continue(limiter_, table_);
  return Status::Ok();
}

// Stored in each snapshot trailer.
std::string TableServer::Counts() const {
  return EncodeBody(LimiterCounts{limiter_.inserts(), limiter_.samples(),
                                  table_.journal_source().counters().inserted});
}

// Adds the configured dictionaries that the log does not have yet.
Status TableServer::AddDictionaries() {
  for (const Buffer& bytes : options_.dictionaries) {
    auto dictionary = MakeFrameDictionary(bytes);
    if (dictionary == nullptr || options_.table.codec == Codec::kNone) {
      return InvalidArgument("replay: table {}: {} bytes are not a dictionary for codec {}", name(),
                             bytes.size(), EnumName(options_.table.codec));
    }
    const bool known = dictionaries_.Find(DictionaryId(*dictionary)) != nullptr;
    if (!known) AddDictionary(std::move(dictionary));
    dictionaries_.FinishTraining();
  }
  return Status::Ok();
}

// Makes a dictionary known to the table, the journal and the clients.
void TableServer::AddDictionary(std::shared_ptr<const FrameDictionary> dictionary) {
  dictionaries_.Add(*dictionary);
  durability_.AddDictionary(DictionaryId(*dictionary), DictionaryBytes(*dictionary));
  table_.AddDictionary(std::move(dictionary));
}

// ---- requests -----------------------------------------------------------------------------------

Status TableServer::HandleInsert(const Message& message, const InsertBody& body, Reply* reply) {
  TROOP_ASSIGN_OR_RETURN(EncodedInsert call, ParseInsert(message, body, options_.table.trajectory,
                                                         options_.table.codec));
  TROOP_RETURN_IF_ERROR(dictionaries_.Check(call));
  queue_.Park(ParkedInsert{std::move(call), std::move(*reply)});
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
  clients_.NoteTaken(message.origin, body.taken);
  ObservePolicyVersion(body.policy_version);
  parked.reply = std::move(*reply);
  queue_.Park(std::move(parked));
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
  clients_.NoteTaken(message.origin, body.taken);
  ObservePolicyVersion(body.policy_version);
  if (body.drain) SetDrain(true, message.origin);
  if (body.waive) queue_.Waive(message.origin);
  reply->Send({.type = MessageType::kUpdatePrioritiesReply});
  return Status::Ok();
}

// Writers and samplers fetch dictionaries by id.
Status TableServer::HandleDictionary(const DictionaryBody& body, Reply* reply) {
  const Buffer* const bytes = dictionaries_.Find(body.id);
  if (bytes == nullptr) {
    return NotFound("replay: table {} has no dictionary {}", name(), body.id);
  }
  Message message{.type = MessageType::kDictionaryReply};
  message.parts.push_back(*bytes);
  reply->Send(std::move(message));
  return Status::Ok();
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
  metrics_.NoteUpdates(table_.Update(key_, priority_));
  return Status::Ok();
}

// A draining caller's parked requests do not wait either: Settle refuses them in order.
void TableServer::SetDrain(bool drain, const Origin& origin) {
  draining_ = drain;
  if (drain) queue_.Drain(origin);
}

// ---- admission ----------------------------------------------------------------------------------

// True if sampling is possible at all, apart from the ratio.
bool TableServer::Ready() const {
  return table_.can_draw() && table_.size() >= options_.table.min_items;
}

// Inserts bypass the limiter if nothing can be sampled (all priorities 0), since only they can
// change that, and when draining, since no samples will follow the last experience.
bool TableServer::CanInsert() const {
  if (durability_.behind()) return false;
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
  if (body.charge == 0 || parked.waived || parked.begun()) return Ready();
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
  if (now_) limiter_.Note(*now_, queue_.inserts() > 0, queue_.samples() > 0, table_.size());
}

// Answers the first insert if the limiter admits it.
bool TableServer::SettleInsert() {
  if (queue_.inserts() == 0 || !CanInsert()) return false;
  Insert(queue_.TakeInsert());
  return true;
}

// Answers the first sample request that need not wait. Charged ones stay in order, because the
// limiter's answer is the same for all.
bool TableServer::SettleSample() {
  return queue_.AnswerFirstSample([this](ParkedSample* parked) {
    if (!parked->body.drain && !parked->waived && !CanSample(*parked)) return false;
    return Sample(parked);
  });
}

// ---- inserts ------------------------------------------------------------------------------------

// Inserts a parked call and acknowledges it, now or when it is durable.
void TableServer::Insert(ParkedInsert parked) {
  const auto counts = table_.Insert(parked.call);
  // Exhausted memory is reported in Blocked until an insert succeeds.
  const bool no_memory = counts.status().code() == Code::kResourceExhausted;
  insert_error_ = no_memory ? counts.status() : Status::Ok();
  if (!counts.ok()) {
    metrics_.NoteRefused();
    return parked.reply.Fail(counts.status());
  }
  limiter_.Inserted(counts->inserted + counts->rejected);
  metrics_.NoteInsert(*counts);
  if (counts->expired > 0) {
    metrics_.NoteExpired(parked.call.items.front(), counts->expired, table_);
  }
  if (counts->repeated == 0) dictionaries_.Offer(parked.call.chunks);
  std::string body = EncodeBody(InsertReplyBody{dictionaries_.newest()});
  if (durability_.ack_on_disk()) {  // also a repeat: the original may not be durable yet
    return durability_.AcknowledgeAt(table_.journal_source().position(), std::move(parked.reply),
                                     std::move(body));
  }
  parked.reply.Send({.type = MessageType::kInsertReply, .body = std::move(body)});
}

// ---- samples ------------------------------------------------------------------------------------

// Answers a sample request; false if it still waits.
bool TableServer::Sample(ParkedSample* parked) {
  if (clients_.Fenced(parked->origin)) return true;  // the caller was replaced: drop the request
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
    metrics_.NoteDrawn(drawn_, table_);
    if (drawn_.size() == 0) return false;
    parked->bytes +=
        PackedBytes(drawn_, options_.table.trajectory, options_.table.view, options_.table.codec);
    if (parked->bytes > kReplyBytesMax) {
      metrics_.NoteRefused();
      parked->reply.Fail(InvalidArgument("sample: {} batches of {} exceed {} MiB; request fewer",
                                         parked->body.batches, parked->body.batch_size,
                                         kReplyBytesMax >> 20));
      return false;
    }
    parked->AddBlock(PackEncodedBatch(drawn_, options_.table.trajectory, options_.table.view,
                                      options_.table.codec),
                     std::uint32_t(drawn_.size()));
  }
  return true;
}

// Reserves the charge and fills the common part of replies.
SampleReplyBody TableServer::Charge(const ParkedSample& parked) {
  SampleReplyBody body{.batch_size = parked.body.batch_size,
                       .batches = parked.body.batches,
                       .charged = parked.waived ? 0 : parked.body.charge};
  body.reserved = clients_.Reserve(parked.origin, body.charged);
  body.total = Ready() ? table_.total() : 0;
  body.credit = Credit();
  body.dictionaries = dictionaries_.ids();
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
  const std::uint64_t end = table_.journal_source().counters().inserted;
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

// ---- periodic work and reports ------------------------------------------------------------------

// Clients expire before requests are answered, since their reservations are released.
void TableServer::Tick(Time now) {
  now_ = now;
  next_tick_ = now + kTickEveryMax;
  for (const SamplerClients::Key& gone : clients_.Forget(now)) {
    queue_.Refuse(gone, Unavailable("replay: the caller is disconnected"));
  }
  if (!ended_) SettleAll();
  NoteWaits();
  if (auto trained = dictionaries_.PollTrained()) AddDictionary(std::move(trained));
  if (!durability_.persistent()) return;
  PollJournal(now);
  if (durability_.NoteBehind() && !ended_) SettleAll();
  called_ = false;
}

// Without requests since the last Tick, the journal may use the idle time.
void TableServer::PollJournal(Time now) {
  const Time next = durability_.Poll(now, Counts(), !called_, &table_.journal_source());
  next_tick_ = std::clamp(next, now + kTickEveryMin, now + kTickEveryMax);
}

// Parked requests stay unanswered, so that clients repeat them at the next process.
void TableServer::Drain() {
  ended_ = true;
  durability_.Drain();
}

// Everything that a client without the config needs to push or sample.
TableInfo TableServer::Info() const {
  const Table::Options& table = options_.table;
  TableInfo info{.name = table.name,
                 .observation = ToWire(table.trajectory.observation),
                 .action = ToWire(table.trajectory.action),
                 .view_kind = std::uint8_t(table.view.kind),
                 .length_max = std::uint32_t(table.view.length_max),
                 .stack = std::uint32_t(table.view.stack),
                 .burn_in = std::uint32_t(table.view.burn_in),
                 .codec = std::uint8_t(table.codec),
                 .dictionary = dictionaries_.newest(),
                 .capacity_items = table.capacity_items,
                 .min_items = table.min_items,
                 .items = table_.size(),
                 .samples_per_insert = options_.samples_per_insert,
                 .durable = durability_.ack_on_disk()};
  if (table.trajectory.state) info.state = ToWire(*table.trajectory.state);
  return info;
}

// Memory first: then the disk, then acknowledgements that wait for it.
std::string TableServer::Blocked() const {
  if (!insert_error_.ok()) {
    return fmt::format("table {} accepts no inserts: {}", name(), insert_error_.message());
  }
  return durability_.Blocked();
}

void TableServer::Report(std::string_view prefix, Metrics* metrics) const {
  const PrefixedMetrics prefixed{prefix, metrics};
  metrics_.Report(prefixed, table_, limiter_,
                  {.parked_inserts = queue_.inserts(),
                   .parked_samples = queue_.samples(),
                   .capacity_items = options_.table.capacity_items});
  durability_.Report(prefixed);
}

}  // namespace troop
