#include "datasets/text/masked_lm.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/datasets/data.h"

namespace troop {
namespace {

constexpr TokenId kMask = 4;

// Samples of n tokens between [CLS] and [SEP], none of them special.
TokenizedDataset MakeSet(int samples, int tokens) {
  TokenizedDataset set;
  for (int s = 0; s < samples; ++s) {
    std::vector<TokenId> ids = {2};
    for (int i = 0; i < tokens; ++i) ids.push_back(5 + (7 * s + i) % 600);
    ids.push_back(3);
    set.Add(ids, -1);
  }
  return set;
}

class MaskTokensTest : public testing::Test {
 protected:
  MaskedBatch Mask(const TokenizedDataset& set, std::vector<std::int32_t> samples,
                   const MaskingOptions& options = {.seed = 1}) {
    return MaskTokens(PackBatch(set, samples), *tokenizer_, options);
  }
  const std::unique_ptr<Tokenizer> tokenizer_ = OpenTokenizer(TextFixture("wordpiece.txt"));
};

TEST_F(MaskTokensTest, TargetsAreOriginalTokens) {
  const TokenizedDataset set = MakeSet(3, 200);
  const PackedBatch plain = PackBatch(set, std::vector{0, 1, 2});
  const MaskedBatch masked = Mask(set, {0, 1, 2});
  ASSERT_GT(masked.positions.size(), 40);
  std::vector<TokenId> restored = masked.batch.ids;
  for (std::size_t i = 0; i < masked.positions.size(); ++i) {
    restored[masked.positions[i]] = masked.targets[i];
    EXPECT_GE(masked.targets[i], 5);  // never a special token
  }
  EXPECT_EQ(restored, plain.ids);
  EXPECT_EQ(masked.batch.begins, plain.begins);
}

TEST_F(MaskTokensTest, DoesNotDependOnRestOfBatch) {
  const TokenizedDataset set = MakeSet(9, 50);
  const MaskedBatch all = Mask(set, {8, 3, 5});
  for (const std::size_t i : {0, 1, 2}) {
    const MaskedBatch one = Mask(set, {all.batch.samples[i]});
    const auto begin = all.batch.ids.begin() + all.batch.begins[i];
    EXPECT_EQ(one.batch.ids, std::vector<TokenId>(begin, begin + set.length(all.batch.samples[i])));
  }
}

TEST_F(MaskTokensTest, PositionsDependOnSeedAndEpoch) {
  const TokenizedDataset set = MakeSet(4, 100);
  const auto positions = [&](const MaskingOptions& options) {
    return Mask(set, {0, 1, 2, 3}, options).positions;
  };
  EXPECT_EQ(positions({.seed = 1}), positions({.seed = 1}));
  EXPECT_NE(positions({.seed = 1}), positions({.seed = 2}));
  EXPECT_NE(positions({.seed = 1}), positions({.seed = 1, .epoch = 1}));
}

// 100,000 tokens, 5 standard deviations: a false alarm in a million, were the seed not fixed.
TEST_F(MaskTokensTest, MatchesMaskingRatiosOfBert) {
  const TokenizedDataset set = MakeSet(100, 1000);
  std::vector<std::int32_t> samples(100);
  for (int i = 0; i < 100; ++i) samples[i] = i;
  const MaskedBatch masked = Mask(set, samples);
  const double chosen = double(masked.positions.size());
  EXPECT_NEAR(chosen / 100000, 0.15, 0.0057);
  std::map<TokenId, int> put;
  int stayed = 0;
  for (std::size_t i = 0; i < masked.positions.size(); ++i) {
    const TokenId now = masked.batch.ids[masked.positions[i]];
    ++put[now];
    stayed += now == masked.targets[i];
  }
  EXPECT_NEAR(put[kMask] / chosen, 0.8, 0.0165);
  EXPECT_NEAR(stayed / chosen, 0.1, 0.0123);
}

}  // namespace
}  // namespace troop
