#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "actors/policy.h"
#include "core/base/node.h"
#include "core/metrics/metrics.h"
#include "net/network.h"
#include "paramserver/weights/weights_client.h"

namespace troop {

// Chooses actions for actors that hold no weights (SEED RL, Espeholt et al. 2020, sec. 3.1):
// concurrent requests are computed as one batch, with the newest weights that the server has. Only
// one batch runs at a time. The next one starts when it is full, when all active callers have a
// request in it, or when its first request has waited for Options::wait. A request is never split
// over batches, and waits until the server has weights. For equal observations, keys and weights,
// the action does not depend on the batch, except where q-values differ in their last bits. Owner:
// the node's thread; until its job is done, the current batch belongs to the executor.
class InferenceServer final : public Service {
 public:
  struct Options {
    TensorSpec observation;  // one environment's observation, as the network receives it
    std::int64_t max_batch_size = 256;
    Duration wait = Milliseconds(2);
    Duration refresh = Milliseconds(100);  // between weight pulls
    std::unique_ptr<Policy> policy;        // for up to max_batch_size observations
    Executor* executor = nullptr;          // must be valid while the server is called
    // Connects to the source of weights; returns null while its address is unknown.
    std::function<Result<std::unique_ptr<WeightSubscriber>>()> connect;
  };
  // Destroy the server when no batch is running, or after the executor, whose destructor finishes
  // the batch. Callers that are still waiting get an error and retry.
  explicit InferenceServer(Options options);

  void Handle(Message message, Reply reply) override;
  void PeerChanged(const Origin& peer, PeerState state) override;
  // Replies to the callers of a finished batch, pulls weights and starts batches. Called once per
  // turn of the node; returns the time of the next call if nothing wakes the node earlier.
  Time Tick(Time now);
  void Report(Metrics* metrics) const;
  // Makes Tick start no more batches. drained(): true if none is running.
  void Drain();
  bool drained() const { return job_ == 0; }
  // Not ok: the server cannot continue.
  const Status& status() const { return status_; }

 private:
  struct Request {
    Origin caller;
    Buffer observation, keys;
    std::int64_t rows = 0;
    Reply reply;
    std::optional<Time> since;  // time at which Tick first saw it; nullopt: not yet
  };

  // Validates a request and queues it.
  Status Take(Message message, Reply* reply);
  void PullWeights(Time now);
  void Collect();
  bool HasWeights() const { return has_weights_ || newest_.version != 0; }
  bool Full() const;
  // Launch starts a batch, Compute runs it in a job of the executor, Answer replies to one request.
  void Launch(Time now);
  void Compute();
  void Answer(Request* request, std::int64_t first);

  const Options options_;
  const std::unique_ptr<Policy> policy_;
  std::unique_ptr<WeightSubscriber> weights_;
  WeightSnapshot newest_;  // not yet in the policy; version 0: the policy has the newest
  std::deque<Request> waiting_;
  std::int64_t rows_waiting_ = 0;
  // Current batch; used by the executor until the job is done.
  std::vector<Request> batch_;
  WeightSnapshot batch_weights_;  // given to the policy before the batch; version 0: none
  Status batch_status_;
  Tensor observation_;  // [max_batch_size, ...]
  std::vector<ExploreKey> keys_;
  const PolicyOutput* output_ = nullptr;
  Executor::Job job_ = 0;
  std::set<std::int32_t> asking_;  // Origin::index of the active callers: a batch waits for these
  bool has_weights_ = false, draining_ = false;
  Time next_pull_{};
  std::uint64_t version_ = 0;
  // Totals for Report.
  std::int64_t actions_ = 0, batches_ = 0, refused_ = 0, bad_weights_ = 0;
  Status status_;
};

// Makes the server that the config's [inference] keys describe. Errors: the network cannot be made;
// kUnavailable: inference.device requests a GPU, but none can be used.
Result<std::unique_ptr<InferenceServer>> MakeInferenceServer(
    const ActingConfig& config, const EnvSpec& env, Executor* executor,
    std::function<Result<std::unique_ptr<WeightSubscriber>>()> connect);

}  // namespace troop
