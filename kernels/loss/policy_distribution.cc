// Log-probabilities, entropies and gradients of the distributions of stochastic policies, in f64.
#include "kernels/loss/policy_distribution.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace troop {
namespace {

const double kLogRootTwoPi = 0.5 * std::log(2 * std::numbers::pi);

}  // namespace

// Below -30, before erfc underflows, the asymptotic series Φ(z) = φ(z) / -z · (1 - 1/z² + 3/z⁴ -
// 15/z⁶ + ...), which is exact to f64 there.
LogNormalTail LogNormalCdf(double z) {
  const double log_density = -0.5 * z * z - kLogRootTwoPi;
  if (!(z <= -30)) {
    const double log = std::log(0.5 * std::erfc(-z / std::numbers::sqrt2));
    return {log, std::exp(log_density - log)};
  }
  const double r = 1 / (z * z);
  const double series = -r * (1 - r * (3 - r * (15 - r * (105 - r * (945 - r * 10395)))));
  const double correction = std::log1p(series);
  // φ / Φ = -z / (1 + series), exact where both would underflow.
  return {log_density - std::log(-z) + correction, -z / (1 + series)};
}

// Inside the bounds the derivatives are those of log N; at a bound those of the tail's probability.
ClippedGaussian ClippedGaussianAt(double u, double mean, double log_std) {
  const double std = std::exp(log_std);
  if (u <= -1 || u >= 1) {
    // The tail's argument grows with the mean at the upper bound, and falls at the lower one.
    const double sign = u >= 1 ? 1 : -1;
    const double z = (sign * mean - 1) / std;
    const LogNormalTail tail = LogNormalCdf(z);
    return {tail.log, sign * tail.slope / std, -z * tail.slope};
  }
  const double e = (u - mean) / std;
  return {-0.5 * e * e - log_std - kLogRootTwoPi, e / std, e * e - 1};
}

double GaussianEntropy(double log_std) { return log_std + kLogRootTwoPi + 0.5; }

// The largest logit is subtracted first, so that no exponential overflows.
void CategoricalDistribution::LogSoftmax(const float* out) {
  const double largest = *std::max_element(out, out + log_pi_.size());
  double sum = 0;
  for (std::size_t a = 0; a < log_pi_.size(); ++a) sum += std::exp(double(out[a]) - largest);
  const double shift = largest + std::log(sum);
  for (std::size_t a = 0; a < log_pi_.size(); ++a) log_pi_[a] = double(out[a]) - shift;
}

// One pass over the logits per call; callers keep the result.
double CategoricalDistribution::LogProbability(const float* out, std::int64_t index) {
  LogSoftmax(out);
  return log_pi_[std::size_t(action_[index])];
}

// d log π(a) / d logit_k = [k = a] - π_k;  d entropy / d logit_k = -π_k (log π_k + entropy)
double CategoricalDistribution::Backward(const float* out, std::int64_t index, const Slopes& slopes,
                                         float* dout) {
  LogSoftmax(out);
  double entropy = 0;
  for (const double l : log_pi_) entropy -= std::exp(l) * l;
  const auto action = std::size_t(action_[index]);
  for (std::size_t k = 0; k < log_pi_.size(); ++k) {
    const double pi = std::exp(log_pi_[k]);
    const double slope = slopes.slope * ((k == action ? 1 : 0) - pi) +
                         slopes.entropy_cost * pi * (log_pi_[k] + entropy);
    dout[k] = float(slopes.scale * slope);
  }
  return entropy;
}

// Each component is a categorical distribution of one action, whose number is in choice_.
MultiCategoricalDistribution::MultiCategoricalDistribution(std::span<const float> low,
                                                           std::span<const float> high,
                                                           const float* action)
    : low_(low), action_(action), choice_(low.size()) {
  component_.reserve(low.size());
  for (std::size_t k = 0; k < low.size(); ++k) {
    component_.emplace_back(std::int64_t(high[k]) - std::int64_t(low[k]) + 1, &choice_[k]);
    columns_ += component_[k].columns();
  }
}

void MultiCategoricalDistribution::Select(std::int64_t index) {
  for (std::size_t k = 0; k < choice_.size(); ++k)
    choice_[k] = std::int32_t(action_[std::size_t(index) * choice_.size() + k] - low_[k]);
}

// Components are independent, so their log-probabilities and entropies add up.
double MultiCategoricalDistribution::LogProbability(const float* out, std::int64_t index) {
  Select(index);
  double sum = 0;
  for (CategoricalDistribution& component : component_) {
    sum += component.LogProbability(out, 0);
    out += component.columns();
  }
  return sum;
}

double MultiCategoricalDistribution::Backward(const float* out, std::int64_t index,
                                              const Slopes& slopes, float* dout) {
  Select(index);
  double entropy = 0;
  for (CategoricalDistribution& component : component_) {
    entropy += component.Backward(out, 0, slopes, dout);
    out += component.columns();
    dout += component.columns();
  }
  return entropy;
}

// Halves are subtracted, so that the range does not overflow. A stored bound is recognized exactly.
double GaussianDistribution::Normalized(float action, float low, float high) {
  if (action <= low) return -1;
  if (action >= high) return 1;
  const double middle = 0.5 * double(low) + 0.5 * double(high);
  return (double(action) - middle) / (0.5 * double(high) - 0.5 * double(low));
}

double GaussianDistribution::NormalizedAt(std::int64_t index, std::size_t k) const {
  return Normalized(action_[std::size_t(index) * low_.size() + k], low_[k], high_[k]);
}

// Dimensions are independent, so their log-probabilities add up.
double GaussianDistribution::LogProbability(const float* out, std::int64_t index) {
  double sum = 0;
  for (std::size_t k = 0; k < low_.size(); ++k)
    sum += ClippedGaussianAt(NormalizedAt(index, k), out[k], out[low_.size() + k]).log_probability;
  return sum;
}

double GaussianDistribution::Backward(const float* out, std::int64_t index, const Slopes& slopes,
                                      float* dout) {
  const std::size_t size = low_.size();
  double entropy = 0;
  for (std::size_t k = 0; k < size; ++k) {
    const double log_std = out[size + k];
    const ClippedGaussian at = ClippedGaussianAt(NormalizedAt(index, k), out[k], log_std);
    dout[k] = float(slopes.scale * slopes.slope * at.dmean);
    // The entropy is log_std and a constant.
    dout[size + k] = float(slopes.scale * (slopes.slope * at.dlog_std - slopes.entropy_cost));
    entropy += GaussianEntropy(log_std);
  }
  return entropy;
}

}  // namespace troop
