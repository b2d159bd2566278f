#include "replay/server.h"

#include <algorithm>
#include <bit>
#include <deque>
#include <map>
#include <utility>

#include "core/log.h"
#include "net/codec.h"
#include "replay/rate_limiter.h"
#include "replay/table.h"
#include "replay/wire.h"

namespace troop {
namespace {

constexpr std::int64_t kBatchesMax = 64;                        // in one request
constexpr std::size_t kReplyBytesMax = std::size_t{192} << 20;  // below the wire's limit

// Multiples of 2^31 / φ modulo 2^31 keep away from each other (Knuth, TAOCP 3, 6.4).
std::uint32_t FirstGeneration(std::uint64_t incarnation) {
  return 1 + (std::uint32_t(incarnation) * 1327217885u & 0x7FFFFFFFu);
}

Table::Options TableOptions(const ReplayServer::Options& options) {
  return {.trajectory = options.trajectory,
          .n_step_max = options.n_step_max,
          .capacity_items = options.capacity_items,
          .min_items = options.min_items,
          .alpha = options.alpha,
          .priority_epsilon = options.priority_epsilon,
          .trim_every_samples = options.trim_every_samples,
          .seed = options.seed,
          .incarnation = options.incarnation,
          .first_generation = FirstGeneration(options.incarnation)};
}

class ReplayServerImpl final : public ReplayServer {
 public:
  ReplayServerImpl(const Options& options, Table table, RateLimiter limiter)
      : options_(options), table_(std::move(table)), limiter_(limiter) {}

  void Handle(Message message, Reply reply) override;
  void Tick(Time now) override;
  void Report(Metrics* metrics) const override;

 private:
  struct ParkedInsert {
    InsertCall call;
    Reply reply;
  };
  struct ParkedSample {
    SampleBody body;
    Origin origin;
    Reply reply;
  };

  Status HandleInsert(const Message& message, Reply* reply);
  Status HandleSample(const Message& message, Reply* reply);
  Status HandleUpdate(const Message& message, Reply* reply);
  Status CheckSample(const SampleBody& body) const;
  Status Update(const Message& message, std::uint32_t updates);
  void SetDrain(bool drain, const Origin& origin);
  bool CanInsert() const;
  bool CanSample() const;
  void Settle();
  void Insert(ParkedInsert parked);
  void Sample(ParkedSample parked);
  void NoteExpired(const Item& item, std::int64_t count);
  void NotePolicyVersions(std::span<const std::uint64_t> versions);
  bool Fenced(const Origin& origin) const;

