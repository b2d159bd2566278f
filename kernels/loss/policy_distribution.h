#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace troop {

// One dimension of a Gaussian policy N(mean, std²) whose samples are clipped to [-1, 1]. A clipped
// sample stands for all values beyond the bound, so its log-probability is that of the tail, and
// the gradient is the clipped action policy gradient (Fujita & Maeda 2018, eq. 6, lower variance
// than that of the density).
struct ClippedGaussian {
  double log_probability = 0;      // density inside the bounds, probability at a bound
  double dmean = 0, dlog_std = 0;  // its derivatives
};
// u: the clipped sample; -1 and 1 exactly are the bounds. NaN inputs give NaN.
ClippedGaussian ClippedGaussianAt(double u, double mean, double log_std);
// log of the standard normal distribution function at z, and its derivative φ(z) / Φ(z), without
// underflow for z down to -10^150.
struct LogNormalTail {
  double log = 0, slope = 0;
};
LogNormalTail LogNormalCdf(double z);
// Entropy of a Gaussian with this deviation, before clipping.
double GaussianEntropy(double log_std);

// A stochastic policy's distribution, given the outputs of its network.
class PolicyDistribution {
 public:
  virtual ~PolicyDistribution() = default;
  // Number of the network's outputs that describe it.
  virtual std::int64_t columns() const = 0;
  // log π(a) of action `index` of the batch. out: [columns].
  virtual double LogProbability(const float* out, std::int64_t index) = 0;
  // The entropy of the distribution. `dout`, [columns]: the gradient of scale · (slope · log π(a) -
  // entropy_cost · entropy), overwritten.
  struct Slopes {
    double scale = 1, slope = 0, entropy_cost = 0;
  };
  virtual double Backward(const float* out, std::int64_t index, const Slopes& slopes,
                          float* dout) = 0;
};

// Softmax of `count` logits. action: [..] i32 of the batch. REQUIRES: actions in [0, count).
class CategoricalDistribution final : public PolicyDistribution {
 public:
  CategoricalDistribution(std::int64_t count, const std::int32_t* action)
      : action_(action), log_pi_(std::size_t(count)) {}
  std::int64_t columns() const override { return std::int64_t(log_pi_.size()); }
  double LogProbability(const float* out, std::int64_t index) override;
  double Backward(const float* out, std::int64_t index, const Slopes& slopes, float* dout) override;

 private:
  void LogSoftmax(const float* out);

  const std::int32_t* const action_;
  std::vector<double> log_pi_;
};

// Independent softmax distributions of the components of an action, each over the integers from low
// to high: the logits of the first component, then those of the second, …. action: [.., A] f32.
// REQUIRES: integers within the bounds [A].
class MultiCategoricalDistribution final : public PolicyDistribution {
 public:
  MultiCategoricalDistribution(std::span<const float> low, std::span<const float> high,
                               const float* action);
  std::int64_t columns() const override { return columns_; }
  double LogProbability(const float* out, std::int64_t index) override;
  double Backward(const float* out, std::int64_t index, const Slopes& slopes, float* dout) override;

 private:
  // Sets the choices of action `index`.
  void Select(std::int64_t index);

  const std::span<const float> low_;
  const float* const action_;
  std::vector<std::int32_t> choice_;  // [A], which the components refer to
  std::vector<CategoricalDistribution> component_;
  std::int64_t columns_ = 0;
};

// Independent clipped Gaussians of A dimensions: A means, then A logarithms of standard deviations,
// in units of half the range of each dimension. action: [.., A] f32 within the bounds [A].
class GaussianDistribution final : public PolicyDistribution {
 public:
  GaussianDistribution(std::span<const float> low, std::span<const float> high, const float* action)
      : low_(low), high_(high), action_(action) {}
  std::int64_t columns() const override { return 2 * std::int64_t(low_.size()); }
  double LogProbability(const float* out, std::int64_t index) override;
  double Backward(const float* out, std::int64_t index, const Slopes& slopes, float* dout) override;
  // Action component k in units of half its range: -1 and 1 at the bounds.
  static double Normalized(float action, float low, float high);

 private:
  double NormalizedAt(std::int64_t index, std::size_t k) const;

  const std::span<const float> low_, high_;
  const float* const action_;
};

}  // namespace troop
