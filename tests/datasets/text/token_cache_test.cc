#include "datasets/text/token_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

#include "core/storage/memory_storage.h"
#include "tests/core/temp_folder.h"
#include "tests/datasets/data.h"

namespace troop {
namespace {

constexpr std::int32_t kTokensMax = 8;
const TokenCacheKey kKey = {
    .tokenizer = 7, .vocabulary = 100, .max_length = kTokensMax, .source = 9};

// Pairs with two targets each, and all four sets.
TokenizedTexts Sample() {
  TokenizedTexts texts{.names = {"ham", "sp|am"}};
  for (TokenizedDataset* set : {&texts.train, &texts.validation, &texts.test, &texts.unlabeled}) {
    set->width = 2;
  }
  const std::vector<float> targets = {1, 0.5f};
  texts.train.Add(std::vector<TokenId>{2, 50, 99, 3},
                  {.label = 1, .second = 2, .targets = targets});
  texts.train.Add(std::vector<TokenId>{2, 3}, {.label = 0, .targets = targets});
  texts.validation.Add(std::vector<TokenId>{2, 7, 3}, {.label = -1, .targets = targets});
  texts.unlabeled.Add(std::vector<TokenId>{2, 5, 6, 7, 8, 9, 10, 3}, {.targets = targets});
  return texts;
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
  for (int field = 0; field < 6; ++field) {
    TokenCacheKey key = kKey;
    if (field == 0) ++key.tokenizer;
    if (field == 1) ++key.vocabulary;
    if (field == 2) ++key.max_length;
    if (field == 3) ++key.source;
    if (field == 4) key.side = TruncationSide::kLeft;
    if (field == 5) key.names = {"ham", "other"};
    EXPECT_EQ(DecodeTokenCache(bytes, key).status().code(), Code::kFailedPrecondition) << field;
  }
}

// Learned classes are reused as given ones, but not the reverse: their order may be another.
TEST(TokenCacheTest, DistinguishesLearnedFromGivenClasses) {
  TokenCacheKey given = kKey;
  given.names = Sample().names;
  EXPECT_TRUE(DecodeTokenCache(EncodeTokenCache(Sample(), kKey), given).ok());
  EXPECT_TRUE(DecodeTokenCache(EncodeTokenCache(Sample(), given), given).ok());
  EXPECT_EQ(DecodeTokenCache(EncodeTokenCache(Sample(), given), kKey).status().message(),
            "it was made for other classes");
}

TEST(TokenCacheTest, RejectsValuesOutOfBounds) {
  const auto message = [](std::vector<TokenId> ids, const TokenizedDataset::Label& label) {
    TokenizedTexts texts{.names = {"a", "b"}};
    texts.train.width = texts.validation.width = texts.unlabeled.width = texts.test.width =
        std::int64_t(label.targets.size());
    texts.test.Add(ids, label);
    return DecodeTokenCache(EncodeTokenCache(texts, kKey), kKey).status().message();
  };
  EXPECT_EQ(message({100}, {.label = 1}), "token id 100 is outside a vocabulary of 100");
  EXPECT_EQ(message(std::vector<TokenId>(9, 1), {.label = 1}),
            "a sample has 9 tokens, must have at most " + std::to_string(kTokensMax));
  EXPECT_EQ(message({1}, {.label = 2}), "label 2 is outside 2 classes");
  EXPECT_EQ(message({1}, {.label = -2}), "label -2 is outside 2 classes");
  EXPECT_EQ(message({1, 2}, {.second = 2}), "the second segment begins at 2, outside 2 tokens");
  const std::vector<float> bad = {std::numeric_limits<float>::quiet_NaN()};
  EXPECT_EQ(message({1}, {.targets = bad}), "a target is not a finite number");
}

// A table of reviews and a cache in memory, whose writes are counted.
class LoadTokenizedTextsTest : public testing::Test {
 protected:
  void Put(const std::string& rows) {
    std::ofstream(sources_.train) << "review,sentiment\n" + rows;
  }
  TokenizedTexts Load(std::int32_t max_length = kTokensMax) {
    const auto loaded = LoadTokenizedTexts(sources_, *tokenizer_, {.max_length = max_length},
                                           {&storage_, "tokens.bin"});
    EXPECT_TRUE(loaded.ok()) << loaded.status().ToString();
    return loaded.ok() ? *loaded : TokenizedTexts();
  }
  TokenizedTexts Fresh() {
    return *TokenizeSources(sources_, *tokenizer_, {.max_length = kTokensMax});
  }

