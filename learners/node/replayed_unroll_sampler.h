#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "replay/service/client.h"

namespace troop {

// Batches of new unrolls and of some that were learned from before (learner.replayed_fraction;
// Espeholt et al. 2018, section 5.2.2): after the rows of `fresh` follow `rows` unrolls, uniformly
// sampled with replacement from the last `capacity` ones, whose policies are older. The first batch
// has new unrolls only. The rows of batch number k follow from (seed, learner, k) and the unrolls
// before. Owner: the learner's node thread. Holds the unrolls decoded, in memory.
class ReplayedUnrollSampler final : public ReplaySampler {
 public:
  struct Options {
    std::int64_t rows = 1;      // replayed unrolls per batch
    std::int64_t capacity = 1;  // unrolls
    std::int64_t seed = 1;
    std::int64_t learner = 0;
    std::uint64_t first = 0;  // number of the first batch
  };
  ReplayedUnrollSampler(std::unique_ptr<ReplaySampler> fresh, const Options& options)
      : fresh_(std::move(fresh)), options_(options), number_(options.first) {}

  void AddShard(std::unique_ptr<Channel> channel) override { fresh_->AddShard(std::move(channel)); }
  void Poll(Time now) override { fresh_->Poll(now); }
  Result<std::optional<SampleBatch>> Next() override;
  // An excluded item (priority -0) is not replayed either.
  void UpdatePriorities(std::span<const ItemKey> keys, std::span<const float> priority) override;
  void ObservePolicyVersion(std::uint64_t version) override {
    fresh_->ObservePolicyVersion(version);
  }
  void SetBeta(double beta) override { fresh_->SetBeta(beta); }
  void Drain() override { fresh_->Drain(); }
  int ready_batches() const override { return fresh_->ready_batches(); }
  int shards_alive() const override { return fresh_->shards_alive(); }

 private:
  const std::unique_ptr<ReplaySampler> fresh_;
  const Options options_;
  std::deque<SampleBatch> unrolls_;  // one each, oldest first
  std::uint64_t number_;             // number of the next batch
};

}  // namespace troop
