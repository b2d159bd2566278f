#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "text/token_set.h"

namespace troop {

// The order of an epoch: global batches of samples whose lengths are near each other, so that those
// who share a batch have equal work. It follows from (seed, epoch) and the samples' lengths, never
// from who asks: any number of workers sees the same batches.
//
// Samples are shuffled, cut into pools of `pool_batches` batches, each pool sorted by length and
// cut into batches, and the batches shuffled. All batches but one have `batch_size` samples; each
// sample comes once an epoch. An owner's value; making it is O(N log N).
class EpochOrder {
 public:
  struct Options {
    std::uint64_t seed = 0;
    std::int64_t epoch = 0;
    std::int32_t batch_size = 32;
    std::int32_t pool_batches = 64;  // 1: not sorted across batches
  };
  EpochOrder(std::span<const std::int32_t> lengths, const Options& options);

  std::int64_t batches() const { return std::int64_t(begins_.size()) - 1; }
  // The samples of global batch `i`, by growing length. REQUIRES: 0 <= i < batches().
  std::span<const std::int32_t> batch(std::int64_t i) const {
    return std::span(samples_).subspan(begins_[i], begins_[i + 1] - begins_[i]);
  }

 private:
  std::vector<std::int32_t> samples_;
  std::vector<std::size_t> begins_;
};

// Which samples of a global batch each worker takes. Worker w takes its part shares[w] / sum of the
// samples, to the nearest that adds up; the longest are given first, each to the worker whose
// tokens are furthest behind its share. lengths: of all samples of the set. The same on every
// worker, O(B log B + B W). REQUIRES: shares are positive.
std::vector<std::vector<std::int32_t>> SplitBatch(std::span<const std::int32_t> batch,
                                                  std::span<const std::int32_t> lengths,
                                                  std::span<const double> shares);

// Samples behind each other, without padding: what a model's forward takes.
struct PackedBatch {
  std::vector<TokenId> ids;              // [T]
  std::vector<std::int32_t> begins;      // [B + 1]: cu_seqlens
  std::vector<std::int32_t> sentiments;  // [B]
  std::vector<std::int32_t> samples;     // [B]: global indices, the keys of dropout
};
PackedBatch PackBatch(const TokenSet& set, std::span<const std::int32_t> samples);

std::vector<std::int32_t> LengthsOf(const TokenSet& set);

}  // namespace troop
