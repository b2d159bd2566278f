// Implements the axes of plots: spans, ticks at round numbers, and their labels.
#include "core/graphics/plot/value_axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/check.h"

namespace troop {

void ValueSpan::Add(double value) {
  if (!IsDrawable(value)) return;
  low = std::min(low, value);
  high = std::max(high, value);
}

ValueSpan ValueSpan::Widened(double share) const {
  if (low > high) return {0, 1};
  const double width = high > low ? high - low : std::max(std::abs(low), 1.0);
  const double room = high > low ? width * share : width / 2;
  return {low - room, high + room};
}

// All labels of an axis have the same unit and number of decimals.
ValueAxis::ValueAxis(const ValueSpan& span, int count) : span_(span) {
  const std::vector<double> values = NiceTicks(span.low, span.high, count);
  step_ = values.size() > 1 ? values[1] - values[0] : span.high - span.low;
  const double largest = std::max(std::abs(span.low), std::abs(span.high));
  for (const double value : values) ticks_.push_back({value, TickText(value, step_, largest)});
}

// Ticks at multiples of 1, 2 or 5 times a power of ten.
std::vector<double> NiceTicks(double low, double high, int count) {
  TROOP_CHECK(std::isfinite(low) && std::isfinite(high) && low < high, "ticks within [{}, {}]", low,
              high);
  // Rounds the step up to 1, 2, 5 or 10 times a power of ten.
  const double rough = (high - low) / std::max(count, 1);
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  const double lead = rough / power;  // 1 to 10
  const double step = power * (lead <= 1.0 ? 1 : lead <= 2.0 ? 2 : lead <= 5.0 ? 5 : 10);
  std::vector<double> ticks;
  // Relative to the step: rounding must not drop a tick at either end.
  const double slack = step * 1e-9;
  for (double i = std::ceil((low - slack) / step); i * step <= high + slack; ++i) {
    ticks.push_back(i == 0 ? 0 : i * step);  // no -0
    if (ticks.size() > 1000) break;          // rounding: low + step == low
  }
  return ticks;
}

// All ticks of an axis share a unit and a number of decimals, so that they are easy to compare.
std::string TickText(double value, double step, double largest) {
  struct Unit {
    double size;
    std::string_view name;
  };
  // Thousands begin at 1e4, so that 1000 to 9999 are written in full.
  constexpr Unit kUnits[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e4, "k"}, {0, ""}};
  if (value == 0) return "0";
  // Scientific notation outside the range of the units.
  if (largest < 1e-4 || largest >= 1e16) return fmt::format("{:.3g}", value);
  const Unit& found =
      *std::ranges::find_if(kUnits, [&](const Unit& unit) { return largest >= unit.size; });
  const double unit = found.size == 1e4 ? 1e3 : found.size == 0 ? 1 : found.size;
  const double digits = std::ceil(-std::log10(step / unit) - 1e-9);
  return fmt::format("{:.{}f}{}", value / unit, int(std::clamp(digits, 0.0, 9.0)), found.name);
}

}  // namespace troop
