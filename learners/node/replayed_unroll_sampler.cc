// Implements the mixture of new and replayed unrolls.
#include "learners/node/replayed_unroll_sampler.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/base/philox.h"
#include "learners/node/unroll_rows.h"

namespace troop {
namespace {

// Index of the random stream of learner 0: between those of replay shards and of demonstrations.
constexpr std::uint64_t kReplayedStream = std::uint64_t{1} << 62;

}  // namespace

// Samples before the new unrolls are added, so that no unroll is in a batch twice for that reason.
Result<std::optional<SampleBatch>> ReplayedUnrollSampler::Next() {
  TROOP_ASSIGN_OR_RETURN(std::optional<SampleBatch> sampled, fresh_->Next());
  if (!sampled || sampled->key.empty()) return sampled;
  Rng rng({.run_seed = std::uint64_t(options_.seed),
           .purpose = Purpose::kReplaySampling,
           .index = kReplayedStream + std::uint64_t(options_.learner),
           .episode = number_++});
  std::vector<std::size_t> replayed;
  for (std::int64_t i = 0; i < options_.rows && !unrolls_.empty(); ++i)
    replayed.push_back(rng.Below(std::uint32_t(unrolls_.size())));
  // Elements of a deque stay where they are while others are appended.
  std::vector<const SampleBatch*> rows;
  for (std::int64_t row = 0; row < sampled->size(); ++row)
    rows.push_back(&unrolls_.emplace_back(UnrollAt(*sampled, row)));
  for (const std::size_t i : replayed) rows.push_back(&unrolls_[i]);
  std::optional<SampleBatch> batch = JoinUnrolls(rows);
  while (std::ssize(unrolls_) > options_.capacity) unrolls_.pop_front();
  return batch;
}

void ReplayedUnrollSampler::UpdatePriorities(std::span<const ItemKey> keys,
                                             std::span<const float> priority) {
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (priority[i] != 0 || !std::signbit(priority[i])) continue;
    std::erase_if(unrolls_, [&](const SampleBatch& one) { return one.key[0] == keys[i]; });
  }
  fresh_->UpdatePriorities(keys, priority);
}

}  // namespace troop
