#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "actors/policy.h"
#include "core/metrics.h"
#include "core/node.h"
#include "net/network.h"
#include "paramserver/client.h"

namespace troop {

// Chooses actions for actors that have no weights (SEED RL, Espeholt et al. 2020, sec. 3.1): what
// several ask is computed as one batch, with the newest weights that it has. A batch begins when
// the one before is done and it is full, or all who have been asking are there, or its first
// request has waited for Options::wait. A request is computed whole; without weights it waits.
// Equal keys and weights give equal actions, whatever else is in the batch, but for q-values whose
// last bits differ. Owner: the node's thread; the batch itself is the executor's.
class InferenceServer final : public Service {
 public:
  struct Options {
    TensorSpec observation;  // of one environment, as the network takes it
    std::int64_t batch_max = 256;
    Duration wait = Milliseconds(2);
    Duration refresh = Milliseconds(100);  // between weight pulls
    std::unique_ptr<Policy> policy;        // for up to batch_max observations
    Executor* executor = nullptr;          // outlives it
    // Where weights come from; null: it is not known yet.
    std::function<Result<std::unique_ptr<WeightSubscriber>>()> connect;
  };
  // It ends when no batch is under way, or after its executor. Whoever waits then asks again.
  explicit InferenceServer(Options options);

  void Handle(Message message, Reply reply) override;
  void PeerChanged(const Origin& peer, PeerState state) override;
  // Once a turn; when it wants the next one.
  Time Tick(Time now);
  void Report(Metrics* metrics) const;
  // No new batch; drained(): none is under way.
  void Drain();
  bool drained() const { return job_ == 0; }
  // Not ok: it can't go on.
  const Status& status() const { return status_; }

 private:
  struct Request {
    Origin caller;
    Buffer observation, keys;
    std::int64_t rows = 0;
    Reply reply;
    std::optional<Time> since;  // nullopt: Tick has not seen it yet
  };

  Status Take(Message message, Reply* reply);
  void PullWeights(Time now);
  void Collect();
  bool HasWeights() const { return has_weights_ || newest_.version != 0; }
  bool Full() const;
  void Launch(Time now);
  void Compute();
  void Answer(Request* request, std::int64_t first);

  const Options options_;
  const std::unique_ptr<Policy> policy_;
  std::unique_ptr<WeightSubscriber> weights_;
  WeightSnapshot newest_;  // that the policy does not have yet; version 0: it has the newest
  std::deque<Request> waiting_;
  std::int64_t rows_waiting_ = 0;
  // Of the batch under way: the executor's until it is done.
  std::vector<Request> batch_;
  WeightSnapshot batch_weights_;  // that it begins with; version 0: those before
  Status batch_status_;
  Tensor observation_;  // [batch_max, ...]
  std::vector<ExploreKey> keys_;
  const PolicyOutput* output_ = nullptr;
  Executor::Job job_ = 0;
  std::set<std::int32_t> asking_;  // indices of those that have been asking
  bool has_weights_ = false, draining_ = false;
  Time next_pull_{};
  std::uint64_t version_ = 0;
  std::int64_t actions_ = 0, batches_ = 0, refused_ = 0, bad_weights_ = 0;
  Status status_;
};

// As [inference] of the config says. Errors: the network can't be made; kUnavailable: no GPU.
Result<std::unique_ptr<InferenceServer>> MakeInferenceServer(
    const Config& config, const EnvSpec& env, Executor* executor,
    std::function<Result<std::unique_ptr<WeightSubscriber>>()> connect);

}  // namespace troop
