// Length bucketing and the deterministic split of batches among workers.

#include "datasets/text/length_bucketing.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/base/check.h"
#include "core/base/philox.h"

namespace troop {
namespace {

// Fisher-Yates shuffle.
template <class T>
void Shuffle(std::vector<T>* values, Rng* rng) {
  for (std::size_t i = values->size(); i > 1; --i) {
    std::swap((*values)[i - 1], (*values)[rng->Below(std::uint32_t(i))]);
  }
}

// Number of samples of each worker by the largest remainder method: its share rounded down, and one
// more for the largest remainders; of equal ones the first.
std::vector<std::size_t> CountsOf(std::size_t samples, std::span<const double> shares) {
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  std::vector<std::size_t> counts, by_rest;
  std::vector<double> rests;
  std::size_t given = 0;
  for (const double share : shares) {
    TROOP_CHECK(share > 0, "share is {}, must be positive", share);
    // Exact share; its integer part is assigned now.
    const double exact = double(samples) * share / sum;
    counts.push_back(std::size_t(exact));
    rests.push_back(exact - std::floor(exact));
    by_rest.push_back(by_rest.size());
    given += counts.back();
  }
  std::stable_sort(by_rest.begin(), by_rest.end(),
                   [&](std::size_t a, std::size_t b) { return rests[a] > rests[b]; });
  for (std::size_t i = 0; given < samples; ++i, ++given) ++counts[by_rest[i % by_rest.size()]];
  return counts;
}

}  // namespace

BucketBatchSampler::BucketBatchSampler(std::span<const std::int32_t> lengths,
                                       const Options& options) {
  TROOP_CHECK(options.batch_size > 0 && options.pool_batches > 0,
              "batch size {} and pool size {} must be positive", options.batch_size,
              options.pool_batches);
  Rng rng({.run_seed = options.seed,
           .purpose = Purpose::kBatchOrder,
           .episode = std::uint64_t(options.epoch)});
  // Step 1: shuffle all samples.
  std::vector<std::int32_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  Shuffle(&order, &rng);
  const std::size_t batch = std::size_t(options.batch_size);
  const std::size_t pool = batch * std::size_t(options.pool_batches);
  // Step 2: sort each pool by length. Stable sorts keep the order independent of the library.
  for (std::size_t begin = 0; begin < order.size(); begin += pool) {
    const auto end = order.begin() + std::ptrdiff_t(std::min(begin + pool, order.size()));
    std::stable_sort(order.begin() + std::ptrdiff_t(begin), end,
                     [&](std::int32_t a, std::int32_t b) { return lengths[a] < lengths[b]; });
  }
  // Step 3: shuffle the batches.
  std::vector<std::size_t> fronts;
  for (std::size_t begin = 0; begin < order.size(); begin += batch) fronts.push_back(begin);
  Shuffle(&fronts, &rng);
  // Only the last batch of `order` can be short; after the shuffle it can be anywhere.
  begins_ = {0};
  samples_.reserve(order.size());
  for (const std::size_t front : fronts) {
    const std::size_t end = std::min(front + batch, order.size());
    samples_.insert(samples_.end(), order.begin() + std::ptrdiff_t(front),
                    order.begin() + std::ptrdiff_t(end));
    begins_.push_back(samples_.size());
  }
}

std::vector<std::vector<std::int32_t>> SplitBatch(std::span<const std::int32_t> batch,
                                                  std::span<const std::int32_t> lengths,
                                                  std::span<const double> shares) {
  // Greedy assignment from the longest sample on (LPT scheduling), within the counts.
  std::vector<std::size_t> left = CountsOf(batch.size(), shares);
  std::vector<std::int32_t> longest_first(batch.begin(), batch.end());
  std::stable_sort(longest_first.begin(), longest_first.end(),
                   [&](std::int32_t a, std::int32_t b) { return lengths[a] > lengths[b]; });
  std::vector<std::vector<std::int32_t>> parts(shares.size());
  std::vector<double> tokens(shares.size(), 0.0);
  for (const std::int32_t sample : longest_first) {
    // The worker with room and the fewest tokens relative to its share; the first of equals.
    std::size_t taker = shares.size();
    for (std::size_t w = 0; w < shares.size(); ++w) {
      if (left[w] == 0) continue;
      if (taker == shares.size() || tokens[w] / shares[w] < tokens[taker] / shares[taker]) {
        taker = w;
      }
    }
    --left[taker];
    tokens[taker] += lengths[sample];
    parts[taker].push_back(sample);
  }
  return parts;
}

// Concatenates the samples without padding; begins[i] is the first token of sample i.
PackedBatch PackBatch(const TokenizedDataset& set, std::span<const std::int32_t> samples) {
  PackedBatch packed = {.begins = {0}};
  bool pairs = false;
  for (const std::int32_t sample : samples) {
    const auto tokens = set.tokens(sample);
    packed.ids.insert(packed.ids.end(), tokens.begin(), tokens.end());
    packed.begins.push_back(std::int32_t(packed.ids.size()));
    const TokenizedDataset::Label label = set.label(sample);
    packed.labels.push_back(label.label);
    packed.targets.insert(packed.targets.end(), label.targets.begin(), label.targets.end());
    packed.samples.push_back(sample);
    pairs = pairs || label.second > 0;
  }
  if (!pairs) return packed;
  // Segment 1 begins after the first text and its [SEP].
  packed.types.resize(packed.ids.size(), 0);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const std::int32_t second = set.second[std::size_t(samples[i])];
    if (second == 0) continue;
    std::fill(packed.types.begin() + packed.begins[i] + second,
              packed.types.begin() + packed.begins[i + 1], 1);
  }
  return packed;
}

std::vector<std::int32_t> LengthsOf(const TokenizedDataset& set) {
  std::vector<std::int32_t> lengths(std::size_t(set.size()));
  for (std::int64_t i = 0; i < set.size(); ++i) lengths[std::size_t(i)] = set.length(i);
  return lengths;
}

}  // namespace troop
