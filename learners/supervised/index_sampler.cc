// Implements the sampler of supervised mode, which only grants updates.

#include "learners/supervised/index_sampler.h"

namespace troop {
namespace {

// All batches are one empty item: the algorithm picks the samples itself.
class IndexSampler final : public ReplaySampler {
 public:
  void AddShard(std::unique_ptr<Channel>) override {}
  void Poll(Time) override {}
  Result<std::optional<SampleBatch>> Next() override {
    SampleBatch batch;
    batch.key.resize(1);
    return std::optional<SampleBatch>(std::move(batch));
  }
  void UpdatePriorities(std::span<const ItemKey>, std::span<const float>) override {}
  void ObservePolicyVersion(std::uint64_t) override {}
  void SetBeta(double) override {}
  void Drain() override {}
  int ready_batches() const override { return 1; }
  int shards_alive() const override { return 1; }
};

}  // namespace

std::unique_ptr<ReplaySampler> MakeIndexSampler() { return std::make_unique<IndexSampler>(); }

}  // namespace troop
