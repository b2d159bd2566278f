#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "datasets/text/tokenized_dataset.h"

namespace troop {

// Order of an epoch: global batches of samples of similar length, so that workers that share a
// batch have equal work. It depends on (seed, epoch) and the samples' lengths only: any number of
// workers sees the same batches.
//
// Samples are shuffled and cut into pools of `pool_batches` batches; each pool is sorted by length
// and cut into batches, and the batches are shuffled. All batches but one have `batch_size`
// samples; each sample occurs once per epoch. An owner's value; construction is O(N log N).
class BucketBatchSampler {
 public:
  struct Options {
    std::uint64_t seed = 0;
    std::int64_t epoch = 0;
    std::int32_t batch_size = 32;
    std::int32_t pool_batches = 64;  // 1: no length bucketing across batches
  };
  BucketBatchSampler(std::span<const std::int32_t> lengths, const Options& options);

  std::int64_t batches() const { return std::int64_t(begins_.size()) - 1; }
  // The samples of global batch `i`, by increasing length. REQUIRES: 0 <= i < batches().
  std::span<const std::int32_t> batch(std::int64_t i) const {
    return std::span(samples_).subspan(begins_[i], begins_[i + 1] - begins_[i]);
  }

 private:
  std::vector<std::int32_t> samples_;
  std::vector<std::size_t> begins_;
};

// Splits a global batch among workers. Worker w takes shares[w] / sum of the samples, rounded so
// that the counts add up. The longest samples are assigned first, each to the worker with the
// fewest tokens relative to its share. lengths: of all samples of the set. Every worker computes
// the same split. O(B log B + B W). REQUIRES: shares are positive.
std::vector<std::vector<std::int32_t>> SplitBatch(std::span<const std::int32_t> batch,
                                                  std::span<const std::int32_t> lengths,
                                                  std::span<const double> shares);

// A packed batch: sequences laid end to end without padding, the input of a model's forward.
struct PackedBatch {
  std::vector<TokenId> ids;           // [T]
  std::vector<std::int32_t> begins;   // [B + 1]: cu_seqlens
  std::vector<std::int32_t> types;    // [T]: 1 in the second segment of a pair; empty: all 0
  std::vector<std::int32_t> labels;   // [B]: classes; -1: none
  std::vector<float> targets;         // [B, width of the set]
  std::vector<std::int32_t> samples;  // [B]: global indices, the keys of dropout
};
// Packs the given samples of a set. O(T).
PackedBatch PackBatch(const TokenizedDataset& set, std::span<const std::int32_t> samples);

// Sequence lengths of all samples.
std::vector<std::int32_t> LengthsOf(const TokenizedDataset& set);

}  // namespace troop
