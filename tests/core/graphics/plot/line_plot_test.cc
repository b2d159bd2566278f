#include "core/graphics/plot/line_plot.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <regex>

#include "core/base/philox.h"
#include "core/graphics/color.h"
#include "core/storage/storage.h"

namespace troop {
namespace {

LinePlot LearningCurve() {
  LinePlot plot{.title = "apex_cartpole", .x_label = "agent steps", .y_label = "mean return"};
  plot.series = {
      {"evaluator (greedy)", {}, {}}, {"actors (jygpq @#%&)", {}, {}}, {"three", {}, {}}};
  Rng rng({.run_seed = 1, .purpose = Purpose::kTest});
  for (int i = 0; i <= 200; ++i) {
    const double x = i * 250.0;
    const double level = 500 / (1 + std::exp(-(x - 20000) / 4000));
    for (std::size_t s = 0; s < plot.series.size(); ++s) {
      plot.series[s].xs.push_back(x);
      plot.series[s].ys.push_back(level * (1 - 0.25 * double(s)) + 12 * rng.Normal());
    }
  }
  plot.series[2].ys[100] = std::nan("");
  return plot;
}

// True if a pixel has a color; blending may round differently in other versions of Cairo.
bool IsInk(const Picture& picture, int x, int y, Color color) {
  const std::uint8_t* p = &picture.rgb[std::size_t(y * picture.width + x) * 3];
  return std::abs(p[0] - color.red) <= 2 && std::abs(p[1] - color.green) <= 2 &&
         std::abs(p[2] - color.blue) <= 2;
}

// Pixels of one color within a picture.
int CountInk(const Picture& picture, Color color) {
  int count = 0;
  for (int y = 0; y < picture.height; ++y) {
    for (int x = 0; x < picture.width; ++x) count += IsInk(picture, x, y, color);
  }
  return count;
}

// The first three of the eight colors, and a fifth of the first one over white.
constexpr Color kBlue{0, 114, 178}, kOrange{213, 94, 0}, kGreen{0, 158, 115},
    kPaleBlue{204, 227, 240};

Picture Render(const LinePlot& plot) {
  Result<Picture> picture = RenderLinePlot(plot);
  EXPECT_TRUE(picture.ok()) << picture.status().ToString();
  return picture.ok() ? std::move(*picture) : Picture();
}

std::string Svg(const LinePlot& plot) {
  Result<std::string> svg = SvgLinePlot(plot);
  EXPECT_TRUE(svg.ok()) << svg.status().ToString();
  return svg.ok() ? std::move(*svg) : "";
}

// Number of matches of a regular expression.
int CountOf(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  return int(std::distance(std::sregex_iterator(text.begin(), text.end(), regex), {}));
}

// A color of a shape in an SVG file of Cairo, which writes it as an attribute or as a style.
std::string SvgColor(const std::string& property, const std::string& percent) {
  return property + "(=\"|:) ?rgb\\(" + percent + "\\)";
}
constexpr char kBluePercent[] = "0%, ?44\\.7\\d*%, ?69\\.8\\d*%";

// Writes the plots for inspection: TROOP_PLOT_FOLDER=/tmp plot_test
void Keep(const std::string& name, const LinePlot& plot) {
  const char* folder = getenv("TROOP_PLOT_FOLDER");
  if (folder == nullptr) return;
  auto storage = MakeDiskStorage(folder);
  ASSERT_TRUE(storage.ok());
  const Result<Buffer> png = DrawLinePlot(plot);
  ASSERT_TRUE(png.ok());
  ASSERT_TRUE((*storage)->WriteAtomic(name, png->bytes()).ok());
  ASSERT_TRUE((*storage)->WriteAtomic(name + ".svg", Svg(plot)).ok());
}

// The tests below draw; a build without Cairo has no plots.
class PlotTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!HasPlots()) GTEST_SKIP() << "built without Cairo";
  }
};

TEST(NoPlotsTest, BuildWithoutCairoSaysSoInOneLine) {
  if (HasPlots()) {
    EXPECT_TRUE(CheckPlots().ok());
    return;
  }
  for (const Status& status : {CheckPlots(), RenderLinePlot({}).status(), DrawLinePlot({}).status(),
                               SvgLinePlot({}).status()}) {
    EXPECT_EQ(status.code(), Code::kFailedPrecondition);
    EXPECT_TRUE(status.message().starts_with("this build has no plots (Cairo was not found"));
    EXPECT_EQ(status.message().find('\n'), std::string::npos);
  }
}

TEST_F(PlotTest, DrawsEachSeriesInDistinctColor) {
  const LinePlot plot = LearningCurve();
  const Picture picture = Render(plot);
  EXPECT_EQ(picture.width, 960);
  EXPECT_EQ(picture.height, 540);
  EXPECT_GT(CountInk(picture, kBlue), 300);
  EXPECT_GT(CountInk(picture, kOrange), 300);
  EXPECT_GT(CountInk(picture, kGreen), 300);
  Keep("curve.png", plot);
}

