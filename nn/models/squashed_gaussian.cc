// Implements the squashed Gaussian policy: mode, samples with log-probabilities, and gradients.
#include "nn/models/squashed_gaussian.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/base/check.h"

namespace troop {
namespace {

// One dimension of one distribution.
struct Component {
  double std = 0, log_std = 0, x = 0;
  bool limited = false;  // log_std is outside its limits
};

// Reads dimension k of a row of the head, and draws x with ε.
Component Draw(const float* row, std::size_t k, std::size_t size, double noise) {
  Component c;
  const double raw = row[size + k];
  c.log_std = std::clamp(raw, SquashedGaussian::kLogStdMin, SquashedGaussian::kLogStdMax);
  c.limited = c.log_std != raw;
  c.std = std::exp(c.log_std);
  c.x = double(row[k]) + c.std * noise;
  return c;
}

// log(1 - tanh² x).
double LogSlope(double x) {
  const double a = std::abs(x);  // even; softplus(-2a) does not overflow
  return 2 * (std::numbers::ln2 - a - std::log1p(std::exp(-2 * a)));
}

}  // namespace

// The bounds are copied: the environment's description may end earlier.
SquashedGaussian::SquashedGaussian(std::span<const float> low, std::span<const float> high)
    : low_(low.begin(), low.end()), high_(high.begin(), high.end()) {
  TROOP_CHECK(low.size() == high.size() && !low.empty(), "{} and {} bounds", low.size(),
              high.size());
}

// Rounding may exceed the bounds. Halves are used, since the difference could overflow.
float SquashedGaussian::Scale(std::size_t k, double u) const {
  const double low = low_[k], high = high_[k];
  return std::clamp(float(0.5 * (low + high) + 0.5 * (high - low) * u), low_[k], high_[k]);
}

// The deviations do not matter here.
void SquashedGaussian::Mode(std::span<const float> head, std::span<float> action) const {
  for (std::size_t i = 0; i < action.size(); ++i) {
    const std::size_t row = i / size(), k = i % size();
    action[i] = Scale(k, std::tanh(double(head[row * 2 * size() + k])));
  }
}

// With ε fixed, (x - mean) / std is ε itself.
void SquashedGaussian::Sample(std::span<const float> head, std::span<const double> noise,
                              std::span<float> action, std::span<double> log_probability) const {
  const double log_root = 0.5 * std::log(2 * std::numbers::pi);
  const std::size_t rows = action.size() / size();
  for (std::size_t row = 0; row < rows; ++row) {
    double sum = 0;
    for (std::size_t k = 0; k < size(); ++k) {
      const std::size_t i = row * size() + k;
      const Component c = Draw(head.data() + row * 2 * size(), k, size(), noise[i]);
      action[i] = Scale(k, std::tanh(c.x));
      sum += -0.5 * noise[i] * noise[i] - c.log_std - log_root - LogSlope(c.x);
    }
    if (!log_probability.empty()) log_probability[row] = sum;
  }
}

// dx/dmean = 1 and dx/dlog_std = std · ε; d(-log(1 - tanh² x))/dx = 2 tanh x.
void SquashedGaussian::Backward(std::span<const float> head, std::span<const double> noise,
                                const Gradient& gradient, std::span<float> dhead) const {
  const std::size_t rows = gradient.log_probability.size();
  for (std::size_t row = 0; row < rows; ++row) {
    const double dlog = gradient.log_probability[row];
    float* const out = dhead.data() + row * 2 * size();
    for (std::size_t k = 0; k < size(); ++k) {
      const std::size_t i = row * size() + k;
      const Component c = Draw(head.data() + row * 2 * size(), k, size(), noise[i]);
      const double half = 0.5 * (double(high_[k]) - double(low_[k]));
      const double daction = double(gradient.action[i]) * half * std::exp(LogSlope(c.x));
      const double dx = daction + dlog * 2 * std::tanh(c.x);
      out[k] = float(dx);
      out[size() + k] = c.limited ? 0.0f : float(dx * c.std * noise[i] - dlog);
    }
  }
}

}  // namespace troop
