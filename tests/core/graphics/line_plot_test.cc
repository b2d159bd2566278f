#include "core/graphics/line_plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/philox.h"
#include "core/storage/storage.h"

namespace troop {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::IsEmpty;

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

// Pixels of one colour within a picture.
int CountInk(const Picture& picture, std::uint8_t r, std::uint8_t g, std::uint8_t b) {
  int count = 0;
  for (std::size_t i = 0; i < picture.rgb.size(); i += 3) {
    count += picture.rgb[i] == r && picture.rgb[i + 1] == g && picture.rgb[i + 2] == b;
  }
  return count;
}

// Writes the plots for inspection: TROOP_PLOT_FOLDER=/tmp core_test --gtest_filter=PlotTest.*
void Keep(const std::string& name, const LinePlot& plot) {
  const char* folder = getenv("TROOP_PLOT_FOLDER");
  if (folder == nullptr) return;
  auto storage = MakeDiskStorage(folder);
  ASSERT_TRUE(storage.ok());
  ASSERT_TRUE((*storage)->WriteAtomic(name, DrawLinePlot(plot).bytes()).ok());
}

TEST(PlotTest, TicksAreRoundNumbersWithinRange) {
  EXPECT_THAT(NiceTicks(0, 100, 5), ElementsAre(0, 20, 40, 60, 80, 100));
  EXPECT_THAT(NiceTicks(-7, 499, 6), ElementsAre(0, 100, 200, 300, 400));
  EXPECT_THAT(NiceTicks(0.1, 0.42, 4), ElementsAre(DoubleNear(0.1, 1e-12), DoubleNear(0.2, 1e-12),
                                                   DoubleNear(0.3, 1e-12), DoubleNear(0.4, 1e-12)));
  EXPECT_THAT(NiceTicks(-2e6, 2e6, 4), ElementsAre(-2e6, -1e6, 0, 1e6, 2e6));
}

TEST(PlotTest, EveryRangeHasFewTicksInsideIt) {
  Rng rng({.run_seed = 2, .purpose = Purpose::kTest});
  for (int i = 0; i < 2000; ++i) {
    const double low = rng.Normal() * std::pow(10, rng.Uniform(-6, 6));
    const double high = low + std::abs(low) * std::pow(10, rng.Uniform(-6, 6));
    const std::vector<double> ticks = NiceTicks(low, high, 8);
    const double slack = (high - low) * 1e-6;
    ASSERT_GE(ticks.size(), 2u) << low << " " << high;
    ASSERT_LE(ticks.size(), 10u) << low << " " << high;
    ASSERT_TRUE(ticks.front() >= low - slack && ticks.back() <= high + slack);
  }
}

TEST(PlotTest, TickLabelsAreShortAndDistinct) {
  EXPECT_EQ(TickText(0, 100, 500), "0");
  EXPECT_EQ(TickText(500, 100, 500), "500");
  EXPECT_EQ(TickText(-0.05, 0.05, 0.2), "-0.05");
  EXPECT_EQ(TickText(20000, 10000, 50000), "20k");
  EXPECT_EQ(TickText(2500, 500, 10000), "2.5k");
  EXPECT_EQ(TickText(1.5e6, 5e5, 2e6), "1.5M");
  EXPECT_EQ(TickText(2e-6, 1e-6, 5e-6), "2e-06");
}

TEST(PlotTest, DrawsEachSeriesInDistinctColor) {
  const LinePlot plot = LearningCurve();
  const Picture picture = RenderLinePlot(plot);
  EXPECT_EQ(picture.width, 960);
  EXPECT_EQ(picture.height, 540);
  EXPECT_GT(CountInk(picture, 0, 114, 178), 300);
  EXPECT_GT(CountInk(picture, 213, 94, 0), 300);
  EXPECT_GT(CountInk(picture, 0, 158, 115), 300);
  Keep("curve.png", plot);
}

TEST(PlotTest, DrawsLineThroughItsPoints) {
  LinePlot plot{.series = {{"", {0, 1}, {3, 3}}}};
  const Picture picture = RenderLinePlot(plot);
  int rows = 0;  // a flat line: long rows of the colour, next to each other
  for (int y = 0; y < picture.height; ++y) {
    int inked = 0;
    for (int x = 0; x < picture.width; ++x) {
      const std::uint8_t* p = &picture.rgb[std::size_t(y * picture.width + x) * 3];
      inked += p[0] == 0 && p[1] == 114 && p[2] == 178;
    }
    if (inked == 0) continue;
    ++rows;
    EXPECT_GT(inked, 700) << y;
  }
  EXPECT_TRUE(rows >= 1 && rows <= 3) << rows;
}

TEST(PlotTest, RendersDegenerateData) {
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
    EXPECT_FALSE(RenderLinePlot(plot).rgb.empty());
    EXPECT_NE(SvgLinePlot(plot).find("</svg>"), std::string::npos);
  }
  EXPECT_FALSE(RenderLinePlot({}).rgb.empty());
  Keep("empty.png", {.title = "nothing yet", .x_label = "steps", .y_label = "return"});
  Keep("one.png", {.title = "one point",
                   .x_label = "steps",
                   .y_label = "return",
                   .series = {{"a", {1}, {-0.25}}}});
}

