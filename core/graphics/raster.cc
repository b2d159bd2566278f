// Implements Coverage (anti-aliased shapes) and Raster (an image to draw on).
#include "core/graphics/raster.h"

#include <algorithm>
#include <cmath>

#include "core/base/check.h"
#include "core/graphics/bitmap_font.h"

namespace troop {
namespace {

constexpr int kAdvance = kGlyphWidth + 1;  // dots from one character to the next

// Calls dot(column, row) for each set dot of the text, relative to its upper left corner.
template <class F>
void EachDot(std::string_view text, F dot) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const Glyph& glyph = FindGlyph(text[i]);
    for (int column = 0; column < kGlyphWidth; ++column) {
      for (int row = 0; row < kGlyphHeight; ++row) {
        if (glyph[std::size_t(column)] >> row & 1) dot(int(i) * kAdvance + column, row);
      }
    }
  }
}

}  // namespace

// Draws a line with round ends. Overlapping strokes keep the maximum, so joints are not darker.
void Coverage::Stroke(double x0, double y0, double x1, double y1, double thickness) {
  const double reach = thickness / 2 + 0.5;  // half a pixel of anti-aliased edge
  const double dx = x1 - x0, dy = y1 - y0, length2 = dx * dx + dy * dy;
  const auto first = [&](double a, double b) {
    return int(std::floor(std::max(0.0, std::min(a, b) - reach)));
  };
  const auto last = [&](double a, double b, int size) {
    return int(std::ceil(std::min(double(size - 1), std::max(a, b) + reach)));
  };
  for (int y = first(y0, y1); y <= last(y0, y1, height_); ++y) {
    for (int x = first(x0, x1); x <= last(x0, x1, width_); ++x) {
      // Coverage from the distance between the pixel center and the nearest point of the line.
      const double along = length2 > 0 ? ((x - x0) * dx + (y - y0) * dy) / length2 : 0;
      const double t = std::clamp(along, 0.0, 1.0);
      const double distance = std::hypot(x - x0 - t * dx, y - y0 - t * dy);
      float& share = share_[Index(x, y)];
      share = std::max(share, float(std::clamp(reach - distance, 0.0, 1.0)));
    }
  }
}

// The first and the last pixel are covered partially.
void Coverage::FillColumn(int x, double top, double bottom) {
  if (x < 0 || x >= width_) return;
  const int first = int(std::floor(std::clamp(top, 0.0, double(height_))));
  const int last = int(std::ceil(std::clamp(bottom, 0.0, double(height_))));
  for (int y = first; y < last; ++y) {
    const double share = std::min(bottom, double(y + 1)) - std::max(top, double(y));
    share_[Index(x, y)] = std::max(share_[Index(x, y)], float(std::clamp(share, 0.0, 1.0)));
  }
}

// An image filled with the background color.
Raster::Raster(int width, int height, Ink background) {
  TROOP_CHECK(width > 0 && height > 0, "an image of {} x {}", width, height);
  picture_ = {.width = width, .height = height};
  picture_.rgb.resize(std::size_t(width) * std::size_t(height) * 3);
  FillBox(0, 0, width, height, background);
}

// Parts outside the image are clipped.
void Raster::FillBox(int left, int top, int width, int height, Ink ink) {
  const int right = std::min(left + width, picture_.width);
  const int bottom = std::min(top + height, picture_.height);
  for (int y = std::max(0, top); y < bottom; ++y) {
    std::uint8_t* const row = picture_.rgb.data() + std::ptrdiff_t(y) * picture_.width * 3;
    for (int x = std::max(0, left); x < right; ++x) {
      std::uint8_t* const pixel = row + std::ptrdiff_t(x) * 3;
      pixel[0] = ink.red, pixel[1] = ink.green, pixel[2] = ink.blue;
    }
  }
}

// Linear interpolation in sRGB values, as in most drawing programs.
void Raster::Blend(const Coverage& coverage, Ink ink, float strength) {
  TROOP_CHECK(coverage.width() == picture_.width && coverage.height() == picture_.height,
              "a coverage of {} x {} on an image of {} x {}", coverage.width(), coverage.height(),
              picture_.width, picture_.height);
  const auto mix = [](std::uint8_t below, std::uint8_t above, float share) {
    return std::uint8_t(std::lround(float(below) + share * (float(above) - float(below))));
  };
  std::uint8_t* pixel = picture_.rgb.data();
  for (int y = 0; y < picture_.height; ++y) {
    for (int x = 0; x < picture_.width; ++x, pixel += 3) {
      const float share = strength * coverage.At(x, y);
      if (share == 0) continue;
      pixel[0] = mix(pixel[0], ink.red, share);
      pixel[1] = mix(pixel[1], ink.green, share);
      pixel[2] = mix(pixel[2], ink.blue, share);
    }
  }
}

// Each dot of a glyph is a square of `scale` pixels.
void Raster::Text(int left, int top, std::string_view text, int scale, Ink ink) {
  EachDot(text, [&](int column, int row) {
    FillBox(left + column * scale, top + row * scale, scale, scale, ink);
  });
}

// Rotated by 90 degrees: columns of the glyphs become rows from bottom to top.
void Raster::TextUpward(int left, int bottom, std::string_view text, int scale, Ink ink) {
  EachDot(text, [&](int column, int row) {
    FillBox(left + row * scale, bottom - (column + 1) * scale, scale, scale, ink);
  });
}

// The last character has no gap after it.
int Raster::TextWidth(std::string_view text, int scale) {
  return text.empty() ? 0 : (int(text.size()) * kAdvance - 1) * scale;
}

}  // namespace troop
