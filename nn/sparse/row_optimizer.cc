// Implements the optimizers of sparse rows.

#include "nn/sparse/row_optimizer.h"

#include <cmath>

namespace troop {

RowOptimizer::RowOptimizer(const RowOptimizerOptions& options, std::int64_t rows,
                           std::int64_t width)
    : options_(options), width_(width), place_(std::size_t(rows), -1) {}

// Numbers of state per weight.
std::size_t RowOptimizer::slots() const {
  switch (options_.rule) {
    case RowRule::kSgd:
      return 0;
    case RowRule::kAdaGrad:
      return 1;
    case RowRule::kFtrl:
    case RowRule::kAdam:
      return 2;
  }
  return 0;
}

// The row's slots, which begin at zero.
float* RowOptimizer::StateOf(std::int32_t row) {
  const std::size_t size = slots() * std::size_t(width_);
  if (size == 0) return nullptr;
  std::int32_t& place = place_[std::size_t(row)];
  if (place < 0) {
    place = std::int32_t(state_.rows.size());
    state_.rows.push_back(row);
    state_.values.resize(state_.values.size() + size, 0.0f);
  }
  return state_.values.data() + std::size_t(place) * size;
}

// A row without a gradient costs nothing: not even its state is read.
void RowOptimizer::Step(const RowGradient& gradient, double learning_rate, std::span<float> value) {
  ++state_.steps;
  const auto width = std::size_t(width_);
  for (std::size_t i = 0; i < gradient.rows.size(); ++i) {
    const std::int32_t row = gradient.rows[i];
    StepRow(gradient.values.data() + i * width, learning_rate, StateOf(row),
            value.data() + std::size_t(row) * width);
  }
}

// In f64, rounded to f32 at the end of each element. first, second: the slots of the rule.
void RowOptimizer::StepRow(const float* gradient, double learning_rate, float* state,
                           float* value) const {
  const RowOptimizerOptions& o = options_;
  const auto width = std::size_t(width_);
  float *const first = state, *const second = state == nullptr ? nullptr : state + width;
  const double steps = double(state_.steps);
  for (std::size_t i = 0; i < width; ++i) {
    const double g = double(gradient[i]);
    switch (o.rule) {
      case RowRule::kSgd:
        value[i] = float(double(value[i]) - learning_rate * g);
        break;
      // The rate of a weight falls with its own gradients only.
      case RowRule::kAdaGrad: {
        const double s = double(first[i]) + g * g;
        first[i] = float(s);
        value[i] = float(double(value[i]) - learning_rate * g / (std::sqrt(s) + o.epsilon));
        break;
      }
      case RowRule::kFtrl: {
        // z and n of the paper; the weight follows from them alone.
        const double n = double(second[i]), sum = n + g * g;
        const double sigma = (std::sqrt(sum) - std::sqrt(n)) / learning_rate;
        const double z = double(first[i]) + g - sigma * double(value[i]);
        first[i] = float(z);
        second[i] = float(sum);
        // L1 keeps a weight at exactly 0 until |z| exceeds it.
        const double rest = std::abs(z) - o.l1;
        const double scale = (o.beta + std::sqrt(sum)) / learning_rate + o.l2;
        value[i] = rest <= 0 ? 0.0f : float(-std::copysign(rest, z) / scale);
        break;
      }
      case RowRule::kAdam: {
        const double m = o.beta1 * double(first[i]) + (1 - o.beta1) * g;
        const double v = o.beta2 * double(second[i]) + (1 - o.beta2) * g * g;
        first[i] = float(m);
        second[i] = float(v);
        // All steps count, also those in which the row had no gradient.
        const double m_hat = m / (1 - std::pow(o.beta1, steps));
        const double v_hat = v / (1 - std::pow(o.beta2, steps));
        value[i] = float(double(value[i]) - learning_rate * m_hat / (std::sqrt(v_hat) + o.epsilon));
        break;
      }
    }
  }
}

// Checks everything before the first change.
// A second place of a row would make its state ambiguous.
Status RowOptimizer::SetState(const State& state) {
  const std::size_t size = slots() * std::size_t(width_);
  if (state.steps < 0 || state.values.size() != state.rows.size() * size) {
    return InvalidArgument("the optimizer's state has {} values for {} rows, must have {} per row",
                           state.values.size(), state.rows.size(), size);
  }
  std::vector<std::int32_t> place(place_.size(), -1);
  for (std::size_t i = 0; i < state.rows.size(); ++i) {
    const std::int32_t row = state.rows[i];
    if (row < 0 || std::size_t(row) >= place.size() || place[std::size_t(row)] >= 0) {
      return InvalidArgument("row {} of the optimizer's state occurs twice, or exceeds {} rows",
                             row, place.size());
    }
    place[std::size_t(row)] = std::int32_t(i);
  }
  place_ = std::move(place);
  state_ = state;
  return Status::Ok();
}

}  // namespace troop
