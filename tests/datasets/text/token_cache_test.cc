#include "datasets/text/token_cache.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "core/storage/memory_storage.h"
#include "tests/core/temp_folder.h"
#include "tests/datasets/data.h"

namespace troop {
namespace {

constexpr std::int32_t kTokensMax = 8;
const TokenCacheKey kKey = {
    .tokenizer = 7, .vocabulary = 100, .max_length = kTokensMax, .source = 9};

TokenizedReviews Sample() {
  TokenizedReviews reviews;
  reviews.train.Add(std::vector<TokenId>{2, 50, 99, 3}, Sentiment::kPositive);
  reviews.train.Add(std::vector<TokenId>{2, 3}, Sentiment::kNegative);
  reviews.unlabeled.Add(std::vector<TokenId>{2, 5, 6, 7, 8, 9, 10, 3}, Sentiment::kNone);
  return reviews;
}

TEST(TokenCacheTest, RoundTrips) {
  const auto back = DecodeTokenCache(EncodeTokenCache(Sample(), kKey), kKey);
  ASSERT_TRUE(back.ok()) << back.status().ToString();
  EXPECT_EQ(*back, Sample());
}

TEST(TokenCacheTest, RejectsEveryFlippedBitAndTruncation) {
  const std::string sound = EncodeTokenCache(Sample(), kKey);
  for (std::size_t bit = 0; bit < 8 * sound.size(); ++bit) {
    std::string bytes = sound;
    bytes[bit / 8] = char(bytes[bit / 8] ^ 1 << bit % 8);
    EXPECT_FALSE(DecodeTokenCache(bytes, kKey).ok()) << bit;
  }
  for (std::size_t size = 0; size < sound.size(); ++size) {
    EXPECT_FALSE(DecodeTokenCache(sound.substr(0, size), kKey).ok()) << size;
  }
  EXPECT_FALSE(DecodeTokenCache(sound + "x", kKey).ok());
}

TEST(TokenCacheTest, RejectsOtherKeyAsStale) {
  const std::string bytes = EncodeTokenCache(Sample(), kKey);
  for (int field = 0; field < 5; ++field) {
    TokenCacheKey key = kKey;
    if (field == 0) ++key.tokenizer;
    if (field == 1) ++key.vocabulary;
    if (field == 2) ++key.max_length;
    if (field == 3) ++key.source;
    if (field == 4) key.side = TruncationSide::kLeft;
    EXPECT_EQ(DecodeTokenCache(bytes, key).status().code(), Code::kFailedPrecondition) << field;
  }
}

TEST(TokenCacheTest, RejectsTokensBeyondBoundsOfKey) {
  const auto message = [](const TokenizedReviews& reviews) {
    return DecodeTokenCache(EncodeTokenCache(reviews, kKey), kKey).status().message();
  };
  TokenizedReviews reviews;
  reviews.test.Add(std::vector<TokenId>{100}, Sentiment::kPositive);
  EXPECT_EQ(message(reviews), "token id 100 is outside a vocabulary of 100");
  reviews = {};
  reviews.test.Add(std::vector<TokenId>(9, 1), Sentiment::kPositive);
  EXPECT_EQ(message(reviews),
            "a sample has 9 tokens, must have at most " + std::to_string(kTokensMax));
  reviews = {};
  reviews.test.Add(std::vector<TokenId>{1}, Sentiment(5));
  EXPECT_EQ(message(reviews), "invalid sentiment 5");
}

// A table of reviews and a cache in memory, whose writes are counted.
class LoadTokenizedReviewsTest : public testing::Test {
 protected:
  void Put(const std::string& rows) { std::ofstream(path_) << "review,sentiment\n" + rows; }
  TokenizedReviews Load(std::int32_t max_length = kTokensMax) {
    const auto loaded =
        LoadTokenizedReviews(path_, *tokenizer_, max_length, &storage_, "tokens.bin");
    EXPECT_TRUE(loaded.ok()) << loaded.status().ToString();
    return loaded.ok() ? *loaded : TokenizedReviews();
  }
  TokenizedReviews Fresh() { return TokenizeReviews(*ReadReviews(path_), *tokenizer_, kTokensMax); }

  TempFolder folder_;
  const std::string path_ = folder_.path() + "/reviews.csv";
  const std::unique_ptr<Tokenizer> tokenizer_ = OpenTokenizer(TextFixture("wordpiece.txt"));
  MemoryStorage storage_;
};

TEST_F(LoadTokenizedReviewsTest, SecondLoadReadsCache) {
  Put("a good one,1\nbad,0\n");
  EXPECT_EQ(Load(), Fresh());
  const std::int64_t changes = storage_.changes();
  EXPECT_EQ(Load(), Fresh());
  EXPECT_EQ(storage_.changes(), changes);
}

TEST_F(LoadTokenizedReviewsTest, RebuildsDamagedOrStaleCache) {
  Put("a good one,1\n");
  Load();
  std::string bytes(storage_.Read("tokens.bin", 1 << 20)->text());
  bytes[bytes.size() / 2] = char(~bytes[bytes.size() / 2]);
  ASSERT_TRUE(storage_.WriteAtomic("tokens.bin", bytes).ok());
  EXPECT_EQ(Load(), Fresh());
  std::int64_t changes = storage_.changes();
  EXPECT_EQ(Load(), Fresh());
  EXPECT_EQ(storage_.changes(), changes);
  Put("a good two,1\n");  // as many bytes
  EXPECT_EQ(Load(), Fresh());
  EXPECT_GT(storage_.changes(), changes);
  changes = storage_.changes();
  EXPECT_EQ(Load(3).train.length(0), 3);
  EXPECT_GT(storage_.changes(), changes);
}

TEST_F(LoadTokenizedReviewsTest, LoadsWithoutCacheWhenDiskIsFull) {
  Put("a good one,1\n");
  storage_.FailFrom(0, ResourceExhausted("full"));
  EXPECT_EQ(Load(), Fresh());
}

TEST_F(LoadTokenizedReviewsTest, ReportsMissingReviews) {
  const auto loaded = LoadTokenizedReviews(path_, *tokenizer_, kTokensMax, &storage_, "tokens.bin");
  EXPECT_EQ(loaded.status().code(), Code::kNotFound);
}

TEST(SourceFingerprintTest, FolderFingerprintChangesWithItsFiles) {
  const TempFolder folder;
  const auto put = [&](const std::string& name, const std::string& text) {
    std::ofstream(folder.path() + "/" + name) << text;
    return *SourceFingerprint(folder.path());
  };
  const std::uint64_t one = put("a", "1"), two = put("b", "1"), longer = put("b", "12");
  EXPECT_NE(one, two);
  EXPECT_NE(two, longer);
  EXPECT_EQ(longer, *SourceFingerprint(folder.path()));
}

// "/dev/zero", or a disk image of a terabyte by mistake, was read until memory ran out.
TEST(SourceFingerprintTest, RejectsFileThatIsNotRegular) {
  EXPECT_EQ(SourceFingerprint("/dev/zero").status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace troop