TEST_F(PlotTest, DrawsLineThroughItsPoints) {
  LinePlot plot{.series = {{"", {0, 1}, {3, 3}}}};
  const Picture picture = Render(plot);
  int rows = 0;  // a flat line: long rows of the color, next to each other
  for (int y = 0; y < picture.height; ++y) {
    int inked = 0;
    for (int x = 0; x < picture.width; ++x) {
      inked += IsInk(picture, x, y, kBlue);
    }
    if (inked == 0) continue;
    ++rows;
    EXPECT_GT(inked, 700) << y;
  }
  EXPECT_TRUE(rows >= 1 && rows <= 3) << rows;
}

TEST_F(PlotTest, RendersDegenerateData) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  const std::vector<std::vector<double>> odd = {{},
                                                {1},
                                                {nan},
                                                {nan, inf, -inf},
                                                {0, 0, 0},
                                                {1, nan, 2},
                                                {1e300, -1e300},
                                                {1e308, -1e308, 3},
                                                {1e-300, 2e-300},
                                                {1e15, 1e15 + 1}};
  for (const auto& ys : odd) {
    LinePlot plot{.title = "odd", .series = {{"x", {}, ys}, {"y", {}, ys}}};
    for (auto& series : plot.series) {
      for (std::size_t i = 0; i < ys.size(); ++i) series.xs.push_back(double(i));
    }
    EXPECT_FALSE(Render(plot).rgb.empty());
    EXPECT_NE(Svg(plot).find("</svg>"), std::string::npos);
  }
  EXPECT_FALSE(Render({}).rgb.empty());
  Keep("empty.png", {.title = "nothing yet", .x_label = "steps", .y_label = "return"});
  Keep("one.png", {.title = "one point",
                   .x_label = "steps",
                   .y_label = "return",
                   .series = {{"a", {1}, {-0.25}}}});
}

TEST_F(PlotTest, SvgKeepsTextAndBreaksLinesAtNonFinitePoints) {
  const double nan = std::nan("");
  LinePlot plot{.title = "pole <1>", .x_label = "agent steps", .y_label = "return"};
  plot.series = {{.name = "a & b", .xs = {0, 1, 2, 3, 4}, .ys = {1, 2, nan, 3, 4}},
                 {.name = "c", .xs = {0, 4}, .ys = {0, 5}, .low = {0, 4}, .high = {1, 6}}};
  const std::string svg = Svg(plot);
  EXPECT_TRUE(svg.starts_with("<svg ")) << svg;
  EXPECT_TRUE(svg.ends_with("</svg>\n")) << svg;
  for (const char* text : {">pole &lt;1&gt;<", ">agent steps<", ">return<", ">a &amp; b<", ">c<"}) {
    EXPECT_EQ(CountOf(svg, text), 1) << text;
  }
  // Two pieces and the sample of the legend.
  EXPECT_EQ(CountOf(svg, SvgColor("stroke", kBluePercent)), 3) << svg;
  EXPECT_EQ(CountOf(svg, "fill-opacity(=\"|:) ?0\\.2"), 1) << svg;
  EXPECT_EQ(CountOf(svg, "nan|inf"), 0);
  plot.series = {};
  EXPECT_TRUE(Svg(plot).ends_with("</svg>\n"));
}

// The points of the first line of a color in an SVG file.
std::vector<std::pair<double, double>> FirstLine(const std::string& svg,
                                                 const std::string& percent) {
  const std::regex element("<path[^>]*" + SvgColor("stroke", percent) + "[^>]*>");
  std::smatch match;
  if (!std::regex_search(svg, match, element)) return {};
  const std::string path = match.str();
  const std::regex point("[ML] ?([0-9.]+)[ ,]([0-9.]+)");
  std::vector<std::pair<double, double>> points;
  for (std::sregex_iterator i(path.begin(), path.end(), point), end; i != end; ++i) {
    points.push_back({std::stod((*i)[1]), std::stod((*i)[2])});
  }
  return points;
}

TEST_F(PlotTest, SvgHasLabeledTicksAtRoundNumbers) {
  const LinePlot plot{
      .title = "t", .x_label = "x", .series = {{"", {0, 25000, 50000}, {-200, 100, 200}}}};
  const std::string svg = Svg(plot);
  for (const char* text : {"10k", "20k", "30k", "40k", "50k", "-200", "-100", "100", "200"}) {
    EXPECT_EQ(CountOf(svg, ">" + std::string(text) + "</text>"), 1) << text;
  }
  EXPECT_EQ(CountOf(svg, ">0</text>"), 2);
  EXPECT_EQ(Svg(plot), svg) << "equal plots give equal files";
}

TEST_F(PlotTest, PixelsOfLineAreWhereSvgHasItsPoints) {
  const LinePlot plot{.y_label = "return", .series = {{"", {0, 2, 3, 10}, {-5, 7, 2, 9}}}};
  const auto points = FirstLine(Svg(plot), kBluePercent);
  ASSERT_EQ(points.size(), 4u);
  const Picture picture = Render(plot);
  for (std::size_t i = 1; i < points.size(); ++i) {
    EXPECT_GT(points[i].first, points[i - 1].first);
    for (const double t : {0.1, 0.5, 0.9}) {  // no ends: joints are round
      const double x = points[i - 1].first + t * (points[i].first - points[i - 1].first);
      const double y = points[i - 1].second + t * (points[i].second - points[i - 1].second);
      // A line of 2.2 pixels need not cover the whole of one pixel, but covers one of its
      // neighbors.
      int inked = 0;
      for (int i = 0; i < 9; ++i)
        inked += IsInk(picture, int(x) + i / 3 - 1, int(y) + i % 3 - 1, kBlue);
      EXPECT_GT(inked, 0) << x << " " << y;
    }
  }
  EXPECT_LT(points[1].second, points[0].second) << "larger values are higher";
}

