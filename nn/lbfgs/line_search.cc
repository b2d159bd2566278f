// Implements the line search of Moré and Thuente, after dcsrch and dcstep of MINPACK-2.

#include "nn/lbfgs/line_search.h"

#include <algorithm>
#include <cmath>

#include "core/base/check.h"

namespace troop {
namespace {

// Bounds of a step beyond the best one while no interval is known, as multiples of the last change.
constexpr double kGrowthMin = 1.1, kGrowthMax = 4;
// An interval must shrink by this factor in two iterations, or else it is halved.
constexpr double kShrink = 0.66;
// Fraction of a step whose values are not finite that is tried next.
constexpr double kRetreat = 0.1;

// θ and γ of the cubic through two points with their slopes; γ² is at least 0 if `clamped`.
struct Cubic {
  double theta = 0, gamma = 0;
};
Cubic CubicOf(double rise, double slope_a, double slope_b, bool clamped) {
  const double theta = 3 * rise + slope_a + slope_b;
  const double s = std::max({std::abs(theta), std::abs(slope_a), std::abs(slope_b)});
  const double square = (theta / s) * (theta / s) - (slope_a / s) * (slope_b / s);
  return {theta, s * std::sqrt(clamped ? std::max(0.0, square) : square)};
}

}  // namespace

LineSearch::LineSearch(const LineSearchOptions& options, double f, double slope, double step)
    : options_(options) {
  TROOP_CHECK(slope < 0 && step > 0, "slope {}, step {}", slope, step);
  state_.step = std::min(step, options.step_max);
  state_.f0 = f;
  state_.slope0 = slope;
  state_.best = state_.other = {.f = f, .slope = slope};
  state_.width = state_.limit = options.step_max;
  state_.width_before = 2 * state_.width;
  state_.high = state_.step * (1 + kGrowthMax);
}

// The step becomes a limit that no later step reaches. The next one is between it and the best.
LineSearch::Result LineSearch::Retreat() {
  State& s = state_;
  if (s.evaluations >= options_.evaluations_max) return Result::kFailed;
  s.limit = s.step;
  s.step = s.best.t > 0 ? (s.best.t + s.limit) / 2 : kRetreat * s.limit;
  s.low = s.best.t;
  s.high = s.limit;
  return s.step > s.best.t ? Result::kEvaluate : Result::kFailed;
}

// True if rounding, or the largest step, leave no room for a better step.
bool LineSearch::CannotImprove(const Point& at) const {
  const State& s = state_;
  if (s.bracketed && (at.t <= s.low || at.t >= s.high)) return true;
  if (s.bracketed && s.high - s.low <= options_.interval * s.high) return true;
  const double slope = options_.decrease * s.slope0;
  if (at.f > s.f0 + at.t * slope || at.slope > slope) return false;
  // Before a limit that was not finite, only a narrow interval is left.
  return at.t == s.limit || (blocked() && s.limit - at.t <= options_.interval * s.limit);
}

// Moré & Thuente's algorithm: the first stage uses ψ(t) = f(t) - f(0) - μ t f'(0) while the value
// is above the line of sufficient decrease.
LineSearch::Result LineSearch::Report(double f, double slope) {
  State& s = state_;
  ++s.evaluations;
  if (!std::isfinite(f) || !std::isfinite(slope)) return Retreat();
  const Point at{s.step, f, slope};
  const double line = options_.decrease * s.slope0, highest = s.f0 + at.t * line;
  if (f <= highest && slope >= 0) s.second_stage = true;
  if (f <= highest && std::abs(slope) <= -options_.curvature * s.slope0) return Result::kFound;
  if (CannotImprove(at)) return at.t > 0 && f <= s.f0 ? Result::kFound : Result::kFailed;
  if (s.evaluations >= options_.evaluations_max) return Result::kFailed;
  if (!s.second_stage && f <= s.best.f && f > highest) {
    // Both ends and the new point are moved to ψ, and back.
    const auto shift = [line](Point* p, double sign) {
      p->f += sign * p->t * line;
      p->slope += sign * line;
    };
    Point moved = at;
    for (Point* p : {&moved, &s.best, &s.other}) shift(p, -1);
    Interpolate(moved, &s);
    for (Point* p : {&s.best, &s.other}) shift(p, 1);
  } else {
    Interpolate(at, &s);
  }
  Narrow();
  return Result::kEvaluate;
}

// Chooses the bounds of the next step, and forces the interval to shrink.
void LineSearch::Narrow() {
  State& s = state_;
  if (s.bracketed) {
    const double width = std::abs(s.other.t - s.best.t);
    if (width >= kShrink * s.width_before) s.step = s.best.t + 0.5 * (s.other.t - s.best.t);
    s.width_before = s.width;
    s.width = width;
    s.low = std::min(s.best.t, s.other.t);
    s.high = std::max(s.best.t, s.other.t);
  } else {
    const double change = s.step - s.best.t;
    s.low = s.step + kGrowthMin * change;
    s.high = s.step + kGrowthMax * change;
  }
  if (blocked() && s.step >= s.limit) s.step = (s.best.t + s.limit) / 2;
  s.step = std::clamp(s.step, 0.0, s.limit);
  // Without room for a better step the best one is evaluated again, and then accepted.
  const bool narrow = s.high - s.low <= options_.interval * s.high;
  if (s.bracketed && (s.step <= s.low || s.step >= s.high || narrow)) s.step = s.best.t;
}

// dcstep: the next step and interval from the ends and a new point `p`, in its four cases.
void LineSearch::Interpolate(const Point& p, State* state) {
  State& s = *state;
  const Point x = s.best, y = s.other;
  const double change = p.t - x.t;
  const bool turned = (p.slope < 0) != (x.slope < 0) && p.slope != 0;
  const double secant = p.t + p.slope / (p.slope - x.slope) * -change;
  double next = 0;
  if (p.f > x.f) {
    // A higher value: the minimum is between the two. The cubic step if it is closer to the best
    // point, else the mean of both.
    const Cubic c = CubicOf((x.f - p.f) / change, x.slope, p.slope, false);
    const double gamma = p.t < x.t ? -c.gamma : c.gamma;
    const double r = ((gamma - x.slope) + c.theta) / (((gamma - x.slope) + gamma) + p.slope);
    const double cubic = x.t + r * change;
    const double square = x.t + (x.slope / ((x.f - p.f) / change + x.slope)) / 2 * change;
    const bool closer = std::abs(cubic - x.t) < std::abs(square - x.t);
    next = closer ? cubic : cubic + (square - cubic) / 2;
    s.bracketed = true;
  } else if (turned) {
    // A lower value and a slope of the other sign: the step farther from `p`.
    const Cubic c = CubicOf((x.f - p.f) / change, x.slope, p.slope, false);
    const double gamma = p.t > x.t ? -c.gamma : c.gamma;
    const double r = ((gamma - p.slope) + c.theta) / (((gamma - p.slope) + gamma) + x.slope);
    const double cubic = p.t - r * change;
    next = std::abs(cubic - p.t) > std::abs(secant - p.t) ? cubic : secant;
    s.bracketed = true;
  } else if (std::abs(p.slope) < std::abs(x.slope)) {
    // A lower value and a smaller slope: the cubic may have no minimum in this direction.
    const Cubic c = CubicOf((x.f - p.f) / change, x.slope, p.slope, true);
    const double gamma = p.t > x.t ? -c.gamma : c.gamma;
    const double r = ((gamma - p.slope) + c.theta) / ((gamma + (x.slope - p.slope)) + gamma);
    const double end = p.t > x.t ? s.high : s.low;
    const double cubic = r < 0 && gamma != 0 ? p.t - r * change : end;
    const bool closer = std::abs(cubic - p.t) < std::abs(secant - p.t);
    next = closer == s.bracketed ? cubic : secant;
    if (s.bracketed) {
      const double bound = p.t + kShrink * (y.t - p.t);
      next = p.t > x.t ? std::min(bound, next) : std::max(bound, next);
    } else {
      next = std::clamp(next, s.low, s.high);
    }
  } else if (s.bracketed) {
    // A lower value and a slope that does not fall: the cubic of the other end.
    const Cubic c = CubicOf((p.f - y.f) / (y.t - p.t), y.slope, p.slope, false);
    const double gamma = p.t > y.t ? -c.gamma : c.gamma;
    const double r = ((gamma - p.slope) + c.theta) / (((gamma - p.slope) + gamma) + y.slope);
    next = p.t + r * (y.t - p.t);
  } else {
    next = p.t > x.t ? s.high : s.low;
  }
  // The interval keeps a minimum inside.
  if (p.f > x.f) {
    s.other = p;
  } else {
    if (turned) s.other = x;
    s.best = p;
  }
  // Equal points can divide zero by zero.
  if (!std::isfinite(next)) next = s.bracketed ? (s.best.t + s.other.t) / 2 : s.high;
  s.step = next;
}

void LineSearch::Save(std::vector<double>* out) const {
  const State& s = state_;
  out->insert(out->end(),
              {s.step, s.f0, s.slope0, s.best.t, s.best.f, s.best.slope, s.other.t, s.other.f,
               s.other.slope, s.low, s.high, s.width, s.width_before, s.limit,
               double(s.evaluations), double(s.bracketed), double(s.second_stage)});
}

void LineSearch::Restore(const LineSearchOptions& options, std::span<const double> numbers) {
  TROOP_CHECK(numbers.size() == kNumbers, "{} numbers", numbers.size());
  const auto n = numbers;
  options_ = options;
  state_ = {.step = n[0],
            .f0 = n[1],
            .slope0 = n[2],
            .best = {n[3], n[4], n[5]},
            .other = {n[6], n[7], n[8]},
            .low = n[9],
            .high = n[10],
            .width = n[11],
            .width_before = n[12],
            .limit = n[13],
            .evaluations = int(n[kCount]),
            .bracketed = n[15] != 0,
            .second_stage = n[16] != 0};
}

}  // namespace troop
