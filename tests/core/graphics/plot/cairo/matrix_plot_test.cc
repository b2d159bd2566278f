#include "core/graphics/plot/matrix_plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

namespace troop {
namespace {

using testing::HasSubstr;

const MatrixPlot kThree{.title = "Confusion matrix",
                        .row_label = "true class",
                        .column_label = "predicted class",
                        .names = {"bad", "so <so>", "good"},
                        .counts = {{90, 10, 0}, {0, 0, 0}, {7, 0, 3}}};

// The fill colors of the cells, row by row, behind that of the background.
std::vector<std::string> FillsOf(const std::string& svg) {
  std::vector<std::string> fills;
  const std::regex pattern("fill[:=]\"?(rgb\\([^)]*\\))");
  for (std::sregex_iterator at(svg.begin(), svg.end(), pattern), end; at != end; ++at)
    fills.push_back((*at)[1]);
  return fills;
}

TEST(MatrixPlotTest, CellsHaveCountsNamesAndShades) {
  const auto svg = SvgMatrixPlot(kThree);
  ASSERT_TRUE(svg.ok()) << svg.status().ToString();
  for (const char* const text : {">90<", ">10<", ">7<", ">3<", ">true class<", ">predicted class<",
                                 ">so &lt;so&gt;<", ">Confusion matrix<"}) {
    EXPECT_THAT(*svg, HasSubstr(text));
  }
  const std::vector<std::string> fills = FillsOf(*svg);
  ASSERT_GE(fills.size(), 9u);
  const std::vector<std::string> cells(fills.end() - 9, fills.end());
  // Equal shares have equal shades: 0 of 100, 0 of no example, 0 of 10.
  EXPECT_EQ(cells[2], cells[3]);
  EXPECT_EQ(cells[2], cells[7]);
  EXPECT_NE(cells[0], cells[1]);
  EXPECT_NE(cells[6], cells[8]);
}

TEST(MatrixPlotTest, LargeMatricesKeepTheirSize) {
  const std::size_t n = kMatrixPlotRowsMax;
  MatrixPlot large{.names = std::vector<std::string>(n, std::string(300, 'x')),
                   .counts = std::vector(n, std::vector<std::int64_t>(n, 1))};
  const auto png = DrawMatrixPlot(large);
  ASSERT_TRUE(png.ok()) << png.status().ToString();
  // Big-endian width and height of the header.
  const auto bytes = png->bytes();
  const auto size = [&](std::size_t at) {
    return std::to_integer<int>(bytes[at + 2]) * 256 + std::to_integer<int>(bytes[at + 3]);
  };
  EXPECT_LT(size(16), 1600);
  EXPECT_LT(size(20), 1600);
  large.names.emplace_back("x");
  for (auto& row : large.counts) row.push_back(1);
  large.counts.emplace_back(n + 1, 1);
  EXPECT_THAT(DrawMatrixPlot(large).status().message(), HasSubstr("must be at most 200"));
}

}  // namespace
}  // namespace troop