// Lines that reach all corners of the axes.
TEST_F(PlotTest, LegendThatFindsNoFreeCornerIsNextToAxes) {
  LinePlot plot{.series = {{"up and down", {}, {}}, {"\xff a long name " + std::string(200, 'x')}}};
  for (int i = 0; i < 100; ++i) {
    plot.series[0].xs.push_back(i);
    plot.series[0].ys.push_back(i % 2);
  }
  const std::string svg = Svg(plot);
  const auto points = FirstLine(svg, kBluePercent);
  ASSERT_EQ(points.size(), 100u);
  std::smatch name;
  ASSERT_TRUE(std::regex_search(svg, name, std::regex("x=\"([0-9.]+)\"[^>]*>up and down<")));
  EXPECT_GT(std::stod(name[1]), points.back().first);
  EXPECT_GT(points.back().first, plot.width / 2);
  EXPECT_EQ(CountOf(svg, ">\\? a long name x+\\.\\.\\.<"), 1) << "a cut name, valid UTF-8";
}

TEST_F(PlotTest, LegendNamesBandsWithNames) {
  LinePlot plot{.series = {{.name = "mean", .xs = {0, 1}, .ys = {0, 1}}}};
  EXPECT_EQ(CountOf(Svg(plot), ">mean<"), 0) << "the title describes a single line";
  plot.series[0].low = {0, 0};
  plot.series[0].high = {2, 2};
  plot.series[0].band_name = "minimum to maximum";
  const std::string svg = Svg(plot);
  EXPECT_EQ(CountOf(svg, ">mean<"), 1);
  EXPECT_EQ(CountOf(svg, ">minimum to maximum<"), 1);
}

TEST_F(PlotTest, RendersManyPointsQuickly) {
  LinePlot plot{.title = "dense", .series = {{"noise", {}, {}}}};
  Rng rng({.run_seed = 3, .purpose = Purpose::kTest});
  for (int i = 0; i < 20000; ++i) {
    plot.series[0].xs.push_back(i);
    plot.series[0].ys.push_back(rng.Normal());
  }
  EXPECT_GT(CountInk(Render(plot), kBlue), 10000);
  Keep("dense.png", plot);
}

TEST_F(PlotTest, DrawsBandBetweenBoundsAndFaintLinesPale) {
  LinePlot plot;
  plot.series = {{.name = "mean", .xs = {0, 1, 2}, .ys = {5, 5, 5}}};
  plot.series[0].low = {0, 0, 0};
  plot.series[0].high = {10, 10, 10};
  const Picture wide = Render(plot);
  const int banded = CountInk(wide, kPaleBlue);
  EXPECT_GT(banded, wide.width * wide.height / 2);
  plot.series[0].low = {0, std::nan(""), 0};
  EXPECT_EQ(CountInk(Render(plot), kPaleBlue), 0) << "no end, no band";
  plot.series[0].low = {4, 4, 4};
  plot.series[0].high = {6, 6, 6};
  plot.series.push_back({.xs = {0, 2}, .ys = {0, 0}, .faint = true, .color = 0});
  plot.series.push_back({.xs = {0, 2}, .ys = {10, 10}, .faint = true, .color = 8});
  Keep("band.png", plot);
  const Picture pale = Render(plot);
  EXPECT_NEAR(CountInk(pale, kPaleBlue), 0.2 * banded, 0.05 * banded);
  const int full = CountInk(pale, kBlue);
  plot.series[1].faint = plot.series[2].faint = false;
  EXPECT_GT(CountInk(Render(plot), kBlue), full + 1600)
      << "lines that are not faint have the first color as it is";
}

TEST_F(PlotTest, CaptionFitsWithinPictureSize) {
  LinePlot plot = LearningCurve();
  const Picture without = Render(plot);
  plot.caption = {"5 seeds, last checkpoint, epsilon 0.1", "troop 0.1.0"};
  const Picture with = Render(plot);
  Keep("caption.png", plot);
  const auto dark_rows = [](const Picture& picture) {  // of the lowest forty
    int rows = 0;
    for (int y = picture.height - 40; y < picture.height; ++y) {
      const auto* row = picture.rgb.data() + std::size_t(y) * std::size_t(picture.width) * 3;
      rows += std::any_of(row, row + picture.width * 3, [](std::uint8_t v) { return v < 180; });
    }
    return rows;
  };
  EXPECT_EQ(with.rgb.size(), without.rgb.size());
  EXPECT_GE(dark_rows(with), 12);
  EXPECT_NE(with, without);
}

}  // namespace
}  // namespace troop
