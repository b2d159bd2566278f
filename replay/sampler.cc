#include <algorithm>
#include <cmath>
#include <cstring>

#include "net/codec.h"
#include "replay/client.h"
#include "replay/wire.h"

namespace troop {
namespace {

// Importance weights (N P(i))^-β over their largest of the batch: (P_min / P(i))^β, so N falls out.
void SetWeights(std::span<const double> probability, double beta, std::vector<float>* weight) {
  const double smallest = *std::ranges::min_element(probability);
  weight->resize(probability.size());
  for (std::size_t i = 0; i < probability.size(); ++i) {
    (*weight)[i] = std::pow(float(smallest / probability[i]), float(beta));
  }
}

class ReplaySamplerImpl final : public ReplaySampler {
 public:
  ReplaySamplerImpl(std::unique_ptr<Channel> channel, const TrajectorySpec& spec,
                    const Options& options)
      : channel_(std::move(channel)), spec_(spec), options_(options) {}

  void Poll(Time now) override;
  Result<std::optional<SampleBatch>> Next() override;
  void UpdatePriorities(std::span<const ItemKey> keys, std::span<const float> priority) override;
  void Drain() override { drain_ = true; }
  int ready_batches() const override { return int(ready_.size()); }

 private:
  // A block of a reply, decoded when it is taken: the copy is then in cache for the learner.
  struct Block {
    Buffer bytes;
    int n_step = 0;
  };

  void PollCalls();
  void PollUpdates();
  void TakeReply(Result<Message> reply);
  Status CheckReply(const Message& message, const SampleReplyBody& body) const;
  bool WantsMore() const;
  bool SendRequest();
  void SendUpdates();
  std::optional<Ticket> SendWithUpdates(MessageType type, std::string body);
  void NoteError(const Status& status, std::string_view what);
  SampleBatch Decode(const Block& block) const;

