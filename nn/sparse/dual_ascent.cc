// Implements stochastic dual coordinate ascent for linear models.

#include "nn/sparse/dual_ascent.h"

#include <algorithm>
#include <cmath>

#include "core/base/check.h"

namespace troop {
namespace {

// Newton steps of the log loss; three suffice almost always.
constexpr int kNewtonSteps = 50;
constexpr double kNewtonError = 1e-10;

// The logistic function; exp gets no argument above 0.
double Sigmoid(double x) {
  return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x));
}

// The dual variable b in (0, 1) of the log loss: maximizes the entropy of b minus
// (b - before) margin + (b - before)² q / 2. With b = sigmoid(-t) its condition is
// t = margin + q (b - before), whose two sides have one intersection. Newton's method, within an
// interval that shrinks around it.
double BestLogDual(double margin, double before, double q) {
  double low = margin - q * before, high = margin + q * (1 - before);
  double t =
      std::clamp(std::log(std::max(1e-300, 1 - before) / std::max(1e-300, before)), low, high);
  for (int i = 0; i < kNewtonSteps; ++i) {
    const double b = Sigmoid(-t);
    const double error = t - margin - q * (b - before);
    (error > 0 ? high : low) = t;
    if (std::abs(error) <= kNewtonError * (1 + std::abs(t))) break;
    t -= error / (1 + q * b * (1 - b));
    if (!(t > low && t < high)) t = (low + high) / 2;
  }
  return Sigmoid(-t);
}

// x · ln x, continued to 0.
double XLogX(double x) { return x > 0 ? x * std::log(x) : 0; }

}  // namespace

DualAscent::DualAscent(const DualAscentOptions& options, const SparseRows* rows,
                       std::span<const float> targets)
    : options_(options),
      rows_(rows),
      targets_(targets.begin(), targets.end()),
      scale_(1 / (options.l2 * double(targets.size()))),
      threshold_(float(options.l1 / options.l2)) {
  TROOP_CHECK(rows->size() > 0 && rows->size() == std::ssize(targets) && options.l2 > 0,
              "{} rows, {} targets, l2 = {}", rows->size(), targets.size(), options.l2);
  // Duals of 0 give weights of 0.
  state_.duals.resize(targets.size());
  state_.sums.resize(std::size_t(rows->width));
  if (options.l1 > 0) shrunk_.resize(state_.sums.size());
  for (std::int64_t i = 0; i < rows->size(); ++i) {
    double squares = 0;
    for (const float x : rows->row(i).values) squares += double(x) * double(x);
    squares_.push_back(float(squares));
  }
}

// Four sums, so that the additions do not wait for each other.
double DualAscent::Margin(const SparseRow& row) const {
  // The reads are in the order of the columns, which is not that of memory: latency dominates.
  const float* const w = weights().data();
  const std::size_t count = row.columns.size();
  double sums[4] = {};
  std::size_t j = 0;
  for (; j + 4 <= count; j += 4) {
    for (std::size_t k = 0; k < 4; ++k)
      sums[k] += double(w[row.columns[j + k]]) * double(row.values[j + k]);
  }
  for (; j < count; ++j) sums[0] += double(w[row.columns[j]]) * double(row.values[j]);
  return sums[0] + sums[1] + (sums[2] + sums[3]);
}

// The value of example i's dual variable that maximizes the dual, given its output z. For the two
// classification losses it has the sign of the target.
double DualAscent::BestDual(std::size_t i, double z) const {
  const double y = double(targets_[i]), before = double(state_.duals[i]);
  const double q = double(squares_[i]) * scale_;
  switch (options_.loss) {
    case LinearLoss::kLog:
      return y * BestLogDual(y * z, y * before, q);
    case LinearLoss::kSquaredHinge:
      return y * std::max(0.0, (1 - y * z + q * y * before) / (0.5 + q));
    case LinearLoss::kSquaredError:
      return (y - z + q * before) / (1 + q);
  }
  return before;
}

