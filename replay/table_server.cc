#include "replay/table_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/log.h"
#include "net/codec.h"

namespace troop {
namespace {

constexpr std::uint32_t kBatchesMax = 64;                       // in one request
constexpr std::size_t kReplyBytesMax = std::size_t{192} << 20;  // below the wire's limit
constexpr double kManyItems = 1e12;
constexpr std::int64_t kFeedItemsMax = 1 << 16;            // in one reply
constexpr std::size_t kFeedBytes = std::size_t{16} << 20;  // of decoded frames there, or a bit more
constexpr std::size_t kDictionariesMax = 16;               // a decoder keeps those of 16 shards
// A client that is away for as long is gone: above a restart, and a long pause.
constexpr Duration kForgetAfter = Seconds(60);

// Frames that one drawn item brings, at most.
std::size_t FramesPerItem(const ViewSpec& view) {
  return std::size_t(FramesOf(view, view.lead_max(), view.length_max).count());
}

// What a snapshot keeps of the limiter, and the table's count of items then.
struct LimiterCounts {
  std::int64_t inserts = 0, samples = 0;
  std::uint64_t items = 0;
  template <class A>
  void serialize(A& a) {
    a(inserts, samples, items);
  }
};

}  // namespace

Result<std::unique_ptr<TableServer>> TableServer::Make(const ReplayTableOptions& options,
                                                       const ReplayServer::Options& server) {
  TROOP_ASSIGN_OR_RETURN(RateLimiter limiter,
                         RateLimiter::Make({.samples_per_insert = options.samples_per_insert,
                                            .ratio_error = options.ratio_error,
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

// The limiter goes on where it was, without a burst. Items that the log has from after the snapshot
// are inserts too.
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
    return DataLoss("replay: table {} was kept with {} inserts and {} samples", name(),
                    counts.inserts, counts.samples);
  }
  const std::uint64_t items = table_.counters().inserted;
  const std::uint64_t later = items - std::min(items, counts.items);
  limiter_.Restore(counts.inserts + std::int64_t(later), counts.samples, table_.size());
  before_ = {limiter_.inserts(), limiter_.samples(), table_.evicted()};
  return Status::Ok();
}

std::string TableServer::Counts() const {
  return EncodeBody(
      LimiterCounts{limiter_.inserts(), limiter_.samples(), table_.counters().inserted});
}

// Those of the options that the log did not have.
Status TableServer::AddDictionaries() {
  for (const Buffer& bytes : options_.dictionaries) {
    const auto dictionary = MakeFrameDictionary(bytes);
    if (dictionary == nullptr || options_.table.codec == Codec::kNone) {
      return InvalidArgument("replay: table {}: {} bytes that codec {} can't use as a dictionary",
                             name(), bytes.size(), CodecName(options_.table.codec));
    }
    const auto known = [id = DictionaryId(*dictionary)](const auto& d) { return d.first == id; };
    if (std::ranges::none_of(dictionaries_, known)) AddDictionary(dictionary);
    trainer_.Finish();
  }
  return Status::Ok();
}

void TableServer::AddDictionary(const std::shared_ptr<const FrameDictionary>& dictionary) {
  const std::uint32_t id = DictionaryId(*dictionary);
  table_.AddDictionary(dictionary);
  if (journal_) journal_->AddDictionary(id, DictionaryBytes(*dictionary));
  dictionaries_.emplace_back(id, DictionaryBytes(*dictionary));
  if (dictionaries_.size() > kDictionariesMax) dictionaries_.erase(dictionaries_.begin());
}

// ---- calls --------------------------------------------------------------------------------------

Status TableServer::HandleInsert(const Message& message, const InsertBody& body, Reply* reply) {
  TROOP_ASSIGN_OR_RETURN(EncodedInsert call, ParseInsert(message, body, options_.table.trajectory,
                                                         options_.table.codec));
  if (options_.table.codec != Codec::kNone) TROOP_RETURN_IF_ERROR(CheckDictionaries(call));
  inserts_.push_back({std::move(call), std::move(*reply)});
  return Status::Ok();
}

// Told apart from damage: frames that were made for an earlier life of this table come again
// without their dictionary.
Status TableServer::CheckDictionaries(const EncodedInsert& call) const {
  for (const EncodedChunk& chunk : call.chunks) {
    std::size_t offset = 0;
    for (std::size_t i = 0; i < chunk.frames; ++i) {
      std::uint32_t bytes;
      std::memcpy(&bytes, chunk.frame_bytes.data() + i * sizeof bytes, sizeof bytes);
      if (bytes > chunk.observation.size() - offset) break;  // the table says so
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

Status TableServer::HandleFeed(const Message& message, const FeedBody& body, Reply* reply) {
  if (!options_.table.feed) {
    return FailedPrecondition(
        "feed: table {} feeds nobody: batches are drawn here; set replay.placement = \"gpu\"",
        name());
  }
  if (body.sample.batch_size != 0 || body.start > body.next || body.items_max < 1) {
    return InvalidArgument("feed: batches of {}, items from {} on, begun at {}, at most {}",
                           body.sample.batch_size, body.next, body.start, body.items_max);
  }
  return Park(message, {.body = body.sample, .origin = message.origin, .feed = body}, reply);
}

Status TableServer::Park(const Message& message, ParkedSample parked, Reply* reply) {
  const SampleBody body = parked.body;
  TROOP_RETURN_IF_ERROR(CheckSample(body));
  TROOP_RETURN_IF_ERROR(Update(message, body.updates));
  NoteClient(message.origin, body.taken);
  SeePolicyVersion(body.policy_version);
  parked.reply = std::move(*reply);
  samples_.push_back(std::move(parked));
  SetDrain(body.drain, message.origin);
  return Status::Ok();
}

// One that no learner can have yet would make all items too old (max_policy_age), for good.
void TableServer::SeePolicyVersion(std::uint64_t version) {
  if (version == 0 || (version_is_issued_ && !version_is_issued_(version >> 32))) return;
  table_.SeePolicyVersion(version);
}

Status TableServer::HandleUpdate(const Message& message, const UpdateBody& body, Reply* reply) {
  TROOP_RETURN_IF_ERROR(Update(message, body.updates));
  NoteClient(message.origin, body.taken);
  SeePolicyVersion(body.policy_version);
  if (body.drain) SetDrain(true, message.origin);
  for (ParkedSample& parked : samples_) {
    if (parked.origin.role == message.origin.role && parked.origin.index == message.origin.index) {
      parked.waived = parked.waived || body.waive;
    }
  }
  reply->Send({.type = MessageType::kUpdatePrioritiesReply});
  return Status::Ok();
}

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

Status TableServer::HandleReconfigure(const ReconfigureBody& body, Reply* reply) {
  if (body.min_items > options_.table.capacity_items) {
    return InvalidArgument("replay: min_items {} of a table for {}", body.min_items,
                           options_.table.capacity_items);
  }
  TROOP_RETURN_IF_ERROR(limiter_.Reconfigure({.samples_per_insert = body.samples_per_insert,
                                              .ratio_error = body.ratio_error,
                                              .min_items = body.min_items},
                                             table_.size()));
  options_.samples_per_insert = body.samples_per_insert;
  options_.ratio_error = body.ratio_error;
  options_.table.min_items = body.min_items;
  reply->Send({.type = MessageType::kReconfigureReply});
  return Status::Ok();
}

Status TableServer::HandleCheckpoint(Reply* reply) {
  if (!journal_) {
    return FailedPrecondition("replay: table {} is kept in memory alone; set replay.persist",
                              name());
  }
  // A round that is under way may have begun before: the one after it is surely from now on.
  const Journal::Stats& stats = journal_->stats();
  checkpoints_.push_back({stats.rounds + 2, stats.snapshot_failures + 1, std::move(*reply)});
  return Status::Ok();
}

Status TableServer::CheckSample(const SampleBody& body) const {
  const auto charge_max = 4 * std::uint64_t(batch_size_max_) * kBatchesMax;
  if (body.charge > charge_max || (body.charge > 0 && body.batches == 0)) {
    return InvalidArgument("sample: {} items charged for {} batches", body.charge, body.batches);
  }
  if (body.batch_size == 0 && body.batches <= kBatchesMax) return Status::Ok();
  if (body.batch_size < 1 || body.batch_size > batch_size_max_) {
    return InvalidArgument("sample: batch size {}; 1 to {} are served", body.batch_size,
                           batch_size_max_);
  }
  if (body.batches < 1 || body.batches > kBatchesMax) {
    return InvalidArgument("sample: {} batches in one request; 1 to {} are served", body.batches,
                           kBatchesMax);
  }
  const Table::Options& table = options_.table;
  const std::size_t frame = table.codec == Codec::kNone ? table.trajectory.observation.bytes() : 8;
  const std::size_t item = 64 + FramesPerItem(table.view) * frame +
                           std::size_t(table.view.steps()) * (8 + table.trajectory.action.bytes());
  const std::size_t bytes = item * body.batch_size * body.batches;
  if (bytes > kReplyBytesMax) {
    return InvalidArgument("sample: {} batches of {} are {} MiB; {} fit in one reply", body.batches,
                           body.batch_size, bytes >> 20, kReplyBytesMax >> 20);
  }
  return Status::Ok();
}

Status TableServer::Update(const Message& message, std::uint32_t updates) {
  TROOP_RETURN_IF_ERROR(ParseUpdates(message, updates, &key_, &priority_));
  if (updates == 0) return Status::Ok();
  const Table::UpdateCounts counts = table_.Update(key_, priority_);
  updates_.applied += counts.applied;
  updates_.stale += counts.stale;
  updates_.refused += counts.refused;
  return Status::Ok();
}

// What a sampler of an earlier incarnation had reserved will never be taken.
void TableServer::NoteClient(const Origin& origin, std::uint64_t taken) {
  Client& client = clients_[{origin.role, origin.index}];
  if (origin.incarnation > client.incarnation) {
    limiter_.Release(std::int64_t(client.reserved - client.delivered));
    client = {.incarnation = origin.incarnation};
  }
  if (origin.incarnation < client.incarnation) return;
  client.gone.reset();
  // More than was reserved: of this shard's life before.
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

// Each run of a tool is a client with an index of its own: no newer incarnation releases what it
// had. One that was only cut off asks again.
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
      parked.reply.Fail(Unavailable("replay: nothing was heard of the caller"));
      return true;
    });
    it = clients_.erase(it);
  }
}

bool TableServer::Fenced(const Origin& origin) const {
  const auto it = clients_.find({origin.role, origin.index});
  return it != clients_.end() && origin.incarnation < it->second.incarnation;
}

// A draining caller's parked requests won't wait either: Settle refuses them in their turn.
void TableServer::SetDrain(bool drain, const Origin& origin) {
  draining_ = drain;
  if (!drain) return;
  for (ParkedSample& parked : samples_) {
    if (parked.origin.role == origin.role && parked.origin.index == origin.index) {
      parked.body.drain = true;
    }
  }
}

// ---- who may go on ------------------------------------------------------------------------------

bool TableServer::Ready() const {
  return table_.can_draw() && table_.size() >= options_.table.min_items;
}

// Nothing to draw (all priorities 0): only inserts can change that. Draining: the last experience
// is taken without waiting for samples that won't come.
bool TableServer::CanInsert() const {
  if (journal_ && journal_->behind()) return false;
  return draining_ || !table_.can_draw() || limiter_.CanInsert(table_.size());
}

// Items that may be charged before samples must wait.
double TableServer::Credit() const {
  return options_.samples_per_insert == 0 ? kManyItems : limiter_.lead() - limiter_.lower();
}

bool TableServer::CanSample(const ParkedSample& parked) const {
  const SampleBody& body = parked.body;
  if (body.batches == 0) return true;
  if (body.charge == 0 || parked.waived || parked.batches > 0 || parked.rows_open > 0) {
    return Ready();
  }
  return table_.can_draw() && limiter_.CanSample(table_.size());
}

// Answers what may be answered, the sides by turns, so that neither runs ahead. Ends: each turn
// takes a call off a queue.
void TableServer::SettleAll() {
  for (bool moved = true; moved;) {
    moved = SettleInsert();
    moved |= SettleSample();
  }
  NoteWaits();
}

// What waits from the last Tick on.
void TableServer::NoteWaits() {
  if (now_) limiter_.Note(*now_, !inserts_.empty(), !samples_.empty(), table_.size());
}

bool TableServer::SettleInsert() {
  if (inserts_.empty() || !CanInsert()) return false;
  ParkedInsert parked = std::move(inserts_.front());
  inserts_.pop_front();
  Insert(std::move(parked));
  return true;
}

// The first that may go. Those that are charged go in order: the limiter's answer is one for all.
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

void TableServer::Insert(ParkedInsert parked) {
  const auto counts = table_.Insert(parked.call);
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
  if (ack_on_disk_) {  // a repeat too: what it repeats may be on its way
    unacked_.push_back({table_.position(), std::move(parked.reply), std::move(body)});
    return journal_->Want(table_.position());
  }
  parked.reply.Send({.type = MessageType::kInsertReply, .body = std::move(body)});
}

// Of a call that began with `item`.
void TableServer::NoteExpired(const Item& item, std::int64_t count) {
  const auto before = std::uint64_t(expired_);
  expired_ += count;
  if (std::bit_width(before) == std::bit_width(std::uint64_t(expired_))) return;  // 1, 2, 4, …
  LogWarning(
      "replay: {} items were dropped in all, now of actor incarnation {}: their first frames were "
      "gone when they came; the log holds {} frames: raise replay.capacity_items or have fewer "
      "actors",
      expired_, item.stream >> 32, table_.frame_capacity());
}

// ---- samples ------------------------------------------------------------------------------------

// False: it still waits.
bool TableServer::Sample(ParkedSample* parked) {
  if (Fenced(parked->origin)) return true;  // nobody would take the batches
  if (!CanSample(*parked)) {
    if (parked->waived) {
      SendSample(parked, true);
    } else {
      parked->reply.Fail(
          OutOfRange("replay: drained: {} items, {} inserted, {} sampled; no more will come",
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

// False: the table has run out of items, or the call was refused.
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
      parked->reply.Fail(InvalidArgument("sample: {} batches of {} are more than {} MiB",
                                         parked->body.batches, parked->body.batch_size,
                                         kReplyBytesMax >> 20));
      return false;
    }
    parked->blocks.push_back(
        PackDrawn(drawn_, options_.table.trajectory, options_.table.view, options_.table.codec));
    parked->rows.push_back(std::uint32_t(drawn_.size()));
    parked->rows_open += std::uint32_t(drawn_.size());
    if (parked->rows_open < parked->body.batch_size) continue;
    parked->rows_open = 0;
    ++parked->batches;
  }
  return true;
}

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

// `nothing`: the charge was waived, and there are no items to give.
void TableServer::SendSample(ParkedSample* parked, bool nothing) {
  if (parked->feed) return SendFeed(parked);
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

void TableServer::SendFeed(ParkedSample* parked) {
  const FeedBody& asked = *parked->feed;
  FeedReplyBody body{.sample = Charge(*parked), .life = Life()};
  table_.DrawnElsewhere(body.sample.charged);
  FeedPlace at;
  const std::uint64_t end = table_.counters().inserted;
  if (asked.life == body.life && asked.next <= end) at = {asked.start, asked.next};
  at = table_.ReadFeed(at, std::min<std::int64_t>(asked.items_max, kFeedItemsMax), kFeedBytes,
                       &feed_);
  const FeedSizes sizes = table_.feed_sizes();
  body.start = at.start;
  body.next = at.next;
  body.oldest = table_.oldest_number();
  body.end = end;
  body.slots = sizes.slots;
  body.frames = sizes.frames;
  Message message{.type = MessageType::kFeedReply, .body = EncodeBody(body)};
  message.parts.push_back(PackFeed(feed_, options_.table.trajectory, options_.table.codec));
  parked->reply.Send(std::move(message));
}

}  // namespace troop
