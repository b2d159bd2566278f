#include "apps/deploy/text_scores_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace troop {
namespace {

using ::testing::HasSubstr;

TextScores Scores() {
  TextScores scores{.examples = 5};
  scores.metrics = {{"accuracy", 0.8, ConfidenceInterval{0.6, 1}}, {"auc", 0.75, {}}};
  scores.classes = {{.support = 3, .predicted = 4, .precision = 0.75, .recall = 1, .f1 = 0.857},
                    {.support = 2, .predicted = 1, .recall = 0.5}};
  scores.confusion = {{3, 0}, {1, 1}};
  return scores;
}

TEST(TextScoresReportTest, TablesHaveNamesAndDashesForUndefinedValues) {
  const std::string text = TextScoresTables(Scores(), std::vector<std::string>{"calm", "anger"});
  EXPECT_THAT(text, HasSubstr("accuracy  0.8000 (95 % interval 0.6000 to 1.0000)\n"));
  EXPECT_THAT(text, HasSubstr("auc       0.7500\n"));
  EXPECT_THAT(text,
              HasSubstr("anger         -    0.5000         -         -         2         1\n"));
  EXPECT_THAT(text, HasSubstr("anger         1         1\n"));
}

// A label with a bar would end its cell, and one with a line break its row.
TEST(TextScoresReportTest, MarkdownTablesKeepLabelsInTheirCells) {
  const std::vector<std::string> names = {"calm|quiet", "an\nger"};
  const std::string text = TextScoresMarkdown(Scores(), names);
  EXPECT_THAT(text, HasSubstr("| measure | value | 95 % interval |\n|---|---:|---:|\n"));
  EXPECT_THAT(text, HasSubstr("| accuracy | 0.8000 | 0.6000 to 1.0000 |\n| auc | 0.7500 | - |\n"));
  EXPECT_THAT(text, HasSubstr("| an ger | - | 0.5000 | - | - | 2 | 1 |\n"));
  EXPECT_THAT(text, HasSubstr("predicted class | calm\\|quiet | an ger |\n|---|---:|---:|\n"
                              "| calm\\|quiet | 3 | 0 |\n| an ger | 1 | 1 |\n"));
}

// The picture has a name for each row, as the tables do.
TEST(TextScoresReportTest, PictureNamesEachClass) {
  const MatrixPlot plot = ConfusionPlot(Scores(), std::vector<std::string>{"calm"});
  EXPECT_EQ(plot.names, (std::vector<std::string>{"calm", "LABEL_1"}));
  EXPECT_EQ(plot.counts, Scores().confusion);
}

TEST(TextScoresReportTest, JsonHasNullForUndefinedValues) {
  JsonObject json;
  AddTextScores(Scores(), std::vector<std::string>{"calm"}, &json);
  const auto parsed = ParseJson(json.str());
  ASSERT_TRUE(parsed.ok()) << json.str();
  EXPECT_EQ(parsed->Find("metrics")->Find("accuracy")->Find("low")->number, 0.6);
  EXPECT_EQ(parsed->Find("metrics")->Find("auc")->Find("low"), nullptr);
  EXPECT_EQ(parsed->Find("classes")->Find("LABEL_1")->Find("precision")->kind,
            JsonValue::Kind::kNull);
  EXPECT_EQ(parsed->Find("confusion")->array[1].array[0].number, 1);
  EXPECT_EQ(parsed->Find("labels")->array[1].string, "LABEL_1");
}

}  // namespace
}  // namespace troop
