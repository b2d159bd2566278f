#include "datasets/text/text_table.h"

#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "datasets/text/label_map.h"
#include "tests/testing/captured_log.h"

namespace troop {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr ProblemType kSingle = ProblemType::kSingleLabel, kMulti = ProblemType::kMultiLabel;

Result<LabeledTexts> Csv(std::string_view text, const TextFormat& format = {}) {
  return ReadTextTable("x.csv", text, TextSourceKind::kCsv, format);
}
Result<LabeledTexts> Json(std::string_view text, const TextFormat& format = {}) {
  return ReadTextTable("x.jsonl", text, TextSourceKind::kJsonLines, format);
}

TEST(TextTableTest, ReadsKnownColumnsInAnyOrder) {
  const auto texts =
      Csv("id,sentiment,review\r\n1,positive,\"Good,\nreally\"\r\n2, negative ,bad\r\n");
  ASSERT_TRUE(texts.ok()) << texts.status().ToString();
  ASSERT_EQ(texts->train.size(), 2);
  EXPECT_FALSE(texts->pairs);
  EXPECT_EQ(texts->train[0].text, "Good,\nreally");
  EXPECT_THAT(texts->train[0].labels, ElementsAre("positive"));
  EXPECT_EQ(texts->train[0].line, 2);
  EXPECT_THAT(texts->train[1].labels, ElementsAre("negative"));
  EXPECT_EQ(texts->train[1].line, 4);
}

TEST(TextTableTest, ChoosesColumnsByNameOrConfig) {
  const auto columns = [](std::vector<std::string> names, const TextFormat& format = {}) {
    const auto chosen = ChooseTextColumns(names, format);
    if (!chosen.ok()) return chosen.status().message();
    std::string all;
    for (const std::string& name : chosen->texts) all += name + " ";
    return all + "-> " + chosen->label;
  };
  EXPECT_EQ(columns({"label", "text"}), "text -> label");
  EXPECT_EQ(columns({"hypothesis", "premise", "label", "text"}), "premise hypothesis -> label");
  EXPECT_EQ(columns({"idx", "sentence1", "sentence2", "score"}), "sentence1 sentence2 -> score");
  EXPECT_EQ(columns({"a", "b", "c"}, {.text_columns = {"c", "a"}, .label_column = "b"}),
            "c a -> b");
  EXPECT_EQ(columns({"text", "label"}, {.labeled = false}), "text -> ");
  // Doubt and errors.
  EXPECT_EQ(columns({"text", "label", "rating"}),
            "more than one of the columns text, label, rating is a label by its name; set "
            "data.label_column");
  EXPECT_THAT(columns({"text", "y"}), HasSubstr("none of the columns text, y is a label"));
  EXPECT_EQ(columns({"Great film", "1"}),
            "none of the columns Great film, 1 is known as a text (text, review, sentence, …); set "
            "data.text_columns, and add a first line with the names if there is none");
  EXPECT_EQ(columns({"text", "label"}, {.text_columns = {"body"}}),
            "data.text_columns names \"body\", but the columns are text, label; set it to one of "
            "them, or add a first line with the names if there is none");
  EXPECT_THAT(columns({"text", "label"}, {.label_column = "y"}),
              HasSubstr("data.label_column names \"y\", but the columns are text, label"));
  EXPECT_THAT(columns({"text", "label"}, {.label_column = "text"}),
              HasSubstr("also a text column"));
  EXPECT_THAT(columns({"text", "text", "label"}), HasSubstr("2 columns \"text\""));
  // A name that is cut within a character stays UTF-8.
  EXPECT_THAT(columns({std::string(39, 'x') + "\u00E9", "y"}), HasSubstr("xx, y"));
}

// Rows after the first one are not parsed, and may be damaged.
TEST(TextTableTest, FindsColumnsInFirstRow) {
  const auto columns = [](std::string_view text, TextSourceKind kind, const char* delimiter = "") {
    const auto found = ColumnsOfTable(text, kind, {.delimiter = delimiter});
    return found.ok() ? fmt::format("{}", fmt::join(*found, "|")) : found.status().message();
  };
  using Kind = TextSourceKind;
  EXPECT_EQ(columns("\xEF\xBB\xBF\n text , label\n1,2,3\n", Kind::kCsv), "text|label");
  EXPECT_EQ(columns("a;b,c\n", Kind::kCsv, ";"), "a|b,c");
  EXPECT_EQ(columns("text\tlabel\n", Kind::kTsv), "text|label");
  EXPECT_EQ(columns("\xEF\xBB\xBF\n{\"b\": 1, \"a\": null}\n{", Kind::kJsonLines), "a|b");
  EXPECT_THAT(columns("", Kind::kCsv), HasSubstr("it is empty"));
  EXPECT_THAT(columns("{\n", Kind::kJsonLines), HasSubstr("JSON at byte"));
}

TEST(TextTableTest, ReadsPairsAndDelimiters) {
  const auto pairs = Csv("text_a;text_b;label\na,b;c;1\n", {.delimiter = ";"});
  ASSERT_TRUE(pairs.ok()) << pairs.status().ToString();
  EXPECT_TRUE(pairs->pairs);
  EXPECT_EQ(pairs->train[0].text, "a,b");
  EXPECT_EQ(pairs->train[0].second, "c");
  const auto tsv = ReadTextTable("x.tsv", "text\tlabel\na,\tb\n", TextSourceKind::kTsv, {});
  ASSERT_TRUE(tsv.ok()) << tsv.status().ToString();
  EXPECT_EQ(tsv->train[0].text, "a,");
  EXPECT_THAT(Csv("text,label\na,b\n", {.delimiter = "::"}).status().message(),
              HasSubstr("data.delimiter is \"::\", must be one byte"));
  EXPECT_THAT(Json("{}", {.delimiter = ";"}).status().message(), HasSubstr("JSON Lines have none"));
}

TEST(TextTableTest, RejectsBadCsvNamingLine) {
  const auto message = [](std::string_view text) { return Csv(text).status().message(); };
  EXPECT_EQ(message(""), "it is empty; its first line must name the columns");
  EXPECT_EQ(message("text,label\n"), "it has no examples; add rows");
  EXPECT_EQ(message("text,label\nx,1\ny\n"),
            "line 3: 1 fields, expected 2; quote fields that contain the delimiter, or set "
            "data.delimiter");
  EXPECT_EQ(message("text,label\nx,1\n\"y,0\n"), "line 3: unclosed quote");
  EXPECT_EQ(message("text,label\nx,caf\xE9\n"),
            "line 2: the label is not UTF-8; convert the file, for example with iconv -f latin1 -t "
            "utf-8");
  EXPECT_EQ(message("text,label\n,1\n  ,0\n"),
            "the text column \"text\" is empty in all 2 rows; set data.text_columns to other "
            "columns");
  EXPECT_EQ(message("sentence1,sentence2,label\na,,1\nb, ,0\n"),
            "the text column \"sentence2\" is empty in all 2 rows; set data.text_columns to other "
            "columns");
  EXPECT_EQ(message("text,label\nx,\ny, \n"),
            "the label column \"label\" is empty in all 2 rows; set data.label_column to another "
            "column");
}

TEST(TextTableTest, CountsUnusualRowsAndKeepsThem) {
  ::testing::internal::CaptureStderr();
  const auto texts = Csv("text,label\ncaf\xE9,a\n,b\nx,\n\xFF,\ny,a\n");
  const std::string said = ::testing::internal::GetCapturedStderr();
  ASSERT_TRUE(texts.ok()) << texts.status().ToString();
  EXPECT_EQ(texts->train.size(), 5);
  EXPECT_EQ(texts->train[0].text, "caf\xE9");
  EXPECT_FALSE(texts->train[2].labeled);
  EXPECT_THAT(said, HasSubstr("x.csv: rows that are not UTF-8, whose invalid bytes become U+FFFD"));
  EXPECT_THAT(said, HasSubstr("utf-8: 2 (first: line 2, 5)"));
  EXPECT_THAT(said, HasSubstr("x.csv: rows with an empty text, which are kept: 1 (first: line 3)"));
  EXPECT_THAT(said,
              HasSubstr("x.csv: rows without label, which are left out: 2 (first: line 4, 5)"));
}

TEST(TextTableTest, ReadsJsonLines) {
  const auto texts = Json(
      "\xEF\xBB\xBF{\"text\": \"a\\nb\", \"label\": \"x\", \"n\": {}}\r\n\n"
      "{\"label\": 2, \"text\": \"c\"}\n{\"text\": null, \"label\": true}\n"
      "{\"text\": \"d\", \"label\": 1.5}\n{\"text\": \"e\", \"label\": null}\n{\"text\": \"f\"}");
  ASSERT_TRUE(texts.ok()) << texts.status().ToString();
  ASSERT_EQ(texts->train.size(), 6);
  EXPECT_EQ(texts->train[0].text, "a\nb");
  EXPECT_THAT(texts->train[0].labels, ElementsAre("x"));
  EXPECT_THAT(texts->train[1].labels, ElementsAre("2"));
  EXPECT_EQ(texts->train[1].line, 3);
  EXPECT_EQ(texts->train[2].text, "");
  EXPECT_THAT(texts->train[2].labels, ElementsAre("true"));
  EXPECT_THAT(texts->train[3].labels, ElementsAre("1.5"));
  EXPECT_FALSE(texts->train[4].labeled);
  EXPECT_FALSE(texts->train[5].labeled);
}

TEST(TextTableTest, RejectsBadJsonNamingLine) {
  const auto message = [](std::string_view text, ProblemType problem = kSingle) {
    return Json(text, {.problem_type = problem}).status().message();
  };
  const std::string good = "{\"text\": \"a\", \"label\": 1}\n";
  EXPECT_THAT(message(good + "{\"text\": \n"), HasSubstr("line 2: "));
  EXPECT_EQ(message("[{}]"),
            "it is a JSON array; write an object per line, for example with jq -c '.[]'");
  EXPECT_THAT(message(good + "[1]"), HasSubstr("line 2: it is not an object"));
  EXPECT_THAT(message(good + "{\"label\": 1}"), HasSubstr("line 2: it has no key \"text\""));
  EXPECT_THAT(message(good + "{\"text\": 5}"), HasSubstr("line 2: \"text\" is not a string"));
  EXPECT_THAT(message(good + "{\"text\": \"x\", \"label\": [1]}"),
              HasSubstr("line 2: the label is a list; set model.problem_type"));
  EXPECT_EQ(message(good + "{\"text\": \"x\", \"label\": {}}"),
            "line 2: the label must be a string, a number or a boolean");
  EXPECT_THAT(message(good + "{\"text\": \"x\", \"label\": [[]]}", kMulti),
              HasSubstr("line 2: the label must be a string, a number or a boolean, or a list"));
  EXPECT_THAT(message("{\"body\": \"a\", \"label\": 1}"), HasSubstr("none of the columns body"));
  EXPECT_THAT(message("\n \n"), HasSubstr("it has no examples"));
  // 400 digits: more than a number can hold.
  EXPECT_THAT(message(good + "{\"text\": \"x\", \"label\": 1e999}"), HasSubstr("line 2: "));
}

TEST(TextTableTest, SplitsLabelsOfMultiLabelTables) {
  const auto texts = Csv("text,label\na,x| y\nb,\nc,y\n", {.problem_type = kMulti});
  ASSERT_TRUE(texts.ok()) << texts.status().ToString();
  EXPECT_THAT(texts->train[0].labels, ElementsAre("x", "y"));
  EXPECT_TRUE(texts->train[1].labeled);
  EXPECT_THAT(texts->train[1].labels, ElementsAre());
  const auto json = Json(
      "{\"text\": \"a\", \"labels\": [\"x|y\", 3]}\n{\"text\": \"b\", "
      "\"labels\": []}\n{\"text\": \"c\", \"labels\": null}\n",
      {.problem_type = kMulti});
  ASSERT_TRUE(json.ok()) << json.status().ToString();
  EXPECT_THAT(json->train[0].labels, ElementsAre("x|y", "3"));
  EXPECT_TRUE(json->train[1].labeled);
  EXPECT_FALSE(json->train[2].labeled);
  EXPECT_EQ(Csv("text,label\na,x||y\n", {.problem_type = kMulti}).status().message(),
            "line 2: a label is empty");
}

// Examples with these labels; none: an example without label.
std::vector<LabeledText> Labeled(std::initializer_list<std::vector<std::string>> labels) {
  std::vector<LabeledText> texts;
  for (const auto& of : labels) {
    texts.push_back({.text = "a", .labels = of, .labeled = !of.empty()});
  }
  return texts;
}

std::vector<std::string> Learned(std::initializer_list<std::vector<std::string>> labels) {
  const auto map = LabelMap::Learn(Labeled(labels), kSingle);
  return map.ok() ? map->names() : std::vector<std::string>{map.status().message()};
}

TEST(LabelMapTest, LearnsSortedNames) {
  EXPECT_THAT(Learned({{"spam"}, {"ham"}, {"spam"}, {}}), ElementsAre("ham", "spam"));
  EXPECT_THAT(Learned({{"10"}, {"9"}, {"-1"}, {"9.0"}, {"+9"}}), ElementsAre("-1", "9", "10"));
  EXPECT_THAT(Learned({{"10"}, {"9"}, {"x"}}), ElementsAre("10", "9", "x"));
  EXPECT_THAT(Learned({{"1.5"}, {"1"}}), ElementsAre("1", "1.5"));
  // Case does not distinguish classes; the most frequent spelling names them.
  EXPECT_THAT(Learned({{"Positive"}, {"positive"}, {"positive"}, {"bad"}}),
              ElementsAre("bad", "positive"));
  // Words and numbers of sentiments may be mixed.
  EXPECT_THAT(Learned({{"positive"}, {"0"}, {"negative"}, {"1"}}),
              ElementsAre("negative", "positive"));
  EXPECT_THAT(Learned({{"positive"}, {"0"}, {"neutral"}}), ElementsAre("0", "neutral", "positive"));
}

// Merged spellings of integers were not reported; one example is enough.
TEST(LabelMapTest, ReportsMergedIntegersOnce) {
  const auto log = [](std::initializer_list<std::vector<std::string>> labels) {
    const CapturedLog captured;
    EXPECT_TRUE(LabelMap::Learn(Labeled(labels), kSingle).ok());
    return captured.text();
  };
  const std::string merged = log({{"007"}, {"8"}, {"7"}, {"08"}, {"7.0"}});
  EXPECT_THAT(merged, HasSubstr("\"007\" and \"7\" are one class (7), as integers are"));
  EXPECT_EQ(std::ranges::count(merged, '\n'), 1) << merged;
  EXPECT_EQ(log({{"007"}, {"8.0"}, {"007"}, {"a"}}), "") << "nothing is merged";
}

TEST(LabelMapTest, RejectsTooFewClasses) {
  EXPECT_THAT(Learned({{"a"}, {"A"}, {}}),
              ElementsAre(HasSubstr("all 2 labeled training examples have the label \"A\"")));
  EXPECT_THAT(Learned({{}}), ElementsAre("it has no labeled training examples"));
  EXPECT_TRUE(LabelMap::Learn(Labeled({{"a"}}), kMulti).ok());
}

TEST(LabelMapTest, FindsLabelsAsWritten) {
  const auto map = *LabelMap::Make({"Yes", "no", "NO", "3"}, kSingle);
  EXPECT_EQ(map.Find("Yes"), 0);
  EXPECT_EQ(map.Find("yes"), 0);
  EXPECT_EQ(map.Find("NO"), 2);
  EXPECT_EQ(map.Find("No"), std::nullopt);  // of two
  EXPECT_EQ(map.Find("3.0"), 3);
  EXPECT_EQ(map.Find("03"), 3);
  EXPECT_EQ(map.Find("0"), std::nullopt);
  EXPECT_EQ(map.Find(""), std::nullopt);
  const auto reviews = *LabelMap::Make({"positive", "negative"}, kSingle);
  EXPECT_EQ(reviews.Find("1"), 0);
  EXPECT_EQ(reviews.Find("pos"), 0);
  EXPECT_EQ(reviews.Find("0"), 1);
  EXPECT_EQ(reviews.Find("Neg"), 1);
  EXPECT_EQ(reviews.Find("2"), std::nullopt);
}

TEST(LabelMapTest, RejectsBadLists) {
  const auto message = [](std::vector<std::string> names) {
    return LabelMap::Make(std::move(names), kSingle).status().message();
  };
  EXPECT_EQ(message({"a"}), "there are 1 classes, must be from 2 to 100000");
  EXPECT_EQ(message({"a", ""}), "class 1 has no name");
  EXPECT_EQ(message({"a", "b", "a"}), "two classes have the name \"a\"");
  EXPECT_EQ(message({"1", "1.0"}), "two classes have the name \"1.0\"");
  EXPECT_EQ(message({"a", "\xFF"}), "the name of class 1 is not UTF-8");
}

TEST(LabelMapTest, NumbersAreFinite) {
  EXPECT_EQ(NumberOf("+2.5"), 2.5);
  EXPECT_EQ(NumberOf("-1e3"), -1000);
  for (const char* const text : {"", "nan", "inf", "-inf", "1e39", "1e999", "1 ", "0x10", "1,5"}) {
    EXPECT_EQ(NumberOf(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace troop
