// The reader of svmlight files, against scikit-learn's load_svmlight_file.
#include "datasets/sparse/svmlight.h"

#include <gmock/gmock.h>

#include "tests/datasets/sparse/sparse_fixture.h"

namespace troop {
namespace {

using testing::HasSubstr;

TEST(SvmlightTest, RowsAndLabelsEqualThoseOfScikitLearn) {
  const JsonValue& expected = *test::SparseExpected().Find("svmlight");
  const auto data = ParseSvmlight("x.svm", *expected.String("text"));
  ASSERT_TRUE(data.ok()) << data.status().ToString();
  EXPECT_EQ(data->rows.width, *expected.Integer("width"));
  test::ExpectRows(data->rows, *expected.Find("rows"));
  const auto& labels = expected.Find("labels")->array;
  ASSERT_EQ(data->labels.size(), labels.size());
  for (std::size_t i = 0; i < labels.size(); ++i) {
    ASSERT_EQ(data->labels[i].size(), 1u);
    EXPECT_EQ(std::stod(data->labels[i][0]), labels[i].number);
  }
  EXPECT_THAT(data->lines, testing::ElementsAre(2, 3, 5, 6, 7));
}

TEST(SvmlightTest, LabelsMayBeSeveralAndIndicesBeginAtZero) {
  const auto data = ParseSvmlight("x.svm", "a,b 0:1 5:0 9:2\r\nc 3:4", {12, true});
  ASSERT_TRUE(data.ok()) << data.status().ToString();
  EXPECT_THAT(data->labels[0], testing::ElementsAre("a", "b"));
  EXPECT_EQ(data->rows.width, 12);
  // An entry of 0 is left out.
  EXPECT_THAT(data->rows.columns, testing::ElementsAre(0, 9, 3));
  EXPECT_THAT(data->rows.values, testing::ElementsAre(1, 2, 4));
}

// Each damage is one line with file, line and remedy.
TEST(SvmlightTest, DamagedLinesAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"1 1:1\n1 3:1 2:1\n", "x.svm: line 2: the index 2 follows 3; sort the indices"},
      {"1 3:1 3:1", "x.svm: line 1: the index 3 follows 3"},
      {"1 1:1\n\n1 2:x\n", "x.svm: line 3: the value of \"2:x\" is not a finite number"},
      {"1 1:nan", "the value of \"1:nan\" is not a finite number"},
      {"1 1:1e39", "the value of \"1:1e39\" is not a finite number"},
      {"1 1:", "the value of \"1:\" is not a finite number"},
      {"1 a:1", "the index of \"a:1\" is not an integer"},
      {"1 99999999999999999999:1", "the index of \"99999999999999999999:1\" is not an integer"},
      {"1 0:1", "the index of \"0:1\" is less than 1; count from 1, as libsvm does"},
      {"1 -2:1", "the index of \"-2:1\" is negative"},
      {"1 5", "\"5\" is not INDEX:VALUE"},
      {"1:1 2:1", "begins with \"1:1\", must begin with a label"},
      {"1 17:1", "the index 17 exceeds the number of features, 16; raise it"},
      {"# nothing\n", "x.svm: has no examples"}};
  for (const auto& [text, message] : cases) {
    const auto data = ParseSvmlight("x.svm", text, {.width = 16});
    ASSERT_FALSE(data.ok()) << text;
    EXPECT_EQ(data.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(data.status().message(), HasSubstr(message));
    EXPECT_EQ(data.status().message().find('\n'), std::string::npos);
  }
  const auto huge = ParseSvmlight("x.svm", "1 268435457:1");
  EXPECT_THAT(huge.status().message(), HasSubstr("exceeds the number of features, 268435456"));
  EXPECT_EQ(ReadSvmlight("/no/such/file.svm").status().code(), Code::kNotFound);
}

}  // namespace
}  // namespace troop