  std::unique_ptr<Channel> channel_;
  TrajectorySpec spec_;
  Options options_;
  std::deque<Ticket> calls_;    // samples asked for; answered in order
  std::deque<Ticket> updates_;  // updates sent alone
  std::deque<Block> ready_;
  std::vector<std::uint64_t> key_;  // updates that wait for a message
  std::vector<float> priority_;
  bool drain_ = false, drain_told_ = false, closed_ = false;
  Status error_;
};

void ReplaySamplerImpl::Poll(Time) {
  PollUpdates();
  PollCalls();
  if (!error_.ok()) return;
  while (WantsMore() && SendRequest()) {
  }
  const bool tell_drain = drain_ && !drain_told_ && !calls_.empty();
  if (!key_.empty() || tell_drain) SendUpdates();
}

void ReplaySamplerImpl::PollCalls() {
  while (!calls_.empty()) {
    auto answer = channel_->Poll(calls_.front());
    if (!answer) return;
    calls_.pop_front();
    TakeReply(std::move(*answer));
  }
}

void ReplaySamplerImpl::PollUpdates() {
  while (!updates_.empty()) {
    const auto answer = channel_->Poll(updates_.front());
    if (!answer) return;
    updates_.pop_front();
    if (!answer->ok()) NoteError(answer->status(), "replay priorities");
  }
}

void ReplaySamplerImpl::TakeReply(Result<Message> reply) {
  if (!reply.ok()) {
    if (reply.status().code() == Code::kOutOfRange) {
      closed_ = true;
    } else {
      NoteError(reply.status(), "replay sample");
    }
    return;
  }
  const auto body = DecodeBody<SampleReplyBody>(reply->body);
  const Status status = body.ok() ? CheckReply(*reply, *body) : body.status();
  if (!status.ok()) return NoteError(status, "replay sample");
  const std::size_t bytes = reply->parts[0].size() / body->batches;
  for (std::size_t b = 0; b < body->batches; ++b) {
    ready_.push_back({reply->parts[0].Slice(b * bytes, bytes), int(body->n_step)});
  }
}

// The first error that asking again can't mend. Lost samples are asked for again, as the window has
// room; lost priorities stay as they were.
void ReplaySamplerImpl::NoteError(const Status& status, std::string_view what) {
  const bool passing =
      status.code() == Code::kDeadlineExceeded || status.code() == Code::kUnavailable;
  if (!passing && error_.ok()) error_ = status.WithContext(what);
}

Status ReplaySamplerImpl::CheckReply(const Message& message, const SampleReplyBody& body) const {
  if (message.type != MessageType::kSampleReply || body.batch_size != options_.batch_size ||
      body.batches != std::uint32_t(options_.batches_per_request) || body.n_step < 1 ||
      body.n_step > 1024) {
    return DataLoss("a reply of type {} with {} batches of {}, n-step {}; asked for {} of {}",
                    int(message.type), body.batches, body.batch_size, body.n_step,
                    options_.batches_per_request, options_.batch_size);
  }
  const std::size_t expected =
      SampleLayout(spec_, options_.batch_size, int(body.n_step)).bytes * body.batches;
  if (message.parts.size() != 1 || message.parts[0].size() != expected) {
    return DataLoss(
        "{} parts, the first of {} bytes; one of {} was expected (does the server keep "
        "observation {}, action {}?)",
        message.parts.size(), message.parts.empty() ? 0 : message.parts[0].size(), expected,
        spec_.observation.ToString(), spec_.action.ToString());
  }
  return Status::Ok();
}

// In requests: those in flight, and those whose batches were not all taken.
bool ReplaySamplerImpl::WantsMore() const {
  const int per_request = options_.batches_per_request;
  const int untaken = (int(ready_.size()) + per_request - 1) / per_request;
  return !closed_ && int(calls_.size()) + untaken < options_.prefetch;
}

bool ReplaySamplerImpl::SendRequest() {
  const SampleBody body{std::uint32_t(options_.batch_size),
                        std::uint32_t(options_.batches_per_request), std::uint32_t(key_.size()),
                        drain_};
  const auto ticket = SendWithUpdates(MessageType::kSample, EncodeBody(body));
  if (ticket) calls_.push_back(*ticket);
  return ticket.has_value();
}

void ReplaySamplerImpl::SendUpdates() {
  const UpdateBody body{std::uint32_t(key_.size()), drain_};
  const auto ticket = SendWithUpdates(MessageType::kUpdatePriorities, EncodeBody(body));
  if (ticket) updates_.push_back(*ticket);
}

// nullopt: no room; nothing changed.
std::optional<Ticket> ReplaySamplerImpl::SendWithUpdates(MessageType type, std::string body) {
  if (!channel_->CanSend()) return std::nullopt;
  Message message{.type = type, .body = std::move(body)};
  if (!key_.empty()) message.parts.push_back(PackUpdates(key_, priority_));
  const auto ticket = channel_->Send(message, kForever);
  if (!ticket.ok()) {
    if (ticket.status().code() != Code::kResourceExhausted) NoteError(ticket.status(), "replay");
    return std::nullopt;
  }
  key_.clear();
  priority_.clear();
  drain_told_ = drain_;
  return *ticket;
}

void ReplaySamplerImpl::UpdatePriorities(std::span<const ItemKey> keys,
                                         std::span<const float> priority) {
  TROOP_CHECK(keys.size() == priority.size(), "{} keys, {} priorities", keys.size(),
              priority.size());
  for (const ItemKey& key : keys) {
    key_.push_back(std::uint64_t{key.generation} << 32 | key.slot);
  }
  priority_.insert(priority_.end(), priority.begin(), priority.end());
}

Result<std::optional<SampleBatch>> ReplaySamplerImpl::Next() {
  if (!ready_.empty()) {
    SampleBatch batch = Decode(ready_.front());
    ready_.pop_front();
    return std::optional(std::move(batch));
  }
  if (!error_.ok()) return error_;
  if (closed_ && calls_.empty()) return OutOfRange("replay sample: drained");
  return std::optional<SampleBatch>();
}

// One copy of the block; the tensors are views of it.
SampleBatch ReplaySamplerImpl::Decode(const Block& block) const {
  const std::int64_t rows = options_.batch_size;
  const SampleLayout layout(spec_, rows, block.n_step);
  MutableBuffer copy(layout.bytes);
  std::memcpy(copy.data(), block.bytes.data(), layout.bytes);
  const auto owner = std::move(copy).share();
  const Table::Rows at = layout.RowsAt(owner.get());
  const auto view = [&owner, rows](void* data, const TensorSpec& row) {
    const TensorSpec spec{row.dtype, row.shape.Prepend(rows)};
    return Tensor::View(owner, {static_cast<std::byte*>(data), spec.bytes()}, spec);
  };
  SampleBatch batch;
  batch.key.reserve(std::size_t(rows));
  for (std::int64_t i = 0; i < rows; ++i) {
    batch.key.push_back({std::uint32_t(at.key[i]), std::uint32_t(at.key[i] >> 32)});
  }
  batch.probability.assign(at.probability, at.probability + rows);
  SetWeights(batch.probability, options_.beta, &batch.weight);
  batch.observation = view(at.observation, spec_.observation);
  batch.next_observation = view(at.next_observation, spec_.observation);
  batch.action = view(at.action, spec_.action);
  const TensorSpec steps{DType::kF32, {block.n_step}};
  batch.reward = view(at.reward, steps);
  batch.discount = view(at.discount, steps);
  batch.length.assign(at.length, at.length + rows);
  batch.policy_version.assign(at.policy_version, at.policy_version + rows);
  return batch;
}

}  // namespace

std::unique_ptr<ReplaySampler> MakeReplaySampler(std::unique_ptr<Channel> channel,
                                                 const TrajectorySpec& spec,
                                                 const ReplaySampler::Options& options) {
  TROOP_CHECK(options.batch_size >= 1 && options.prefetch >= 1 && options.batches_per_request >= 1,
              "batch size {}, prefetch {}, batches per request {}", options.batch_size,
              options.prefetch, options.batches_per_request);
  return std::make_unique<ReplaySamplerImpl>(std::move(channel), spec, options);
}

}  // namespace troop
