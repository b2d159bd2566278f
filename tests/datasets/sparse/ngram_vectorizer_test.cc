// N-gram rows, against scikit-learn's vectorizers.
#include "datasets/sparse/ngram_vectorizer.h"

#include <gmock/gmock.h>

#include "tests/datasets/sparse/sparse_fixture.h"

namespace troop {
namespace {

using testing::HasSubstr;

// The texts of the fixture, with Greek, Chinese and unusual spaces.
std::vector<std::string_view> Texts() {
  std::vector<std::string_view> texts;
  for (const JsonValue& text : test::SparseExpected().Find("texts")->array)
    texts.push_back(text.string);
  return texts;
}

// Options of a case, whose defaults are those of its scikit-learn class.
NgramOptions OptionsOf(const JsonValue& c) {
  const bool tfidf = *c.String("kind") == "tfidf";
  NgramOptions options{.analyzer = *ParseEnum<NgramAnalyzer>(*c.StringOr("analyzer", "word")),
                       .lowercase = *c.BooleanOr("lowercase", true),
                       .word_length_min = c.Find("token_pattern") == nullptr ? 2 : 1,
                       .binary = *c.BooleanOr("binary", false),
                       .n_features = std::int64_t(*c.NumberOr("n_features", 0)),
                       .min_df = std::int64_t(*c.NumberOr("min_df", 1)),
                       .use_idf = *c.BooleanOr("use_idf", tfidf),
                       .sublinear_tf = *c.BooleanOr("sublinear_tf", false),
                       .norm = tfidf ? RowNorm::kL2 : RowNorm::kNone};
  // null is the norm of scikit-learn's None.
  if (const JsonValue* const norm = c.Find("norm"))
    options.norm = norm->kind == JsonValue::Kind::kNull ? RowNorm::kNone : RowNorm::kL2;
  if (const JsonValue* const range = c.Find("ngram_range")) {
    options.ngram_min = *range->array[0].integer;
    options.ngram_max = *range->array[1].integer;
  }
  return options;
}

TEST(NgramVectorizerTest, RowsAndVocabularyEqualThoseOfScikitLearn) {
  const std::vector<std::string_view> texts = Texts();
  const auto& cases = test::SparseExpected().Find("vectorizers")->array;
  ASSERT_GE(cases.size(), 13u);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(i);
    const auto made = NgramVectorizer::Fit(OptionsOf(cases[i]), texts);
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    std::vector<std::string> terms;
    for (const JsonValue& term : cases[i].Find("terms")->array) terms.push_back(term.string);
    EXPECT_EQ(made->terms(), terms);
    SparseRows rows{.width = made->width()};
    for (const std::string_view text : texts) made->Transform(text, &rows);
    test::ExpectRows(rows, *cases[i].Find("rows"));
  }
}

// The parts of a fitted one give the same rows, also of unknown texts.
TEST(NgramVectorizerTest, RestoredVectorizerMakesTheSameRows) {
  const std::vector<std::string_view> texts = Texts();
  for (const JsonValue& c : test::SparseExpected().Find("vectorizers")->array) {
    const auto fitted = NgramVectorizer::Fit(OptionsOf(c), texts);
    ASSERT_TRUE(fitted.ok());
    const auto made = NgramVectorizer::Restore(OptionsOf(c), fitted->terms(), fitted->idf());
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    ASSERT_EQ(made->width(), fitted->width());
    SparseRows rows{.width = made->width()};
    for (const std::string_view text : texts) made->Transform(text, &rows);
    test::ExpectRows(rows, *c.Find("rows"));
  }
}

// Parts as a damaged file has them.
TEST(NgramVectorizerTest, WrongPartsAreNamed) {
  const NgramOptions idf{.use_idf = true}, hashed{.n_features = 8};
  struct Case {
    NgramOptions options;
    std::vector<std::string> terms;
    std::vector<float> idf;
    const char* message;
  };
  const Case cases[] = {{{}, {}, {}, "there are 0 terms, must be from 1 to"},
                        {hashed, {"a"}, {}, "there are 1 terms, must be none, since"},
                        {{}, {"a", "c", "b"}, {}, "term 3 is not greater than the one before"},
                        {{}, {"a", "a"}, {}, "term 2 is not greater"},
                        {{}, {"a"}, {1}, "1 idf values for 1 columns, use_idf is false"},
                        {idf, {"a", "b"}, {1}, "1 idf values for 2 columns, use_idf is true"},
                        {idf, {"a"}, {NAN}, "an idf value is not finite"},
                        {{.ngram_min = 0}, {"a"}, {}, "ngram_range is [0, 1]"}};
  for (const Case& c : cases) {
    const auto made = NgramVectorizer::Restore(c.options, c.terms, c.idf);
    ASSERT_FALSE(made.ok()) << c.message;
    EXPECT_EQ(made.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(made.status().message(), HasSubstr(c.message));
  }
}

// Values of the reference implementation (Appleby 2011), for each length of the tail.
TEST(NgramVectorizerTest, HashesAreThoseOfMurmurHash3) {
  EXPECT_EQ(MurmurHash3(""), 0u);
  EXPECT_EQ(MurmurHash3("a"), 0x3c2569b2u);
  EXPECT_EQ(MurmurHash3("aa"), 0x371091a9u);
  EXPECT_EQ(MurmurHash3("abc"), 0xb3dd93fau);
  EXPECT_EQ(MurmurHash3("aaaa"), 0x7eeed987u);
  EXPECT_EQ(MurmurHash3("Hello, world!"), 0xc0363e43u);
}

// Enough terms for several doublings, with an empty one and one with a zero byte.
TEST(TermTableTest, TermsKeepTheirIds) {
  TermTable table;
  const std::string zero("a\0b", 3);
  EXPECT_EQ(table.Insert(""), 0);
  EXPECT_EQ(table.Insert(zero), 1);
  for (int i = 2; i < 5000; ++i) ASSERT_EQ(table.Insert(std::to_string(i)), i);
  for (int i = 2; i < 5000; ++i) {
    ASSERT_EQ(table.Insert(std::to_string(i)), i);
    ASSERT_EQ(table.Find(std::to_string(i)), i);
    ASSERT_EQ(table.term(i), std::to_string(i));
  }
  EXPECT_EQ(table.size(), 5000);
  EXPECT_EQ(table.Find(""), 0);
  EXPECT_EQ(table.Find(zero), 1);
  EXPECT_EQ(table.Find("a"), -1);
  EXPECT_EQ(table.Find("5000"), -1);
}

// A text without any known n-gram is a row without entries.
TEST(NgramVectorizerTest, UnknownTermsAreLeftOut) {
  const std::string_view texts[] = {"good film", "bad film"};
  const auto made = NgramVectorizer::Fit({}, texts);
  ASSERT_TRUE(made.ok());
  SparseRows rows{.width = made->width()};
  made->Transform("an unseen film", &rows);
  made->Transform("nothing", &rows);
  EXPECT_THAT(rows.columns, testing::ElementsAre(1));  // between bad and good
  EXPECT_EQ(rows.size(), 2);
}

TEST(NgramVectorizerTest, WrongOptionsAreNamed) {
  const std::string_view texts[] = {"good film", "bad"};
  const std::pair<NgramOptions, const char*> cases[] = {
      {{.ngram_min = 0}, "ngram_range is [0, 1]"},
      {{.ngram_min = 3, .ngram_max = 2}, "ngram_range is [3, 2]"},
      {{.n_features = -1}, "n_features is -1, must be from 0"},
      {{.min_df = 2}, "the 2 texts have no n-gram that occurs in 2 of them; lower min_df"}};
  for (const auto& [options, message] : cases) {
    const auto made = NgramVectorizer::Fit(options, texts);
    ASSERT_FALSE(made.ok()) << message;
    EXPECT_THAT(made.status().message(), HasSubstr(message));
  }
}

}  // namespace
}  // namespace troop