  TempFolder folder_;
  TextSources sources_{.train = folder_.path() + "/reviews.csv"};
  const std::unique_ptr<Tokenizer> tokenizer_ = OpenTokenizer(TextFixture("wordpiece.txt"));
  MemoryStorage storage_;
};

TEST_F(LoadTokenizedTextsTest, SecondLoadReadsCache) {
  Put("a good one,1\nbad,0\n");
  EXPECT_EQ(Load(), Fresh());
  const std::int64_t changes = storage_.changes();
  EXPECT_EQ(Load(), Fresh());
  EXPECT_EQ(storage_.changes(), changes);
}

TEST_F(LoadTokenizedTextsTest, RebuildsDamagedOrStaleCache) {
  Put("a good one,1\nbad,0\n");
  Load();
  std::string bytes(storage_.Read("tokens.bin", 1 << 20)->text());
  bytes[bytes.size() / 2] = char(~bytes[bytes.size() / 2]);
  ASSERT_TRUE(storage_.WriteAtomic("tokens.bin", bytes).ok());
  EXPECT_EQ(Load(), Fresh());
  std::int64_t changes = storage_.changes();
  EXPECT_EQ(Load(), Fresh());
  EXPECT_EQ(storage_.changes(), changes);
  Put("a good two,1\nbad,0\n");  // as many bytes
  EXPECT_EQ(Load(), Fresh());
  EXPECT_GT(storage_.changes(), changes);
  changes = storage_.changes();
  EXPECT_EQ(Load(3).train.length(0), 3);
  EXPECT_GT(storage_.changes(), changes);
}

TEST_F(LoadTokenizedTextsTest, LoadsWithoutCacheWhenDiskIsFull) {
  Put("a good one,1\nbad,0\n");
  storage_.FailFrom(0, ResourceExhausted("full"));
  EXPECT_EQ(Load(), Fresh());
}

// The classes of the first load become model.labels: the roles of the run must not tokenize again.
TEST_F(LoadTokenizedTextsTest, ReadsCacheWithLearnedClasses) {
  Put("a good one,1\nbad,0\n");
  const TokenizedTexts first = Load();
  EXPECT_EQ(first.names, (std::vector<std::string>{"0", "1"}));
  sources_.names = first.names;
  const std::int64_t changes = storage_.changes();
  EXPECT_EQ(Load(), first);
  EXPECT_EQ(storage_.changes(), changes);
  sources_.names = {"1", "0"};
  EXPECT_EQ(Load().train.labels, (std::vector<std::int32_t>{0, 1}));
  EXPECT_GT(storage_.changes(), changes);
}

// A cache of other columns or files was read in their place.
TEST_F(LoadTokenizedTextsTest, FingerprintCoversFilesAndFormat) {
  Put("a good one,1\nbad,0\n");
  const std::uint64_t before = *SourcesFingerprint(sources_);
  std::vector<std::uint64_t> all = {before};
  const auto add = [&](auto change) {
    TextSources other = sources_;
    change(&other);
    const auto value = SourcesFingerprint(other);
    ASSERT_TRUE(value.ok()) << value.status().ToString();
    all.push_back(*value);
  };
  add([](TextSources* s) { s->test = s->train; });
  add([](TextSources* s) { s->validation = s->train; });
  add([](TextSources* s) { s->format.text_columns = {"a", "b"}; });
  add([](TextSources* s) { s->format.text_columns = {"a b"}; });
  add([](TextSources* s) { s->format.label_column = "a"; });
  add([](TextSources* s) { s->format.delimiter = ";"; });
  add([](TextSources* s) { s->format.problem_type = ProblemType::kRegression; });
  add([](TextSources* s) { s->format.labeled = false; });
  std::ranges::sort(all);
  EXPECT_EQ(std::ranges::adjacent_find(all), all.end());
  EXPECT_EQ(*SourcesFingerprint(sources_), before);
}

TEST_F(LoadTokenizedTextsTest, ReportsMissingTexts) {
  const auto loaded = LoadTokenizedTexts(sources_, *tokenizer_, {}, {&storage_, "tokens.bin"});
  EXPECT_EQ(loaded.status().code(), Code::kNotFound);
  EXPECT_TRUE(loaded.status().message().starts_with("data.reviews: " + sources_.train));
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
