#pragma once

#include <limits>
#include <string>
#include <vector>

namespace troop {

// True if a value can be drawn. Non-finite values, and values so large that a span loses its width
// in a double, interrupt their line.
inline bool IsDrawable(double value) { return value >= -1e300 && value <= 1e300; }

// Range of values; empty until the first Add.
struct ValueSpan {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  // Extends the span; a value that can't be drawn changes nothing.
  void Add(double value);
  // Returns the span with a margin of `share` of its width on both sides; never empty: no value
  // gives [0, 1], a single value gets room in proportion to it.
  ValueSpan Widened(double share) const;
};

// An axis: a span of values, and ticks at round numbers with their labels. Immutable, so any thread
// may read it.
class ValueAxis {
 public:
  struct Tick {
    double value;
    std::string text;
  };
  // Makes about `count` ticks. REQUIRES: span.low < span.high, both drawable.
  ValueAxis(const ValueSpan& span, int count);
  const std::vector<Tick>& ticks() const { return ticks_; }
  // Distance of adjacent ticks.
  double step() const { return step_; }
  // Position of a value: 0 at the lower end, 1 at the upper one.
  double Share(double value) const { return (value - span_.low) / (span_.high - span_.low); }

 private:
  ValueSpan span_;
  double step_ = 0;
  std::vector<Tick> ticks_;
};

// Returns about `count` round numbers (1, 2 or 5 times a power of ten) within [low, high].
// REQUIRES: low < high, both finite.
std::vector<double> NiceTicks(double low, double high, int count);
// Formats a tick label such as "0", "2.5k", "1M" or "-0.05", with as many digits as ticks at
// distance `step` require. `largest`: largest magnitude on the axis.
std::string TickText(double value, double step, double largest);

}  // namespace troop