TEST(PlotTest, SvgKeepsTextAndBreaksLinesAtNonFinitePoints) {
  const double nan = std::nan("");
  LinePlot plot{.title = "pole <1>", .x_label = "agent steps", .y_label = "return"};
  plot.series = {{.name = "a & b", .xs = {0, 1, 2, 3, 4}, .ys = {1, 2, nan, 3, 4}},
                 {.name = "c", .xs = {0, 4}, .ys = {0, 5}, .low = {0, 4}, .high = {1, 6}}};
  const std::string svg = SvgLinePlot(plot);
  EXPECT_TRUE(svg.starts_with("<svg ")) << svg;
  EXPECT_TRUE(svg.ends_with("</svg>\n")) << svg;
  const auto count = [&svg](std::string_view part) {
    int n = 0;
    for (std::size_t at = svg.find(part); at != svg.npos; at = svg.find(part, at + 1)) ++n;
    return n;
  };
  for (const char* text : {">pole &lt;1&gt;<", ">agent steps<", ">return<", ">a &amp; b<", ">c<"}) {
    EXPECT_EQ(count(text), 1) << text;
  }
  EXPECT_EQ(count("stroke=\"#0072b2\""), 2);  // the two pieces
  EXPECT_EQ(count("fill-opacity"), 1);
  EXPECT_EQ(count("nan"), 0);
  plot.series = {};
  EXPECT_TRUE(SvgLinePlot(plot).ends_with("</svg>\n"));
}

TEST(PlotTest, RendersManyPointsQuickly) {
  LinePlot plot{.title = "dense", .series = {{"noise", {}, {}}}};
  Rng rng({.run_seed = 3, .purpose = Purpose::kTest});
  for (int i = 0; i < 20000; ++i) {
    plot.series[0].xs.push_back(i);
    plot.series[0].ys.push_back(rng.Normal());
  }
  EXPECT_GT(CountInk(RenderLinePlot(plot), 0, 114, 178), 10000);
  Keep("dense.png", plot);
}

// (204, 227, 240): a fifth of the first of the eight colours over white.
TEST(PlotTest, DrawsBandBetweenBoundsAndFaintLinesPale) {
  LinePlot plot;
  plot.series = {{.name = "mean", .xs = {0, 1, 2}, .ys = {5, 5, 5}}};
  plot.series[0].low = {0, 0, 0};
  plot.series[0].high = {10, 10, 10};
  const Picture wide = RenderLinePlot(plot);
  const int banded = CountInk(wide, 204, 227, 240);
  EXPECT_GT(banded, wide.width * wide.height / 2);
  plot.series[0].low = {0, std::nan(""), 0};
  EXPECT_EQ(CountInk(RenderLinePlot(plot), 204, 227, 240), 0) << "no end, no band";
  plot.series[0].low = {4, 4, 4};
  plot.series[0].high = {6, 6, 6};
  plot.series.push_back({.xs = {0, 2}, .ys = {0, 0}, .faint = true, .color = 0});
  plot.series.push_back({.xs = {0, 2}, .ys = {10, 10}, .faint = true, .color = 8});
  Keep("band.png", plot);
  const Picture pale = RenderLinePlot(plot);
  EXPECT_NEAR(CountInk(pale, 204, 227, 240), 0.2 * banded, 0.05 * banded);
  const int full = CountInk(pale, 0, 114, 178);
  plot.series[1].faint = plot.series[2].faint = false;
  EXPECT_GT(CountInk(RenderLinePlot(plot), 0, 114, 178), full + 1600)
      << "lines that are not faint have the first colour as it is";
}

TEST(PlotTest, CaptionFitsWithinPictureSize) {
  LinePlot plot = LearningCurve();
  const Picture without = RenderLinePlot(plot);
  plot.caption = {"5 seeds, last checkpoint, epsilon 0.1", "troop 0.1.0"};
  const Picture with = RenderLinePlot(plot);
  Keep("caption.png", plot);
  const auto dark_rows = [](const Picture& picture) {  // of the lowest forty
    int rows = 0;
    for (int y = picture.height - 40; y < picture.height; ++y) {
      const auto* row = picture.rgb.data() + std::size_t(y) * std::size_t(picture.width) * 3;
      rows += std::any_of(row, row + picture.width * 3, [](std::uint8_t v) { return v < 100; });
    }
    return rows;
  };
  EXPECT_EQ(with.rgb.size(), without.rgb.size());
  EXPECT_GE(dark_rows(with), 12);
  EXPECT_NE(with, without);
}

}  // namespace
}  // namespace troop
