#include "datasets/text/length_bucketing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "core/base/philox.h"

namespace troop {
namespace {

using Samples = std::vector<std::int32_t>;

// Lengths as reviews have them: many short ones, few long ones.
Samples DrawLengths(std::size_t count, std::uint64_t seed) {
  Rng rng({.run_seed = seed, .purpose = Purpose::kTest});
  Samples lengths;
  for (std::size_t i = 0; i < count; ++i) {
    lengths.push_back(std::int32_t(2 + 200 * std::exp(0.8 * rng.Normal())));
  }
  return lengths;
}

Samples Sorted(Samples samples) {
  std::sort(samples.begin(), samples.end());
  return samples;
}
Samples All(std::int32_t count) {
  Samples all(std::size_t(count), 0);
  std::iota(all.begin(), all.end(), 0);
  return all;
}
Samples Flat(const BucketBatchSampler& order) {
  Samples flat;
  for (std::int64_t i = 0; i < order.batches(); ++i) {
    flat.insert(flat.end(), order.batch(i).begin(), order.batch(i).end());
  }
  return flat;
}

TEST(EpochOrderTest, HasEachSampleOnceAndAtMostOnePartialBatch) {
  for (const int count : {0, 1, 7, 32, 1000, 4097}) {
    const Samples lengths = DrawLengths(std::size_t(count), 3);
    const BucketBatchSampler order(lengths,
                                   {.seed = 5, .epoch = 2, .batch_size = 32, .pool_batches = 8});
    EXPECT_EQ(Sorted(Flat(order)), All(count));
    EXPECT_EQ(order.batches(), (count + 31) / 32);
    int partial = 0;
    for (std::int64_t i = 0; i < order.batches(); ++i) partial += order.batch(i).size() != 32;
    EXPECT_EQ(partial, count % 32 != 0);
  }
}

TEST(EpochOrderTest, DependsOnlyOnSeedAndEpoch) {
  const Samples lengths = DrawLengths(500, 3);
  const auto flat = [&](std::uint64_t seed, std::int64_t epoch) {
    return Flat(BucketBatchSampler(lengths, {.seed = seed, .epoch = epoch, .batch_size = 8}));
  };
  EXPECT_EQ(flat(1, 0), flat(1, 0));
  EXPECT_NE(flat(1, 0), flat(1, 1));
  EXPECT_NE(flat(1, 0), flat(2, 0));
}

TEST(EpochOrderTest, BatchesHaveSimilarLengths) {
  const Samples lengths = DrawLengths(4096, 4);
  const auto spread = [&](std::int32_t pool_batches) {  // tokens if each batch were padded / real
    const BucketBatchSampler order(lengths, {.batch_size = 32, .pool_batches = pool_batches});
    double padded = 0, real = 0;
    for (std::int64_t i = 0; i < order.batches(); ++i) {
      std::int32_t longest = 0;
      for (const std::int32_t sample : order.batch(i)) {
        longest = std::max(longest, lengths[sample]);
        real += lengths[sample];
      }
      padded += 32.0 * longest;
    }
    return padded / real;
  };
  EXPECT_GT(spread(1), 3);
  EXPECT_LT(spread(64), 1.2);
}

// The batches themselves come in any order of length: the first tenth is not the short ones.
TEST(EpochOrderTest, ShufflesBatchLengths) {
  const Samples lengths = DrawLengths(4096, 4);
  const BucketBatchSampler order(lengths, {.batch_size = 32, .pool_batches = 128});
  std::set<std::int64_t> growing;
  for (std::int64_t i = 0; i + 1 < order.batches(); ++i) {
    if (lengths[order.batch(i)[0]] <= lengths[order.batch(i + 1)[0]]) growing.insert(i);
  }
  EXPECT_GT(growing.size(), 32);
  EXPECT_LT(growing.size(), 96);
}

TEST(SplitBatchTest, AnyNumberOfWorkersCoversSameBatches) {
  const Samples lengths = DrawLengths(300, 5);
  const BucketBatchSampler order(lengths, {.seed = 9, .batch_size = 32, .pool_batches = 4});
  for (const std::size_t workers : {1, 2, 6, 40}) {
    const std::vector<double> shares(workers, 1.0);
    for (std::int64_t i = 0; i < order.batches(); ++i) {
      const auto parts = SplitBatch(order.batch(i), lengths, shares);
      ASSERT_EQ(parts.size(), workers);
      Samples together;
      std::size_t least = 1000, most = 0;
      for (const Samples& part : parts) {
        together.insert(together.end(), part.begin(), part.end());
        least = std::min(least, part.size());
        most = std::max(most, part.size());
      }
      EXPECT_EQ(Sorted(together), Sorted({order.batch(i).begin(), order.batch(i).end()}));
      EXPECT_LE(most - least, 1);
    }
  }
}

TEST(SplitBatchTest, BalancesTokensBetweenWorkers) {
  const Samples lengths = DrawLengths(64, 6);
  const Samples batch = All(64);
  const auto tokens = [&](const Samples& part) {
    double sum = 0;
    for (const std::int32_t sample : part) sum += lengths[sample];
    return sum;
  };
  const auto even = SplitBatch(batch, lengths, std::vector{1.0, 1.0});
  EXPECT_NEAR(tokens(even[0]) / tokens(even[1]), 1, 0.02);
  const auto uneven = SplitBatch(batch, lengths, std::vector{3.0, 1.0});
  EXPECT_EQ(uneven[0].size(), 48);
  EXPECT_NEAR(tokens(uneven[0]) / tokens(uneven[1]), 3, 0.2);
}

TEST(SplitBatchTest, RoundsSharesToBatchSize) {
  const Samples lengths(10, 1), batch = All(10);
  const auto parts = SplitBatch(batch, lengths, std::vector{0.55, 0.3, 0.15});
  EXPECT_EQ(parts[0].size(), 6);  // 5.5, 3, 1.5: the first of equal rests
  EXPECT_EQ(parts[1].size(), 3);
  EXPECT_EQ(parts[2].size(), 1);
}

TEST(PackBatchTest, ConcatenatesSamples) {
  TokenizedDataset set;
  set.Add(std::vector<TokenId>{2, 7, 3}, 1);
  set.Add(std::vector<TokenId>{2, 3}, 0);
  set.Add(std::vector<TokenId>{2, 8, 9, 3}, 1);
  EXPECT_EQ(LengthsOf(set), (Samples{3, 2, 4}));
  const PackedBatch packed = PackBatch(set, Samples{2, 1});
  EXPECT_EQ(packed.ids, (std::vector<TokenId>{2, 8, 9, 3, 2, 3}));
  EXPECT_EQ(packed.begins, (Samples{0, 4, 6}));
  EXPECT_EQ(packed.labels, (Samples{1, 0}));
  EXPECT_EQ(packed.samples, (Samples{2, 1}));
}

}  // namespace
}  // namespace troop
