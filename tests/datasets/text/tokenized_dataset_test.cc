#include "datasets/text/tokenized_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "datasets/text/length_bucketing.h"
#include "datasets/text/text_sources.h"
#include "tests/core/temp_folder.h"
#include "tests/datasets/data.h"

namespace troop {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Ids = std::vector<TokenId>;

// One id per letter: a is 10. [CLS] is 2, [SEP] is 3.
class LetterTokenizer final : public Tokenizer {
 public:
  void Encode(std::string_view text, Ids* ids) const override {
    for (const char c : text) ids->push_back(10 + (c - 'a'));
  }
  std::string_view piece(TokenId) const override { return ""; }
  int size() const override { return 40; }
  const SpecialTokens& special() const override { return special_; }
  std::uint32_t fingerprint() const override { return 1; }

 private:
  const SpecialTokens special_{.pad = 0, .unknown = 1, .begin = 2, .end = 3, .mask = 4};
};

Ids Pair(std::string_view first, std::string_view second, std::int32_t max_length,
         TruncationSide side = TruncationSide::kRight) {
  EncodedPair pair = EncodePair(LetterTokenizer(), first, second, std::size_t(max_length), side);
  EXPECT_EQ(pair.truncated, first.size() + second.size() + 3 - pair.ids.size());
  pair.ids.push_back(-pair.second);
  return pair.ids;
}

// Ids of transformers 5.24 (BertTokenizer with these letters as its vocabulary, longest_first); the
// last value is the begin of the second segment, negated.
TEST(TextPairTest, CutsLongerTextFirst) {
  EXPECT_THAT(Pair("ab", "c", 6), ElementsAre(2, 10, 11, 3, 12, 3, -4));
  EXPECT_THAT(Pair("abcdef", "g", 6), ElementsAre(2, 10, 11, 3, 16, 3, -4));
  EXPECT_THAT(Pair("a", "bcdefg", 6), ElementsAre(2, 10, 3, 11, 12, 3, -3));
  EXPECT_THAT(Pair("abcd", "efgh", 8), ElementsAre(2, 10, 11, 3, 14, 15, 16, 3, -4));
  EXPECT_THAT(Pair("abcd", "efghij", 8), ElementsAre(2, 10, 11, 3, 14, 15, 16, 3, -4));
  EXPECT_THAT(Pair("abcdef", "ghij", 8), ElementsAre(2, 10, 11, 12, 3, 16, 17, 3, -5));
  const TruncationSide left = TruncationSide::kLeft;
  EXPECT_THAT(Pair("abcdef", "g", 6, left), ElementsAre(2, 14, 15, 3, 16, 3, -4));
  EXPECT_THAT(Pair("abcd", "efgh", 8, left), ElementsAre(2, 12, 13, 3, 15, 16, 17, 3, -4));
  EXPECT_THAT(Pair("abcdef", "ghij", 8, left), ElementsAre(2, 13, 14, 15, 3, 18, 19, 3, -5));
  EXPECT_THAT(Pair("ab", "cd", 3), ElementsAre(2, 3, 3, -2));
}

LabeledText Example(const std::string& text, std::vector<std::string> labels, bool labeled = true) {
  return {.text = text, .second = text, .labels = std::move(labels), .labeled = labeled, .line = 7};
}

TEST(TokenizeTextsTest, ConvertsLabelsOfEachProblem) {
  const LetterTokenizer tokenizer;
  LabeledTexts texts{.train = {Example("a", {"y"}), Example("b", {}, false), Example("c", {"X"})}};
  texts.unlabeled = {Example("d", {}, false)};
  const auto one = TokenizeTexts(texts, {"x", "y"}, tokenizer, {});
  ASSERT_TRUE(one.ok()) << one.status().ToString();
  EXPECT_THAT(one->train.labels, ElementsAre(1, 0));
  EXPECT_THAT(one->train.second, ElementsAre(0, 0));
  EXPECT_THAT(one->train.ids, ElementsAre(2, 10, 3, 2, 12, 3));
  EXPECT_THAT(one->unlabeled.labels, ElementsAre(-1));
  EXPECT_EQ(one->train.width, 0);

  texts.train = {Example("a", {"y", "x"}), Example("b", {}), Example("c", {"y"})};
  const auto many =
      TokenizeTexts(texts, {"x", "y"}, tokenizer, {.problem_type = ProblemType::kMultiLabel});
  ASSERT_TRUE(many.ok()) << many.status().ToString();
  EXPECT_THAT(many->train.labels, ElementsAre(-1, -1, -1));
  EXPECT_THAT(many->train.targets, ElementsAre(1, 1, 0, 0, 0, 1));

  texts.train = {Example("a", {"2.5"}), Example("b", {"-1"})};
  const auto numbers =
      TokenizeTexts(texts, {}, tokenizer, {.problem_type = ProblemType::kRegression});
  ASSERT_TRUE(numbers.ok()) << numbers.status().ToString();
  EXPECT_THAT(numbers->train.targets, ElementsAre(2.5, -1));
  // Without classes all examples remain, as for a masked LM.
  texts.train = {Example("a", {"y"}), Example("b", {}, false)};
  EXPECT_THAT(TokenizeTexts(texts, {}, tokenizer, {})->train.labels, ElementsAre(-1, -1));
}

TEST(TokenizeTextsTest, RejectsOtherLabelsNamingLine) {
  const auto message = [](const std::string& label, ProblemType problem) {
    const LabeledTexts texts{.test = {Example("a", {label})}};
    return TokenizeTexts(texts, {"x", "y"}, LetterTokenizer(), {.problem_type = problem})
        .status()
        .message();
  };
  EXPECT_EQ(message("z", ProblemType::kSingleLabel),
            "line 7: the label \"z\" is not a class of the training examples or of model.labels: "
            "x, y");
  EXPECT_THAT(message("z", ProblemType::kMultiLabel), HasSubstr("line 7: the label \"z\""));
  for (const char* const bad : {"nan", "inf", "1e300", "five"}) {
    EXPECT_EQ(message(bad, ProblemType::kRegression),
              std::string("line 7: the label \"") + bad +
                  "\" is not a finite number; a regression needs one");
  }
}

// Segments, classes and targets arrive in the batch of their sample.
TEST(TokenizeTextsTest, PackedPairsHaveSegments) {
  TokenizedDataset set{.width = 1};
  const std::vector<float> one = {1}, two = {2};
  set.Add(Ids{2, 9, 3, 9, 3}, {.label = 4, .second = 3, .targets = one});
  set.Add(Ids{2, 3, 3}, {.label = 5, .second = 2, .targets = two});
  const PackedBatch packed = PackBatch(set, std::vector<std::int32_t>{1, 0});
  EXPECT_THAT(packed.types, ElementsAre(0, 0, 1, 0, 0, 0, 1, 1));
  EXPECT_THAT(packed.labels, ElementsAre(5, 4));
  EXPECT_THAT(packed.targets, ElementsAre(2, 1));
  TokenizedDataset single;
  single.Add(Ids{2, 3}, 0);
  EXPECT_TRUE(PackBatch(single, std::vector<std::int32_t>{0}).types.empty());
}

class TextSourcesTest : public testing::Test {
 protected:
  std::string Put(const std::string& name, const std::string& text) {
    std::ofstream(folder_.path() + "/" + name) << text;
    return folder_.path() + "/" + name;
  }
  std::string Error(const TextSources& sources) {
    return TokenizeSources(sources, LetterTokenizer(), {}).status().message();
  }
  const TempFolder folder_;
};

TEST_F(TextSourcesTest, ReadsSeparateSetsWithClassesOfTraining) {
  const TextSources sources{.train = Put("train.csv", "text,label\na,x\nb,y\nc,z\n"),
                            .validation = Put("val.jsonl", R"({"text": "d", "label": "Z"})"),
                            .test = Put("test.tsv", "label\ttext\ny\tf\n")};
  const auto texts = TokenizeSources(sources, LetterTokenizer(), {});
  ASSERT_TRUE(texts.ok()) << texts.status().ToString();
  EXPECT_THAT(texts->names, ElementsAre("x", "y", "z"));
  EXPECT_THAT(texts->train.labels, ElementsAre(0, 1, 2));
  EXPECT_THAT(texts->validation.labels, ElementsAre(2));
  EXPECT_THAT(texts->test.labels, ElementsAre(1));
  EXPECT_THAT(texts->test.ids, ElementsAre(2, 15, 3));
}

// A masked LM has no labels: the rows of a separate table are not lost for want of one.
TEST_F(TextSourcesTest, KeepsExamplesWithoutLabelsOfAMaskedLm) {
  TextSources sources{.train = Put("train.csv", "text,label\na,x\nb,y\n"),
                      .test = Put("test.csv", "text\nc\nd\n")};
  sources.format.labeled = false;
  sources.names = {"x", "y"};
  const auto texts = TokenizeSources(sources, LetterTokenizer(), {});
  ASSERT_TRUE(texts.ok()) << texts.status().ToString();
  EXPECT_THAT(texts->train.labels, ElementsAre(-1, -1));
  EXPECT_THAT(texts->test.labels, ElementsAre(-1, -1));
  EXPECT_THAT(texts->test.ids, ElementsAre(2, 12, 3, 2, 13, 3));
}

TEST_F(TextSourcesTest, RejectsLabelOfTestSetOnly) {
  const std::string train = Put("train.csv", "text,label\na,x\nb,y\n");
  const std::string test = Put("test.csv", "text,label\na,x\nb,w\n");
  EXPECT_EQ(Error({.train = train, .test = test}),
            "data.test: " + test +
                ": line 3: the label \"w\" is not a class of the training examples or of "
                "model.labels: x, y");
  EXPECT_EQ(Error({.train = train, .names = {"x", "z"}}),
            "data.reviews: " + train +
                ": line 3: the label \"y\" is not a class of the training examples or of "
                "model.labels: x, z");
  EXPECT_EQ(Error({.train = train, .names = {"x"}}),
            "data.reviews: " + train + ": there are 1 classes, must be from 2 to 100000");
}

TEST_F(TextSourcesTest, RejectsMixedSources) {
  const std::string train = Put("train.csv", "text,label\na,x\nb,y\n");
  const std::string pairs = Put("pairs.csv", "sentence1,sentence2,label\na,b,x\n");
  EXPECT_EQ(Error({.train = train, .test = pairs}),
            "data.test: " + pairs + " has pairs of texts, but data.reviews: " + train +
                " has single texts; set data.text_columns");
  EXPECT_EQ(Error({.train = train, .validation = TextFixture("small_imdb.tar.xz")}),
            "data.validation: " + TextFixture("small_imdb.tar.xz") +
                " contains several sets (train, test, …); name one of these folders, or a table");
  EXPECT_THAT(Error({.train = Put("one.csv", "text,label\na,x\n")}),
              HasSubstr("all 1 labeled training examples have the label \"x\""));
}

}  // namespace
}  // namespace troop
