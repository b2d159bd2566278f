#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace troop {

// The stochastic policy of Soft Actor-Critic (Haarnoja et al. 2018, arXiv:1812.05905, appendix C):
// per action dimension a Gaussian x = mean + std · ε with std = exp(clip(log_std, -20, 2)),
// squashed to the normalized action u = tanh x in [-1, 1], and scaled to the bounds, low + (high -
// low) · (1 + u) / 2. `head` is the output of MakeGaussianHead, [B, 2A].
//
// Log-probabilities are densities of normalized actions, whose unit is half the action range, so
// they do not depend on the bounds: log π(u) = Σ_k [log N(x; mean, std) - log(1 - tanh² x)], the
// last term in the form 2 (log 2 - x - softplus(-2x)), which does not lose digits where tanh
// saturates. All sums are in f64.
class SquashedGaussian {
 public:
  static constexpr double kLogStdMin = -20, kLogStdMax = 2;
  // REQUIRES: equal sizes, finite, low <= high.
  SquashedGaussian(std::span<const float> low, std::span<const float> high);

  std::size_t size() const { return low_.size(); }  // A
  // The most probable x, squashed and scaled: tanh(mean) in the bounds. action: [B, A].
  void Mode(std::span<const float> head, std::span<float> action) const;
  // The action of each ε. noise, action: [B, A]; log_probability: [B], or empty: not wanted. NaN
  // inputs give NaN.
  void Sample(std::span<const float> head, std::span<const double> noise, std::span<float> action,
              std::span<double> log_probability) const;
  // Gradients of a loss with respect to the outputs of Sample.
  struct Gradient {
    std::span<const float> action;            // [B, A]
    std::span<const double> log_probability;  // [B]
  };
  // The gradient of that loss with respect to `head`, with ε fixed (reparameterization). dhead:
  // [B, 2A], overwritten. It is 0 for a log_std outside its limits.
  void Backward(std::span<const float> head, std::span<const double> noise,
                const Gradient& gradient, std::span<float> dhead) const;

 private:
  float Scale(std::size_t k, double u) const;

  const std::vector<float> low_, high_;
};

}  // namespace troop