  Options options_;
  Table table_;
  RateLimiter limiter_;
  std::deque<ParkedInsert> inserts_;  // in the order of arrival
  std::deque<ParkedSample> samples_;
  bool draining_ = false;  // the last sampler heard said that no more experience will come
  std::map<std::pair<Role, std::int32_t>, std::uint64_t> sampler_incarnation_;
  std::optional<Time> now_;
  Duration insert_blocked_{}, sample_blocked_{};
  std::int64_t requests_refused_ = 0, expired_ = 0, repeated_ = 0;
  Table::UpdateCounts updates_;
  double policy_version_mean_ = 0, policy_version_min_ = 0;  // of the last reply
  std::vector<std::uint64_t> key_;                           // scratch
  std::vector<float> priority_;
};

void ReplayServerImpl::Handle(Message message, Reply reply) {
  Status status;
  switch (message.type) {
    case MessageType::kInsert:
      status = HandleInsert(message, &reply);
      break;
    case MessageType::kSample:
      status = HandleSample(message, &reply);
      break;
    case MessageType::kUpdatePriorities:
      status = HandleUpdate(message, &reply);
      break;
    case MessageType::kReplayStats: {
      Metrics metrics;
      Report(&metrics);
      reply.Send({.type = MessageType::kReplayStatsReply,
                  .body = EncodeBody(ReplayStatsBody{metrics.snapshot()})});
      break;
    }
    default:
      status =
          InvalidArgument("replay: message type {} is not for a replay server", int(message.type));
  }
  if (!status.ok()) {
    ++requests_refused_;
    reply.Fail(status);
  }
  Settle();
}

Status ReplayServerImpl::HandleInsert(const Message& message, Reply* reply) {
  TROOP_ASSIGN_OR_RETURN(InsertCall call, ParseInsert(message, options_.trajectory));
  inserts_.push_back({std::move(call), std::move(*reply)});
  return Status::Ok();
}

Status ReplayServerImpl::HandleSample(const Message& message, Reply* reply) {
  TROOP_ASSIGN_OR_RETURN(const SampleBody body, DecodeBody<SampleBody>(message.body));
  TROOP_RETURN_IF_ERROR(CheckSample(body));
  TROOP_RETURN_IF_ERROR(Update(message, body.updates));
  std::uint64_t& newest = sampler_incarnation_[{message.origin.role, message.origin.index}];
  newest = std::max(newest, message.origin.incarnation);
  samples_.push_back({body, message.origin, std::move(*reply)});
  SetDrain(body.drain, message.origin);
  return Status::Ok();
}

Status ReplayServerImpl::HandleUpdate(const Message& message, Reply* reply) {
  TROOP_ASSIGN_OR_RETURN(const UpdateBody body, DecodeBody<UpdateBody>(message.body));
  TROOP_RETURN_IF_ERROR(Update(message, body.updates));
  if (body.drain) SetDrain(true, message.origin);
  reply->Send({.type = MessageType::kUpdatePrioritiesReply});
  return Status::Ok();
}

Status ReplayServerImpl::CheckSample(const SampleBody& body) const {
  const std::int64_t batch_size = body.batch_size, batches = body.batches;
  if (batch_size < 1 || batch_size > options_.batch_size_max) {
    return InvalidArgument("sample: batch size {}; 1 to {} are served", batch_size,
                           options_.batch_size_max);
  }
  if (batches < 1 || batches > kBatchesMax) {
    return InvalidArgument("sample: {} batches in one request; 1 to {} are served", batches,
                           kBatchesMax);
  }
  const SampleLayout layout(options_.trajectory, batch_size, options_.n_step_max);
  if (layout.bytes > kReplyBytesMax / std::size_t(batches)) {
    return InvalidArgument("sample: {} batches of {} are {} MiB; {} fit in one reply", batches,
                           batch_size, layout.bytes * std::size_t(batches) >> 20,
                           kReplyBytesMax >> 20);
  }
  return Status::Ok();
}

Status ReplayServerImpl::Update(const Message& message, std::uint32_t updates) {
  TROOP_RETURN_IF_ERROR(ParseUpdates(message, updates, &key_, &priority_));
  const Table::UpdateCounts counts = table_.Update(key_, priority_);
  updates_.applied += counts.applied;
  updates_.stale += counts.stale;
  updates_.refused += counts.refused;
  return Status::Ok();
}

// A draining caller's parked requests won't wait either: Settle refuses them in their turn.
void ReplayServerImpl::SetDrain(bool drain, const Origin& origin) {
  draining_ = drain;
  if (!drain) return;
  for (ParkedSample& parked : samples_) {
    if (parked.origin.role == origin.role && parked.origin.index == origin.index) {
      parked.body.drain = true;
    }
  }
}

// Nothing to draw (all priorities 0): only inserts can change that. Draining: the last experience
// is taken without waiting for samples that won't come.
bool ReplayServerImpl::CanInsert() const {
  return draining_ || !table_.can_draw() || limiter_.CanInsert(table_.size());
}

bool ReplayServerImpl::CanSample() const {
  return table_.can_draw() && limiter_.CanSample(table_.size());
}

// Answers what may be answered: in the order of arrival on each side, the sides by turns, so that
// neither runs ahead. Ends: each turn takes a call off a queue.
void ReplayServerImpl::Settle() {
  for (bool moved = true; moved;) {
    moved = false;
    if (!inserts_.empty() && CanInsert()) {
      ParkedInsert parked = std::move(inserts_.front());
      inserts_.pop_front();
      Insert(std::move(parked));
      moved = true;
    }
    if (!samples_.empty() && (samples_.front().body.drain || CanSample())) {
      ParkedSample parked = std::move(samples_.front());
      samples_.pop_front();
      Sample(std::move(parked));
      moved = true;
    }
  }
}

void ReplayServerImpl::Insert(ParkedInsert parked) {
  const auto counts = table_.Insert(parked.call.chunks, parked.call.items);
  if (!counts.ok()) {
    ++requests_refused_;
    return parked.reply.Fail(counts.status());
  }
  limiter_.Inserted(counts->inserted);
  if (counts->expired > 0) NoteExpired(parked.call.items.front(), counts->expired);
  repeated_ += counts->repeated;
  parked.reply.Send({.type = MessageType::kInsertReply});
}

// Of a call that began with `item`.
void ReplayServerImpl::NoteExpired(const Item& item, std::int64_t count) {
  const auto before = std::uint64_t(expired_);
  expired_ += count;
  if (std::bit_width(before) == std::bit_width(std::uint64_t(expired_))) return;  // 1, 2, 4, …
  LogWarning(
      "replay: {} items were dropped in all, now of actor incarnation {}: their first frames were "
      "gone when they came; the log holds {} frames: raise replay.capacity_items or have fewer "
      "actors",
      expired_, item.stream >> 32, table_.frames().capacity());
}

void ReplayServerImpl::Sample(ParkedSample parked) {
  if (Fenced(parked.origin)) return;  // nobody would take the batches
  if (!CanSample()) {
    return parked.reply.Fail(
        OutOfRange("replay: drained: {} items, {} inserted, {} sampled; no more will come",
                   table_.size(), limiter_.inserts(), limiter_.samples()));
  }
  const SampleBody& body = parked.body;
  const SampleLayout layout(options_.trajectory, body.batch_size, options_.n_step_max);
  MutableBuffer blocks(layout.bytes * body.batches);
  for (std::uint32_t b = 0; b < body.batches; ++b) {
    const Table::Rows rows = layout.RowsAt(blocks.data() + b * layout.bytes);
    table_.Draw(body.batch_size, rows);
    NotePolicyVersions({rows.policy_version, body.batch_size});
  }
  limiter_.Sampled(std::int64_t(body.batch_size) * body.batches);
  Message message{.type = MessageType::kSampleReply,
                  .body = EncodeBody(SampleReplyBody{body.batch_size, body.batches,
                                                     std::uint32_t(options_.n_step_max)})};
  message.parts.push_back(std::move(blocks).Freeze());
  parked.reply.Send(std::move(message));
}

void ReplayServerImpl::NotePolicyVersions(std::span<const std::uint64_t> versions) {
  double sum = 0;
  for (const std::uint64_t version : versions) sum += double(UpdatesOf(version));
  policy_version_mean_ = sum / double(versions.size());
  policy_version_min_ = double(UpdatesOf(*std::ranges::min_element(versions)));
}

bool ReplayServerImpl::Fenced(const Origin& origin) const {
  const auto it = sampler_incarnation_.find({origin.role, origin.index});
  return it != sampler_incarnation_.end() && origin.incarnation < it->second;
}

void ReplayServerImpl::Tick(Time now) {
  if (now_) {
    if (!inserts_.empty()) insert_blocked_ += now - *now_;
    if (!samples_.empty()) sample_blocked_ += now - *now_;
  }
  now_ = now;
}

void ReplayServerImpl::Report(Metrics* metrics) const {
  const auto count = [metrics](std::string_view name, double value) {
    metrics->Gauge(name, value, MetricKind::kCounter);
  };
  const auto level = [metrics](std::string_view name, double value) {
    metrics->Gauge(name, value, MetricKind::kGaugeSum);
  };
  const auto mean = [metrics](std::string_view name, double value) {
    metrics->Gauge(name, value, MetricKind::kGaugeMean);
  };
  const double inserts = double(limiter_.inserts()), samples = double(limiter_.samples());
  level("replay/items", double(table_.size()));
  level("replay/bytes", double(table_.bytes()));
  level("replay/parked_inserts", double(inserts_.size()));
  level("replay/parked_samples", double(samples_.size()));
  count("replay/inserts", inserts);
  count("replay/samples", samples);
  count("replay/evicted", double(table_.evicted()));
  count("replay/expired", double(expired_));
  count("replay/repeated", double(repeated_));
  count("replay/updates", double(updates_.applied));
  count("replay/stale_updates", double(updates_.stale));
  count("replay/refused_priorities", double(updates_.refused));
  count("replay/refused_requests", double(requests_refused_));
  count("replay/insert_blocked_s", ToSeconds(insert_blocked_));
  count("replay/sample_blocked_s", ToSeconds(sample_blocked_));
  mean("replay/fill", double(table_.size()) / double(options_.capacity_items));
  mean("replay/samples_per_insert", inserts > 0 ? samples / inserts : 0);
  mean("replay/policy_version_mean", policy_version_mean_);
  mean("replay/policy_version_min", policy_version_min_);
}

}  // namespace

Result<std::unique_ptr<ReplayServer>> MakeReplayServer(const ReplayServer::Options& options) {
  if (options.batch_size_max < 1 || options.batch_size_max > 1 << 20) {
    return InvalidArgument("replay: batch_size_max {} must lie in [1, {}]", options.batch_size_max,
                           1 << 20);
  }
  TROOP_ASSIGN_OR_RETURN(Table table, Table::Make(TableOptions(options)));
  TROOP_ASSIGN_OR_RETURN(RateLimiter limiter,
                         RateLimiter::Make({.samples_per_insert = options.samples_per_insert,
                                            .ratio_error = options.ratio_error,
                                            .min_items = options.min_items}));
  return std::unique_ptr<ReplayServer>(
      std::make_unique<ReplayServerImpl>(options, std::move(table), std::move(limiter)));
}

std::size_t PredictReplayBytes(const ReplayServer::Options& options) {
  return Table::PredictBytes(TableOptions(options));
}

}  // namespace troop