// Adds step · row to the sums, and moves the weights along.
void DualAscent::Add(const SparseRow& row, float step) {
  float* const sums = state_.sums.data();
  for (std::size_t j = 0; j < row.columns.size(); ++j) sums[row.columns[j]] += step * row.values[j];
  if (shrunk_.empty()) return;
  for (const std::int32_t column : row.columns) {
    const float sum = sums[column];
    shrunk_[std::size_t(column)] = std::copysign(std::max(0.0f, std::abs(sum) - threshold_), sum);
  }
}

// Steps of an example: output, loss, best dual, change of the sums.
double DualAscent::Pass(std::span<const std::int32_t> examples, std::vector<double>* outputs) {
  // The loss is that before the step, as of an online learner; it costs no additional pass.
  double losses = 0;
  if (outputs != nullptr) outputs->clear();
  for (const std::int32_t example : examples) {
    const auto i = std::size_t(example);
    const SparseRow row = rows_->row(example);
    const double z = Margin(row);
    if (outputs != nullptr) outputs->push_back(z);
    losses += LossOf(options_.loss, z, double(targets_[i]));
    const auto dual = float(BestDual(i, z));
    const double change = double(dual) - double(state_.duals[i]);
    if (change == 0) continue;
    // The change is that of the rounded dual, so that duals and sums stay consistent.
    state_.duals[i] = dual;
    Add(row, float(change * scale_));
  }
  return losses;
}

// The state may come from a damaged file.
Status DualAscent::SetState(const State& state) {
  if (state.duals.size() != state_.duals.size() || state.sums.size() != state_.sums.size()) {
    return InvalidArgument("the state has {} examples and {} weights, the problem {} and {}",
                           state.duals.size(), state.sums.size(), state_.duals.size(),
                           state_.sums.size());
  }
  const auto finite = [](float x) { return std::isfinite(x); };
  if (!std::ranges::all_of(state.duals, finite) || !std::ranges::all_of(state.sums, finite)) {
    return InvalidArgument("the state has a value that is not finite: it is damaged");
  }
  state_ = state;
  // The weights follow from the sums.
  for (std::size_t j = 0; j < shrunk_.size(); ++j) {
    const float sum = state_.sums[j];
    shrunk_[j] = std::copysign(std::max(0.0f, std::abs(sum) - threshold_), sum);
  }
  return Status::Ok();
}

// In f64, since gaps of 1e-9 of it are of interest.
double DualAscent::Objective() const {
  double losses = 0, squares = 0, magnitudes = 0;
  for (std::size_t i = 0; i < targets_.size(); ++i) {
    losses += LossOf(options_.loss, Margin(rows_->row(std::int64_t(i))), double(targets_[i]));
  }
  for (const float w : weights()) {
    squares += double(w) * double(w);
    magnitudes += std::abs(double(w));
  }
  return losses / double(targets_.size()) + 0.5 * options_.l2 * squares + options_.l1 * magnitudes;
}

// Minus the mean of the conjugates, minus l2/2 |w|²: the weights maximize the inner product with
// the sums minus both penalties.
double DualAscent::DualObjective() const {
  double conjugates = 0, squares = 0;
  for (std::size_t i = 0; i < targets_.size(); ++i) {
    const double y = double(targets_[i]), dual = double(state_.duals[i]), b = y * dual;
    switch (options_.loss) {
      case LinearLoss::kLog:
        conjugates += XLogX(b) + XLogX(1 - b);
        break;
      case LinearLoss::kSquaredHinge:
        conjugates += b * b / 4 - b;
        break;
      case LinearLoss::kSquaredError:
        conjugates += dual * dual / 2 - dual * y;
        break;
    }
  }
  for (const float w : weights()) squares += double(w) * double(w);
  return -conjugates / double(targets_.size()) - 0.5 * options_.l2 * squares;
}

}  // namespace troop
