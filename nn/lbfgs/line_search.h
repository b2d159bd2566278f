#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace troop {

// Conditions of a line search. The defaults are those of L-BFGS-B 3.0 (Morales & Nocedal 2011).
struct LineSearchOptions {
  double decrease = 1e-3;    // μ of Moré & Thuente: f(t) <= f(0) + μ t f'(0)
  double curvature = 0.9;    // η: |f'(t)| <= η |f'(0)|
  double interval = 0.1;     // relative width of the interval at which a step is accepted as it is
  double step_max = 1e10;    // largest step
  int evaluations_max = 20;  // after which the search has failed
};

// Line search of Moré and Thuente 1994 (ACM TOMS 20), in the form of MINPACK-2's dcsrch: finds a
// step that satisfies the strong Wolfe conditions, by safeguarded cubic and quadratic
// interpolation. A state machine: the caller evaluates the function at step() and reports it.
// Deterministic; O(1) per call.
class LineSearch {
 public:
  enum class Result {
    kEvaluate,  // report the values at step() next
    kFound,     // step() is accepted: the conditions hold, or rounding allows no better step
    kFailed,    // no step with a lower value was found
  };
  LineSearch() = default;
  // f, slope: value and derivative at 0; the first step to try. REQUIRES: slope < 0, step > 0, all
  // finite.
  LineSearch(const LineSearchOptions& options, double f, double slope, double step);
  // Takes value and derivative at step(). If they are not finite, later steps are shorter.
  Result Report(double f, double slope);
  double step() const { return state_.step; }

  // All variables, as numbers: for checkpoints. REQUIRES (Restore): kNumbers of them.
  static constexpr std::size_t kNumbers = 17;
  static constexpr std::size_t kCount = 14;  // the place of the number of evaluations
  void Save(std::vector<double>* out) const;
  void Restore(const LineSearchOptions& options, std::span<const double> numbers);

 private:
  // Step, value and derivative.
  struct Point {
    double t = 0, f = 0, slope = 0;
  };
  struct State {
    double step = 0, f0 = 0, slope0 = 0;
    Point best, other;                   // ends of the interval; `best` has the lower value
    double low = 0, high = 0;            // bounds of the next step
    double width = 0, width_before = 0;  // of the interval, in the last two iterations
    double limit = 0;                    // largest step; falls below step_max at values not finite
    int evaluations = 0;
    bool bracketed = false;
    bool second_stage = false;  // a step with a sufficient decrease and a slope >= 0 was seen
  };
  static void Interpolate(const Point& at, State* state);
  // True if the limit is a step whose values are not finite.
  bool blocked() const { return state_.limit < options_.step_max; }
  Result Retreat();
  bool CannotImprove(const Point& at) const;
  void Narrow();

  LineSearchOptions options_;
  State state_;
};

}  // namespace troop
