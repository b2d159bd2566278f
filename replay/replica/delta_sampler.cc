// DeltaSampler: fetches table deltas and sampling grants for a learner that samples a replica.
#include "replay/replica/delta_sampler.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "core/base/check.h"
#include "core/base/log.h"
#include "net/wire/codec.h"
#include "replay/service/messages.h"
#include "replay/service/shard_connection.h"

namespace troop {
namespace {

constexpr std::uint32_t kItemsPerDelta = 4096;  // per request
// Limit of the decoded bytes of one delta, which the frames of one item may exceed; above what a
// server sends.
constexpr std::size_t kDecodedMax = std::size_t{64} << 20;

// The server's answers are of two kinds: deltas, which bring the replica up to date, and grants,
// which allow a number of batches. A reply may contain both.
class DeltaSampler final : public ReplaySampler {
 public:
  DeltaSampler(std::unique_ptr<Channel> channel, const TrajectorySpec& spec, const Options& options)
      : spec_(spec),
        options_(options),
        shard_(std::move(channel), options.table),
        coder_(options.codec, spec.observation.bytes()) {}

  void AddShard(std::unique_ptr<Channel>) override {
    error_ = FailedPrecondition(
        "replay: GPU replay supports one shard; set replay.placement = \"host\" to use several");
  }
  void Poll(Time now) override;
  Result<std::optional<SampleBatch>> Next() override;
  void UpdatePriorities(std::span<const ItemKey> keys, std::span<const float> priority) override;
  void ObservePolicyVersion(std::uint64_t version) override {
    shard_.ObservePolicyVersion(version);
  }
  void SetBeta(double beta) override { options_.beta = beta; }
  void Drain() override { drain_ = true; }
  int ready_batches() const override { return behind_ ? !fresh_.empty() : int(open_batches_); }
  int shards_alive() const override { return shard_.peer() == PeerState::kUp ? 1 : 0; }

 private:
  // Batches that the rate limiter was charged for.
  struct Grant {
    std::uint64_t reserved = 0, charged = 0, life = 0;
    std::uint32_t batches = 0, left = 0;
  };
  // A reply whose dictionaries have not all arrived yet.
  struct Answer {
    TableDeltaReplyBody body;
    Buffer block;
  };

  void PollShard();
  Status TakeReply(const Message& message);
  void TakeAnswer();
  Status Decode(DecodedDelta* experience);
  Status Ask();
  void StartAnew();

