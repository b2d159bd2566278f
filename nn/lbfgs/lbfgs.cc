// Implements the state machine of L-BFGS.

#include "nn/lbfgs/lbfgs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/check.h"

namespace troop {
namespace {

using Name = VectorName;

VectorCommand Dot(std::uint8_t a, std::uint8_t b) { return {VectorOp::kDot, a, b, 0}; }
VectorCommand Axpy(double factor, std::uint8_t a, std::uint8_t b) {
  return {VectorOp::kAxpy, a, b, factor};
}
VectorCommand Scale(double factor, std::uint8_t a) { return {VectorOp::kScale, a, 0, factor}; }
VectorCommand Copy(std::uint8_t from, std::uint8_t to) { return {VectorOp::kCopy, from, to, 0}; }

// Numbers of Save besides the line search and those of each pair.
constexpr std::size_t kScalars = 14;

}  // namespace

std::size_t Lbfgs::Request::results() const {
  return std::size_t(std::ranges::count(commands, VectorOp::kDot, &VectorCommand::op)) + evaluate;
}

Lbfgs::Lbfgs(const LbfgsOptions& options)
    : options_(options), rho_(std::size_t(options.history)), alpha_(std::size_t(options.history)) {
  TROOP_CHECK(options.history >= 1 && options.history <= kLbfgsHistoryMax, "history {}",
              options.history);
}

int Lbfgs::PlaceOf(int age) const { return (newest_ - age + options_.history) % options_.history; }

// Each request of a loop first applies the scalar that the last one has led to, so that an
// iteration needs two requests per pair.
Lbfgs::Request Lbfgs::request() const {
  if (outcome_ != Outcome::kRunning) return {};
  const auto s = [this](int age) { return Name::ChangeOfWeights(PlaceOf(age)); };
  const auto y = [this](int age) { return Name::ChangeOfGradient(PlaceOf(age)); };
  const auto alpha = [this](int age) { return alpha_[std::size_t(PlaceOf(age))]; };
  const std::uint8_t x = Name::kWeights, g = Name::kGradient, d = Name::kDirection;
  switch (phase_) {
    case Phase::kFirst:  // the weights are those that the caller has set
      return {{}, true};
    case Phase::kFirstNorm:
      return {{Dot(g, g)}};
    case Phase::kBackward:  // α = ρ s·d, then d -= α y, from the newest pair on
      if (age_ == 0) return {{Copy(g, d), Dot(s(0), d)}};
      return {{Axpy(-alpha(age_ - 1), y(age_ - 1), d), Dot(s(age_), d)}};
    case Phase::kForward:  // β = ρ y·d, then d += (α - β) s, from the oldest pair on
      if (age_ == pairs_ - 1)
        return {{Axpy(-alpha(age_), y(age_), d), Scale(gamma_, d), Dot(y(age_), d)}};
      return {{Axpy(alpha(age_ + 1) - beta_, s(age_ + 1), d), Dot(y(age_), d)}};
    case Phase::kSlope: {  // the direction is -d; the search starts at the current weights
      Request r{{pairs_ == 0 ? Copy(g, d) : Axpy(alpha(0) - beta_, s(0), d), Scale(-1, d),
                 Copy(x, Name::kStartWeights), Copy(g, Name::kStartGradient), Dot(g, d),
                 Dot(d, d)}};
      return r;
    }
    // Every trial begins at the start, so that steps do not add up their rounding.
    case Phase::kTrial:
      return {{Copy(Name::kStartWeights, x), Axpy(search_.step(), d, x)}, true};
    // The worker's gradient is at the trial's weights.
    case Phase::kTrialSlope:
      return {{Dot(g, d), Dot(g, g)}};
    case Phase::kPair: {
      // The changes replace the oldest pair; they are differences, so that rounding of the weights
      // is part of them.
      const int place = pairs_ == 0 ? 0 : (newest_ + 1) % options_.history;
      const std::uint8_t to = Name::ChangeOfWeights(place), change = Name::ChangeOfGradient(place);
      return {{Copy(x, to), Axpy(-1, Name::kStartWeights, to), Copy(g, change),
               Axpy(-1, Name::kStartGradient, change), Dot(to, change), Dot(change, change)}};
    }
    case Phase::kReturn:
      break;
  }
  // A failed search leaves the best weights.
  return {{Copy(Name::kStartWeights, x), Copy(Name::kStartGradient, g)}};
}

void Lbfgs::Take(std::span<const double> r) {
  // A wrong number of results would shift the values silently.
  TROOP_CHECK(outcome_ == Outcome::kRunning && r.size() == request().results(), "{} results",
              r.size());
  switch (phase_) {
    case Phase::kFirst:
      value_ = r[0];
      ++evaluations_;
      phase_ = Phase::kFirstNorm;
      return;
    case Phase::kFirstNorm:
      norm_ = std::sqrt(r[0]);
      if (!std::isfinite(value_) || !std::isfinite(norm_)) {
        outcome_ = Outcome::kNotFinite;
      } else if (norm_ <= options_.gradient_norm) {
        outcome_ = Outcome::kConverged;
      } else {
        Begin();
      }
      return;
    case Phase::kBackward:
      alpha_[std::size_t(PlaceOf(age_))] = rho_[std::size_t(PlaceOf(age_))] * r[0];
      // The second loop begins with the pair at which the first one ends.
      if (age_ + 1 < pairs_) {
        ++age_;
      } else {
        phase_ = Phase::kForward;
      }
      return;
    case Phase::kForward:
      beta_ = rho_[std::size_t(PlaceOf(age_))] * r[0];
      if (age_ == 0) {
        phase_ = Phase::kSlope;
      } else {
        --age_;
      }
      return;
    case Phase::kSlope:
      return StartSearch(r[0], r[1]);
    case Phase::kTrial:
      trial_ = r[0];
      ++evaluations_;
      phase_ = Phase::kTrialSlope;
      return;
    // The last three depend on the line search.
    case Phase::kTrialSlope:
      return EndTrial(r[0], r[1]);
    case Phase::kPair:
      return AddPair(r[0], r[1]);
    case Phase::kReturn:
      break;
  }
  // Without pairs the direction was the negative gradient, and nothing better is left to try.
  if (pairs_ == 0) {
    outcome_ = Outcome::kStuck;
    return;
  }
  // The history is forgotten, and the negative gradient tried.
  pairs_ = 0;
  Begin();
}

// Begins an iteration.
void Lbfgs::Begin() {
  age_ = 0;
  phase_ = pairs_ == 0 ? Phase::kSlope : Phase::kBackward;
}

// A direction that does not descend (rounding) is replaced by the negative gradient.
void Lbfgs::StartSearch(double slope, double squares) {
  const double length = std::sqrt(squares);
  if (!(slope < 0) || !std::isfinite(slope) || !std::isfinite(length)) {
    phase_ = Phase::kReturn;
    return;
  }
  slope_ = slope;
  search_ = LineSearch(options_.search, value_, slope, pairs_ == 0 ? std::min(1.0, 1 / length) : 1);
  phase_ = Phase::kTrial;
}

void Lbfgs::EndTrial(double slope, double squares) {
  trial_norm_ = std::sqrt(squares);
  // A gradient that overflows is as useless as its slope.
  const double checked = std::isfinite(trial_norm_) ? slope : trial_norm_;
  switch (search_.Report(trial_, checked)) {
    case LineSearch::Result::kEvaluate:
      phase_ = Phase::kTrial;
      return;
    case LineSearch::Result::kFound:
      // A pair without positive curvature would make the matrix indefinite: L-BFGS-B leaves it out.
      if (slope - slope_ > std::numeric_limits<double>::epsilon() * -slope_) {
        phase_ = Phase::kPair;
      } else {
        EndIteration();
      }
      return;
    case LineSearch::Result::kFailed:
      phase_ = Phase::kReturn;
  }
}

// The pair has replaced the oldest one.
void Lbfgs::AddPair(double ys, double yy) {
  if (ys > 0 && std::isfinite(yy)) {
    newest_ = pairs_ == 0 ? 0 : (newest_ + 1) % options_.history;
    pairs_ = std::min(pairs_ + 1, options_.history);
    rho_[std::size_t(newest_)] = 1 / ys;
    gamma_ = ys / yy;
  } else {
    pairs_ = std::min(pairs_, options_.history - 1);  // rounded to nothing
  }
  EndIteration();
}

void Lbfgs::EndIteration() {
  // The relative fall, so that the scale of the objective does not matter.
  const double fall = value_ - trial_;
  const double scale = std::max({std::abs(value_), std::abs(trial_), 1e-300});
  value_ = trial_;
  norm_ = trial_norm_;
  ++iterations_;
  const bool flat = options_.decrease > 0 && fall <= options_.decrease * scale;
  if (norm_ <= options_.gradient_norm || flat) {
    outcome_ = Outcome::kConverged;
  } else {
    Begin();
  }
}

std::string Lbfgs::Reason() const {
  switch (outcome_) {
    case Outcome::kRunning:
      return "";
    case Outcome::kConverged:
      return fmt::format("converged: value {:.9g}, gradient norm {:.3g}", value_, norm_);
    case Outcome::kStuck:
      return fmt::format(
          "no step along the negative gradient lowers the value {:.9g} (gradient norm {:.3g}): "
          "the numbers cannot become more exact, or the gradient is not that of the function",
          value_, norm_);
    case Outcome::kNotFinite:
      break;
  }
  return fmt::format("the value at the first weights is {}, the gradient norm {}", value_, norm_);
}

// Counts are exact in f64.
std::vector<double> Lbfgs::Save() const {
  std::vector<double> out = {double(phase_),
                             double(outcome_),
                             double(age_),
                             double(pairs_),
                             double(newest_),
                             gamma_,
                             value_,
                             norm_,
                             trial_,
                             trial_norm_,
                             double(iterations_),
                             double(evaluations_),
                             beta_,
                             slope_};
  out.insert(out.end(), rho_.begin(), rho_.end());
  out.insert(out.end(), alpha_.begin(), alpha_.end());
  search_.Save(&out);
  return out;
}

Status Lbfgs::Restore(std::span<const double> n) {
  const auto history = std::size_t(options_.history);
  if (n.size() != kScalars + 2 * history + LineSearch::kNumbers) {
    return InvalidArgument("the state of L-BFGS has {} numbers, must have {} for a history of {}",
                           n.size(), kScalars + 2 * history + LineSearch::kNumbers, history);
  }
  // Damaged files must not reach an array. Whole numbers index arrays, so that they are checked.
  const auto counts = [&n](std::size_t i, double limit) {
    return n[i] >= 0 && n[i] <= limit && n[i] == std::floor(n[i]);
  };
  // Counts above 2^53 are not exact.
  const double places = double(history), count_max = double(std::int64_t{1} << 53);
  const bool valid = counts(0, double(Phase::kLast)) && counts(1, double(Outcome::kNotFinite)) &&
                     counts(2, places - 1) && counts(3, places) && counts(4, places - 1) &&
                     counts(10, count_max) && counts(11, count_max) &&
                     counts(n.size() - LineSearch::kNumbers + LineSearch::kCount, 1e6);
  const auto in_loop = [&n](Phase phase) { return n[0] == double(phase); };
  if (!valid || ((in_loop(Phase::kBackward) || in_loop(Phase::kForward)) && n[2] >= n[3]))
    return InvalidArgument("the state of L-BFGS has a count out of its range");
  phase_ = Phase(int(n[0]));
  outcome_ = Outcome(int(n[1]));
  age_ = int(n[2]);
  pairs_ = int(n[3]);
  newest_ = int(n[4]);
  gamma_ = n[5];
  value_ = n[6];
  norm_ = n[7];
  trial_ = n[8];
  trial_norm_ = n[9];
  iterations_ = std::int64_t(n[10]);
  evaluations_ = std::int64_t(n[11]);
  beta_ = n[12];
  slope_ = n[13];
  const auto pairs = n.subspan(kScalars);
  rho_.assign(pairs.begin(), pairs.begin() + std::ptrdiff_t(history));
  alpha_.assign(pairs.begin() + std::ptrdiff_t(history),
                pairs.begin() + std::ptrdiff_t(2 * history));
  search_.Restore(options_.search, n.last(LineSearch::kNumbers));
  return Status::Ok();
}

}  // namespace troop
