#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "replay/service/client.h"

namespace troop {

// Batches of synchronous learning (learner.synchronous): collects the unrolls that the newest
// weights have played until they have `steps` steps, then returns them as minibatches, `epochs`
// times in different orders (Schulman et al. 2017, algorithm 1). The next rollout begins when newer
// weights are published (ObservePolicyVersion). Unrolls of older weights are dropped and counted.
// The order follows from (seed, learner, version of the weights, epoch). Owner: the learner's node
// thread. The rollout is held in memory.
class RolloutSampler final : public ReplaySampler {
 public:
  struct Options {
    std::int64_t steps = 0;        // per rollout; the last unroll may exceed it
    std::int64_t epochs = 1;       // passes over each rollout
    std::int64_t minibatches = 1;  // per epoch, of nearly equal numbers of unrolls
    std::int64_t seed = 1;
    std::int64_t learner = 0;
  };
  // unrolls: batches of one item.
  RolloutSampler(std::unique_ptr<ReplaySampler> unrolls, const Options& options)
      : unrolls_(std::move(unrolls)), options_(options), epoch_(options.epochs) {}

  void AddShard(std::unique_ptr<Channel> channel) override {
    unrolls_->AddShard(std::move(channel));
  }
  void Poll(Time now) override {
    now_ = now;
    unrolls_->Poll(now);
  }
  // Errors: those of ReplaySampler::Next. At the end of the run, an incomplete rollout is dropped.
  Result<std::optional<SampleBatch>> Next() override;
  // Each unroll is used and evicted, so that its priority has no effect.
  void UpdatePriorities(std::span<const ItemKey>, std::span<const float>) override {}
  void ObservePolicyVersion(std::uint64_t version) override {
    version_ = version;
    unrolls_->ObservePolicyVersion(version);
  }
  void SetBeta(double beta) override { unrolls_->SetBeta(beta); }
  void Drain() override {
    drained_ = true;
    unrolls_->Drain();
  }
  int ready_batches() const override;
  int shards_alive() const override { return unrolls_->shards_alive(); }

  // True, once per rollout, after its last minibatch was returned: newer weights must follow.
  bool TakeEnd() { return std::exchange(ended_, false); }
  std::int64_t rollouts() const { return rollouts_; }  // complete ones
  std::int64_t dropped() const { return dropped_; }    // unrolls that were not learned from

 private:
  bool Waiting() const { return used_ && version_ <= *used_; }
  Status Collect();
  void BeginEpoch();
  SampleBatch Minibatch() const;

  const std::unique_ptr<ReplaySampler> unrolls_;
  const Options options_;
  Time now_{};                         // time of the last Poll
  std::uint64_t version_ = 0;          // newest published weights
  std::optional<std::uint64_t> used_;  // version of the last complete rollout
  std::vector<SampleBatch> rollout_;   // one item each
  std::int64_t steps_ = 0;             // steps in the rollout so far
  // Position in the rollout: epochs_ of options_ means that it is not complete yet.
  std::int64_t epoch_, minibatch_ = 0, minibatches_ = 0;
  std::vector<std::size_t> order_;  // permutation in this epoch
  bool ended_ = false, drained_ = false;
  std::int64_t rollouts_ = 0, dropped_ = 0;
};

}  // namespace troop