  const TrajectorySpec spec_;
  Options options_;
  ShardConnection shard_;
  FrameCoder coder_;
  Ticket ticket_ = 0;
  std::optional<Answer> answer_;  // waits for dictionaries
  std::uint64_t life_ = 0;        // incarnation of the table that the replica is of; 0: none
  DeltaCursor place_;
  bool behind_ = true;  // the table has items that the replica lacks
  std::vector<std::shared_ptr<const DecodedDelta>> fresh_;
  std::size_t fresh_bytes_ = 0;
  std::deque<Grant> grants_;
  std::uint64_t open_batches_ = 0;  // sum over all grants
  bool drain_ = false, closed_ = false;
  Status error_;
};

// One step: take a reply, request the next delta, send priorities. The first error is permanent.
void DeltaSampler::Poll(Time) {
  if (!error_.ok()) return;
  PollShard();
  // At most one feed request is open.
  if (error_.ok() && ticket_ != 0) {
    if (auto reply = shard_.Poll(ticket_)) {
      ticket_ = 0;
      const Code code = reply->status().code();
      if (reply->ok()) {
        error_ = TakeReply(**reply);
      } else if (code == Code::kOutOfRange) {
        closed_ = true;
        behind_ = false;
      } else if (code != Code::kDeadlineExceeded && code != Code::kUnavailable) {
        error_ = reply->status();
      }
    }
  }
  if (error_.ok()) TakeAnswer();
  if (error_.ok()) error_ = Ask();
  // A parked request must learn of the drain, or it would wait for the limiter.
  const bool tell_drain = drain_ && !shard_.drain_told() && ticket_ != 0;
  if (error_.ok() && (shard_.has_updates() || tell_drain)) {
    error_ = shard_.SendUpdates(drain_, false).status();
  }
  if (!error_.ok()) error_ = error_.WithContext("replay feed");
}

void DeltaSampler::PollShard() {
  const Status status = shard_.PollSmall();
  if (error_.ok()) error_ = status;
  for (auto& dictionary : shard_.NewDictionaries()) coder_.AddDictionary(std::move(dictionary));
  // A restarted server lacks the dictionaries of its earlier incarnation, and the frames that need
  // them.
  if (answer_ && shard_.LostAny(answer_->body.sample.dictionaries)) StartAnew();
  shard_.ClearLost();
}

// Makes the next delta begin with the table's oldest item.
void DeltaSampler::StartAnew() {
  answer_.reset();
  life_ = 0;
  place_ = {};
  behind_ = true;
}

Status DeltaSampler::TakeReply(const Message& message) {
  if (message.type != MessageType::kTableDeltaReply || message.parts.size() != 1) {
    return DataLoss("unexpected reply of type {} with {} parts", int(message.type),
                    message.parts.size());
  }
  TROOP_ASSIGN_OR_RETURN(TableDeltaReplyBody body, DecodeBody<TableDeltaReplyBody>(message.body));
  TROOP_RETURN_IF_ERROR(ShardConnection::Check(body.sample));
  // Positions never go back within one incarnation.
  if (body.life == 0 || body.start > body.next || body.next > body.end ||
      (body.life == life_ && body.next < place_.next) || body.sample.batches > 1u << 16) {
    return DataLoss("invalid table delta from {} to {} of {}, start {}", place_.next, body.next,
                    body.end, body.start);
  }
  shard_.Note(body.sample);
  answer_ = Answer{std::move(body), message.parts[0]};
  return Status::Ok();
}

// Decodes a delta once its dictionaries are present, and queues it and its grant for the owner.
void DeltaSampler::TakeAnswer() {
  if (!answer_ || !shard_.HasDictionaries(answer_->body.sample.dictionaries)) return;
  const TableDeltaReplyBody body = answer_->body;
  auto made = std::make_shared<DecodedDelta>();
  made->anew = body.life != life_;
  made->sizes = {body.slots, body.frames};
  made->oldest = body.oldest;
  error_ = ParseTableDelta(answer_->block.bytes(), spec_, options_.view, options_.codec,
                           made->sizes, &made->feed);
  if (error_.ok()) error_ = Decode(made.get());
  answer_.reset();
  if (!error_.ok()) return;
  if (made->anew) {
    LogInfo("GPU replay starts with item {}", body.start);
    grants_.clear();  // grants of the replaced table
    open_batches_ = 0;
  }
  life_ = body.life;
  place_ = {body.start, body.next};
  behind_ = body.next < body.end;
  fresh_bytes_ += made->observation.empty() ? 0 : made->observation.bytes().size();
  fresh_.push_back(std::move(made));
  if (body.sample.batches == 0 || body.sample.charged == 0) return;
  grants_.push_back({.reserved = body.sample.reserved,
                     .charged = body.sample.charged,
                     .life = shard_.life(),
                     .batches = body.sample.batches,
                     .left = body.sample.batches});
  open_batches_ += body.sample.batches;
}

// Decodes all frames of a delta. Their number is bounded first, since it comes from a peer.
Status DeltaSampler::Decode(DecodedDelta* experience) {
  TableDelta& feed = experience->feed;
  if (feed.frames() == 0) return Status::Ok();
  // One tensor for all frames, which the learner uploads as a whole.
  const TensorSpec& one = spec_.observation;
  const std::size_t most = kDecodedMax + std::size_t(options_.view.frames_max()) * one.bytes();
  if (std::size_t(feed.frames()) > most / one.bytes()) {
    return DataLoss("table delta has {} frames of {} bytes, must have at most {}", feed.frames(),
                    one.bytes(), most / one.bytes());
  }
  experience->observation = Tensor({one.dtype, one.shape.Prepend(feed.frames())});
  std::byte* to = experience->observation.bytes().data();
  for (const EncodedBatch::Frame& frame : feed.observation) {
    TROOP_RETURN_IF_ERROR(coder_.Decode({frame.data, frame.bytes}, to));
    to += one.bytes();
  }
  feed.observation.clear();  // pointers into the message
  return Status::Ok();
}

// Requests the next delta, one at a time, since each begins where the previous one ended. While
// the replica lags, nothing is charged, so that nothing waits for the rate limiter.
Status DeltaSampler::Ask() {
  // Backpressure: stop while decoded deltas wait for the owner, but never without work for it.
  const bool owner_has_work = behind_ || open_batches_ > 0;
  const bool full = fresh_bytes_ >= kDecodedDeltaBytesMax && owner_has_work;
  if (closed_ || ticket_ != 0 || answer_ || full) return Status::Ok();
  const auto at_once = std::uint64_t(options_.batches_per_request);
  const bool wants = open_batches_ + at_once <= at_once * std::uint64_t(options_.prefetch);
  if (!behind_ && !wants) return Status::Ok();
  const bool charged = !behind_ && life_ != 0;
  const ShardConnection::Request request{
      .batches = charged ? std::uint32_t(at_once) : 0,
      .charge = charged ? std::uint32_t(at_once * std::uint64_t(options_.batch_size)) : 0,
      .drain = drain_};
  const TableDeltaBody body{
      .life = life_, .start = place_.start, .next = place_.next, .items_max = kItemsPerDelta};
  TROOP_ASSIGN_OR_RETURN(const auto ticket, shard_.RequestTableDelta(request, body));
  ticket_ = ticket.value_or(0);
  return Status::Ok();
}

// Deltas come first: a batch may only be sampled when the replica is up to date.
Result<std::optional<SampleBatch>> DeltaSampler::Next() {
  if (!error_.ok()) return error_;
  if (closed_ && open_batches_ == 0) return OutOfRange("replay feed: drained");
  const bool only_experience = behind_ || open_batches_ == 0;
  if (only_experience && !(behind_ && !fresh_.empty())) return std::optional<SampleBatch>();
  SampleBatch batch;
  batch.experience = std::exchange(fresh_, {});
  fresh_bytes_ = 0;
  if (only_experience) return std::optional(std::move(batch));
  batch.key.resize(std::size_t(options_.batch_size));
  batch.beta = options_.beta;
  Grant& grant = grants_.front();
  --grant.left;
  --open_batches_;
  // The grant's unused batches stay reserved.
  shard_.Take(grant.reserved - grant.charged * grant.left / grant.batches, grant.life);
  if (grant.left == 0) grants_.pop_front();
  return std::optional(std::move(batch));
}

// Sent to the server too, for its snapshots.
void DeltaSampler::UpdatePriorities(std::span<const ItemKey> keys,
                                    std::span<const float> priority) {
  TROOP_CHECK(keys.size() == priority.size(), "{} keys, {} priorities", keys.size(),
              priority.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    shard_.AddUpdate(std::uint64_t{keys[i].generation} << 32 | keys[i].slot, priority[i]);
  }
}

}  // namespace

std::unique_ptr<ReplaySampler> MakeDeltaSampler(std::unique_ptr<Channel> channel,
                                                const TrajectorySpec& spec,
                                                const ReplaySampler::Options& options) {
  TROOP_CHECK(options.batch_size >= 1 && options.prefetch >= 1 && options.batches_per_request >= 1,
              "batch size {}, prefetch {}, batches per request {}", options.batch_size,
              options.prefetch, options.batches_per_request);
  return std::make_unique<DeltaSampler>(std::move(channel), spec, options);
}

}  // namespace troop
