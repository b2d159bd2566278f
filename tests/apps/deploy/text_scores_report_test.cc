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
