#pragma once

#include <string>
#include <vector>

#include "core/buffer.h"
#include "core/picture.h"

namespace troop {

// Lines through points, over axes with ticks at round numbers.
struct LinePlot {
  struct Series {
    std::string name;
    std::vector<double> xs, ys;  // of equal length; a point that is not finite breaks the line
  };
  std::string title, x_label, y_label;  // ASCII
  std::vector<Series> series;           // beyond eight the colours repeat
  int width = 960, height = 540;        // pixels
};

// O(pixels + points). REQUIRES: xs.size() == ys.size(); width >= 320, height >= 200.
Picture RenderLinePlot(const LinePlot& plot);
// The same as a PNG file.
Buffer DrawLinePlot(const LinePlot& plot);

// Round numbers (1, 2 or 5 times a power of ten) within [low, high], about `count` of them.
// REQUIRES: low < high, both finite.
std::vector<double> NiceTicks(double low, double high, int count);
// "0", "2.5k", "1M", "-0.05": as many digits as neighbours `step` apart need.
std::string TickText(double value, double step, double largest);

}  // namespace troop
