#include "core/graphics/plot/cairo/plot_layout.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/base/philox.h"

namespace troop {
namespace {

LinePlot PlotOf(double low, double high, int width) {
  return {.title = "t",
          .x_label = "x",
          .y_label = "y",
          .series = {{"", {low, high}, {low, high}}},
          .width = width,
          .height = 400};
}

TEST(PlotLayoutTest, LabelsOfAxisHaveGaps) {
  Rng rng({.run_seed = 5, .purpose = Purpose::kTest});
  for (int i = 0; i < 200; ++i) {
    const double low = rng.Normal() * std::pow(10, rng.Uniform(-7, 17));
    const double high = low + std::pow(10, rng.Uniform(-7, 17));
    if (!(high - low > std::abs(low) * 1e-6)) continue;
    const LinePlot plot = PlotOf(low, high, 320 + int(rng.Below(1000)));
    PlotCanvas canvas(PlotCanvas::Format::kPixels, plot.width, plot.height);
    const PlotLayout layout(plot, 0, &canvas);
    double end = -1e9;
    for (const ValueAxis::Tick& tick : layout.x().ticks()) {
      const double half = canvas.TextWidth(tick.text, PlotLayout::kTickSize) / 2;
      EXPECT_GT(layout.X(tick.value) - half, end) << tick.text << " in " << plot.width;
      EXPECT_LE(layout.X(tick.value) + half, plot.width);
      end = layout.X(tick.value) + half;
    }
    EXPECT_GT(layout.y().ticks().size(), 1u);
    for (const ValueAxis::Tick& tick : layout.y().ticks()) {
      EXPECT_LE(canvas.TextWidth(tick.text, PlotLayout::kTickSize), layout.axes().left);
    }
  }
}

TEST(PlotLayoutTest, AxesHaveRoomForEachPart) {
  LinePlot plot = PlotOf(0, 10, 960);
  PlotCanvas canvas(PlotCanvas::Format::kPixels, plot.width, plot.height);
  const PlotBox full = PlotLayout(plot, 0, &canvas).axes();
  EXPECT_EQ(PlotLayout(plot, 200, &canvas).axes().width(), full.width() - 200);
  plot.caption = {"one", "two"};
  EXPECT_LT(PlotLayout(plot, 0, &canvas).axes().bottom,
            full.bottom - 2 * PlotLayout::kCaptionRow + 1);
  plot.caption = {};
  plot.title = plot.x_label = plot.y_label = "";
  const PlotBox bare = PlotLayout(plot, 0, &canvas).axes();
  EXPECT_LT(bare.top, full.top);
  EXPECT_LT(bare.left, full.left);
  EXPECT_GT(bare.bottom, full.bottom);
}

TEST(PlotLayoutTest, ValuesArePlacedWithinAxes) {
  LinePlot plot = PlotOf(0, 10, 960);
  plot.series[0].low = {-5, 8};
  plot.series[0].high = {5, 20};
  PlotCanvas canvas(PlotCanvas::Format::kPixels, plot.width, plot.height);
  const PlotLayout layout(plot, 0, &canvas);
  EXPECT_GT(layout.X(0), layout.axes().left);
  EXPECT_LT(layout.X(10), layout.axes().right);
  EXPECT_LT(layout.Y(-5), layout.axes().bottom) << "the band is inside";
  EXPECT_GT(layout.Y(20), layout.axes().top);
  EXPECT_LT(layout.Y(20), layout.Y(-5)) << "y grows upward";
}

TEST(PlotLayoutDeathTest, RejectsColumnsOfUnequalLength) {
  LinePlot plot = PlotOf(0, 10, 960);
  plot.series[0].xs.push_back(11);
  EXPECT_DEATH(SpanOfXs(plot), "3 xs and 2 ys");
  plot.series[0].ys.push_back(11);
  plot.series[0].low = {1};
  plot.series[0].high = {1};
  EXPECT_DEATH(SpanOfYs(plot), "3 points and a band of 1 and 1");
}

}  // namespace
}  // namespace troop
