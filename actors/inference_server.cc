#include "actors/inference_server.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "actors/inference_wire.h"
#include "core/log.h"
#include "kernels/finite.h"
#include "net/codec.h"
#include "nn/model.h"

namespace troop {
namespace {

// Requests that wait hold no more observations than so many batches: an actor has one at a time,
// and who is refused asks again.
constexpr std::int64_t kBatchesWaitingMax = 64;
// Between two looks for weights while there are none.
constexpr Duration kSoon = Milliseconds(5);

}  // namespace

InferenceServer::InferenceServer(Options options)
    : options_{.observation = options.observation,
               .batch_max = options.batch_max,
               .wait = options.wait,
               .refresh = options.refresh,
               .policy = nullptr,
               .executor = options.executor,
               .connect = std::move(options.connect)},
      policy_(std::move(options.policy)),
      observation_(options_.observation.dtype,
                   options_.observation.shape.Prepend(options_.batch_max)) {
  keys_.reserve(std::size_t(options_.batch_max));
}

void InferenceServer::Handle(Message message, Reply reply) {
  const Status status =
      message.type == MessageType::kInfer
          ? Take(std::move(message), &reply)
          : InvalidArgument("inference: message type {} is not for it", int(message.type));
  if (status.ok()) return;
  ++refused_;
  reply.Fail(status);
}

Status InferenceServer::Take(Message message, Reply* reply) {
  const std::size_t row = options_.observation.bytes();
  const bool whole = message.parts.size() == 2 && !message.parts[1].empty() &&
                     message.parts[1].size() % sizeof(ExploreKey) == 0;
  const std::size_t rows = whole ? message.parts[1].size() / sizeof(ExploreKey) : 0;
  if (!whole || rows * row != message.parts[0].size()) {
    return InvalidArgument(
        "inference: {} parts of {} and {} bytes are no observations of {} bytes each with a key of "
        "{}: the run's roles have different configs",
        message.parts.size(), message.parts.empty() ? 0 : message.parts[0].size(),
        message.parts.size() < 2 ? 0 : message.parts[1].size(), row, sizeof(ExploreKey));
  }
  if (std::int64_t(rows) > options_.batch_max) {
    return InvalidArgument("inference: {} observations at once; at most {} (inference.batch_max)",
                           rows, options_.batch_max);
  }
  if (rows_waiting_ + std::int64_t(rows) > kBatchesWaitingMax * options_.batch_max) {
    return ResourceExhausted("inference: {} observations wait already", rows_waiting_);
  }
  asking_.insert(message.origin.index);
  rows_waiting_ += std::int64_t(rows);
  waiting_.push_back({.caller = message.origin,
                      .observation = std::move(message.parts[0]),
                      .keys = std::move(message.parts[1]),
                      .rows = std::int64_t(rows),
                      .reply = std::move(*reply),
                      .since = {}});
  return Status::Ok();
}

void InferenceServer::PeerChanged(const Origin& peer, PeerState state) {
  if (state == PeerState::kDown || state == PeerState::kHung) asking_.erase(peer.index);
}

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
    if (AllFinite(value)) {
      newest_ = std::move(*snapshot);
    } else {
      ++bad_weights_;
      LogWarning("the weights of update {} are not used: number {} of them is {}",
                 UpdatesOf(snapshot->version), FirstUnfinite(value), value[FirstUnfinite(value)]);
    }
  }
  status_ = weights_->error();
  if (weights_->requesting() || now < next_pull_) return;
  next_pull_ = now + (HasWeights() ? options_.refresh : kSoon);
  weights_->Request(now);
}

bool InferenceServer::Full() const {
  return rows_waiting_ >= options_.batch_max || waiting_.size() >= asking_.size();
}

Time InferenceServer::Tick(Time now) {
  Collect();
  if (status_.ok()) PullWeights(now);
  for (Request& request : waiting_) {
    if (request.since) continue;
    request.since = now;
  }
  while (status_.ok() && !draining_ && job_ == 0 && !waiting_.empty() && HasWeights() &&
         (Full() || now - *waiting_.front().since >= options_.wait)) {
    Launch(now);
    Collect();
  }
  Time next = weights_ && weights_->requesting() ? kForever : next_pull_;
  if (!waiting_.empty() && job_ == 0 && has_weights_) {
    next = std::min(next, *waiting_.front().since + options_.wait);
  }
  return next;
}

// Takes whole requests from the front, and computes them.
void InferenceServer::Launch(Time now) {
  const bool late = now - *waiting_.front().since >= options_.wait && !Full();
  std::int64_t rows = 0;
  while (!waiting_.empty() && rows + waiting_.front().rows <= options_.batch_max) {
    rows += waiting_.front().rows;
    batch_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  rows_waiting_ -= rows;
  if (late) {  // who is not here is not waited for again until it asks
    asking_.clear();
    for (const Request& request : batch_) asking_.insert(request.caller.index);
  }
  batch_weights_ = std::move(newest_);
  newest_ = {};
  const Result<Executor::Job> job = options_.executor->Submit("inference", [this] { Compute(); });
  TROOP_CHECK(job.ok(), "{}", job.status().ToString());
  has_weights_ = true;
  job_ = *job;
}

// The executor's part.
void InferenceServer::Compute() {
  if (batch_weights_.version != 0) {
    batch_status_ = policy_->SetWeights(batch_weights_.version, batch_weights_.value.as<float>());
    batch_weights_ = {};
    if (!batch_status_.ok()) return;
  }
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

void InferenceServer::Report(Metrics* metrics) const {
  const auto count = [metrics](std::string_view name, std::int64_t value) {
    metrics->Gauge(name, double(value), MetricKind::kCounter);
  };
  count("inference/actions", actions_);
  count("inference/batches", batches_);
  count("inference/refused", refused_);
  count("inference/bad_weights", bad_weights_);
  metrics->Gauge("inference/waiting", double(rows_waiting_), MetricKind::kGaugeSum);
  metrics->Gauge("inference/weights_version", double(UpdatesOf(version_)));
}

Result<std::unique_ptr<InferenceServer>> MakeInferenceServer(
    const Config& config, const EnvSpec& env, Executor* executor,
    std::function<Result<std::unique_ptr<WeightSubscriber>>()> connect) {
  InferenceServer::Options options{.observation = NetworkInput(config, env),
                                   .batch_max = config.inference.batch_max,
                                   .wait = Seconds(config.inference.wait_s),
                                   .refresh = Seconds(config.inference.refresh_s),
                                   .policy = nullptr,
                                   .executor = executor,
                                   .connect = std::move(connect)};
  TROOP_ASSIGN_OR_RETURN(options.policy,
                         MakeServerPolicy(config, env, int(config.inference.batch_max)));
  return std::make_unique<InferenceServer>(std::move(options));
}

}  // namespace troop
