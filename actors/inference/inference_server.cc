// Implements the inference server: queue, batching, weight pulls and replies.

#include "actors/inference/inference_server.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "actors/inference/messages.h"
#include "core/base/log.h"
#include "kernels/elementwise/is_finite.h"
#include "net/wire/codec.h"
#include "nn/models/model.h"

namespace troop {
namespace {

// Limit of the queue in batches: an actor has one request at a time, and retries a rejected one.
constexpr std::int64_t kBatchesWaitingMax = 64;
// Poll interval for weights while there are none.
constexpr Duration kSoon = Milliseconds(5);

}  // namespace

InferenceServer::InferenceServer(Options options)
    : options_{.observation = options.observation,
               .max_batch_size = options.max_batch_size,
               .wait = options.wait,
               .refresh = options.refresh,
               .policy = nullptr,
               .executor = options.executor,
               .connect = std::move(options.connect)},
      policy_(std::move(options.policy)),
      observation_(options_.observation.dtype,
                   options_.observation.shape.Prepend(options_.max_batch_size)) {
  keys_.reserve(std::size_t(options_.max_batch_size));
}

// A rejected request gets an error at once; an accepted one waits for a batch.
void InferenceServer::Handle(Message message, Reply reply) {
  const Status status =
      message.type == MessageType::kInfer
          ? Take(std::move(message), &reply)
          : InvalidArgument("inference: unsupported message type {}", int(message.type));
  if (status.ok()) return;
  ++refused_;
  reply.Fail(status);
}

// Validates sizes; the contents need no checks.
Status InferenceServer::Take(Message message, Reply* reply) {
  const std::size_t row = options_.observation.bytes();
  // Both parts must describe the same number of observations.
  const bool whole = message.parts.size() == 2 && !message.parts[1].empty() &&
                     message.parts[1].size() % sizeof(ExploreKey) == 0;
  const std::size_t rows = whole ? message.parts[1].size() / sizeof(ExploreKey) : 0;
  if (!whole || rows * row != message.parts[0].size()) {
    return InvalidArgument(
        "inference: {} parts of {} and {} bytes are not observations of {} bytes, each with a key "
        "of "
        "{} bytes; the run's roles have different configs",
        message.parts.size(), message.parts.empty() ? 0 : message.parts[0].size(),
        message.parts.size() < 2 ? 0 : message.parts[1].size(), row, sizeof(ExploreKey));
  }
  if (std::int64_t(rows) > options_.max_batch_size) {
    return InvalidArgument(
        "inference: {} observations in one request, must be at most {} (inference.max_batch_size)",
        rows, options_.max_batch_size);
  }
  // A temporary error: the actor retries.
  if (rows_waiting_ + std::int64_t(rows) > kBatchesWaitingMax * options_.max_batch_size) {
    return ResourceExhausted("inference: the queue is full with {} observations", rows_waiting_);
  }
  // From now on batches wait for this caller, too.
  asking_.insert(message.origin.index);
  rows_waiting_ += std::int64_t(rows);
  // `since` is set by Tick, because Handle has no clock.
  waiting_.push_back({.caller = message.origin,
                      .observation = std::move(message.parts[0]),
                      .keys = std::move(message.parts[1]),
                      .rows = std::int64_t(rows),
                      .reply = std::move(*reply),
                      .since = {}});
  return Status::Ok();
}

// A caller that has disconnected is not waited for.
void InferenceServer::PeerChanged(const Origin& peer, PeerState state) {
  if (state == PeerState::kDown || state == PeerState::kHung) asking_.erase(peer.index);
}

// Connects first, then pulls at intervals; one request at a time.
void InferenceServer::PullWeights(Time now) {
  if (!weights_) {
    if (now < next_pull_) return;
    next_pull_ = now + kSoon;
    Result<std::unique_ptr<WeightSubscriber>> connected = options_.connect();
    if (!connected.ok()) {
      status_ = connected.status();
      return;
    }
    weights_ = std::move(*connected);
    if (!weights_) return;
  }
  if (std::optional<WeightSnapshot> snapshot = weights_->Poll(now)) {
    const std::span<const float> value = snapshot->value.as<float>();
    // Non-finite weights are dropped; the older ones stay in use.
    if (AllFinite(value)) {
      newest_ = std::move(*snapshot);
    } else {
      ++bad_weights_;
      LogWarning("rejected the weights of update {}: value {} is {}", UpdatesOf(snapshot->version),
                 FirstNonFinite(value), value[FirstNonFinite(value)]);
    }
  }
  status_ = weights_->error();
  if (weights_->requesting() || now < next_pull_) return;
  next_pull_ = now + (HasWeights() ? options_.refresh : kSoon);
  weights_->Request(now);
}

// True if waiting cannot improve the batch: it is full, or has all active callers.
bool InferenceServer::Full() const {
  return rows_waiting_ >= options_.max_batch_size || waiting_.size() >= asking_.size();
}

// Order: finish the batch, update weights, start batches.
Time InferenceServer::Tick(Time now) {
  Collect();
  if (status_.ok()) PullWeights(now);
  // The wait starts with the first turn that sees a request.
  for (Request& request : waiting_) {
    if (request.since) continue;
    request.since = now;
  }
  // Several batches may start in one turn if the executor is synchronous.
  while (status_.ok() && !draining_ && job_ == 0 && !waiting_.empty() && HasWeights() &&
         (Full() || now - *waiting_.front().since >= options_.wait)) {
    Launch(now);
    Collect();
  }
  // The next pull, or the deadline of the oldest request.
  Time next = weights_ && weights_->requesting() ? kForever : next_pull_;
  if (!waiting_.empty() && job_ == 0 && has_weights_) {
    next = std::min(next, *waiting_.front().since + options_.wait);
  }
  return next;
}

// Starts a batch of whole requests from the front of the queue.
void InferenceServer::Launch(Time now) {
  const bool late = now - *waiting_.front().since >= options_.wait && !Full();
  std::int64_t rows = 0;
  while (!waiting_.empty() && rows + waiting_.front().rows <= options_.max_batch_size) {
    rows += waiting_.front().rows;
    batch_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  rows_waiting_ -= rows;
  if (late) {  // a missing caller is not waited for until its next request
    asking_.clear();
    for (const Request& request : batch_) asking_.insert(request.caller.index);
  }
  // New weights take effect between batches only.
  batch_weights_ = std::move(newest_);
  newest_ = {};
  const Result<Executor::Job> job = options_.executor->Submit("inference", [this] { Compute(); });
  TROOP_CHECK(job.ok(), "{}", job.status().ToString());
  has_weights_ = true;
  job_ = *job;
}

// Runs in a job of the executor.
void InferenceServer::Compute() {
  if (batch_weights_.version != 0) {
    batch_status_ = policy_->SetWeights(batch_weights_.version, batch_weights_.value.as<float>());
    batch_weights_ = {};
    if (!batch_status_.ok()) return;
  }
  // Requests are concatenated in queue order; Answer uses the same offsets.
  keys_.clear();
  std::byte* to = observation_.bytes().data();
  for (const Request& request : batch_) {
    std::memcpy(to, request.observation.data(), request.observation.size());
    to += request.observation.size();
    const auto keys = request.keys.as<ExploreKey>();
    keys_.insert(keys_.end(), keys.begin(), keys.end());
  }
  policy_->Submit(observation_.Rows(0, std::int64_t(keys_.size())), keys_);
  output_ = policy_->Poll();
}

// After the job the batch belongs to the node's thread again.
void InferenceServer::Collect() {
  if (job_ == 0 || !options_.executor->TakeDone(job_)) return;
  job_ = 0;
  if (!batch_status_.ok()) {
    status_ = batch_status_;
    return;
  }
  ++batches_;
  version_ = output_->version;
  std::int64_t first = 0;
  for (Request& request : batch_) {
    Answer(&request, first);
    first += request.rows;
  }
  actions_ += first;
  batch_.clear();
}

// The rows of one request, copied from the batch's output.
void InferenceServer::Answer(Request* request, std::int64_t first) {
  Message answer{.type = MessageType::kInferReply,
                 .body = EncodeBody(InferReplyBody{output_->version})};
  for (const ConstTensor* all :
       {&output_->action, &output_->q, &output_->q_taken, &output_->q_max}) {
    const std::size_t row = all->bytes().size() / std::size_t(all->dim(0));
    answer.parts.push_back(Buffer::Copy(
        all->bytes().subspan(std::size_t(first) * row, std::size_t(request->rows) * row)));
  }
  request->reply.Send(std::move(answer));
}

void InferenceServer::Drain() { draining_ = true; }

// Totals since the start, as counters of the role.
void InferenceServer::Report(Metrics* metrics) const {
  const auto count = [metrics](std::string_view name, std::int64_t value) {
    metrics->Gauge(name, double(value), MetricKind::kCounter);
  };
  count("inference/actions", actions_);
  count("inference/batches", batches_);
  count("inference/rejected_requests", refused_);
  count("inference/nonfinite_weights", bad_weights_);
  metrics->Gauge("inference/waiting_requests", double(rows_waiting_), MetricKind::kGaugeSum);
  metrics->Gauge("inference/weights_version", double(UpdatesOf(version_)));
}

Result<std::unique_ptr<InferenceServer>> MakeInferenceServer(
    const ActingConfig& config, const EnvSpec& env, Executor* executor,
    std::function<Result<std::unique_ptr<WeightSubscriber>>()> connect) {
  InferenceServer::Options options{.observation = NetworkInput(config.model, env),
                                   .max_batch_size = config.inference.max_batch_size,
                                   .wait = Seconds(config.inference.batch_timeout_s),
                                   .refresh = Seconds(config.inference.weight_sync_s),
                                   .policy = nullptr,
                                   .executor = executor,
                                   .connect = std::move(connect)};
  TROOP_ASSIGN_OR_RETURN(options.policy,
                         MakeServerPolicy(config, env, int(config.inference.max_batch_size)));
  return std::make_unique<InferenceServer>(std::move(options));
}

}  // namespace troop
