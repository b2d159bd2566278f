// C51 loss: softmax, projection of the shifted support and cross entropy, in f64.
#include "kernels/loss/categorical_loss.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/loss/n_step_return.h"

namespace troop {
namespace {

// p = softmax(logits); returns log Σ exp(logits).
double Softmax(std::int64_t atoms, const float* logits, double* p) {
  // Shifted by the largest logit against overflow.
  const double top = *std::max_element(logits, logits + atoms);
  double sum = 0;
  for (std::int64_t k = 0; k < atoms; ++k) sum += p[k] = std::exp(double(logits[k]) - top);
  for (std::int64_t k = 0; k < atoms; ++k) p[k] /= sum;
  return top + std::log(sum);
}

// Mean of a distribution over the support.
double Mean(const ValueSupport& support, const double* p) {
  double mean = 0;
  for (std::int64_t k = 0; k < support.atoms; ++k) mean += p[k] * support.atom(k);
  return mean;
}

// Distributes `mass` at `value` to the two nearest atoms, in inverse proportion to their distances.
// `value` is clipped to the support.
void Project(const ValueSupport& support, double value, double mass, double* p) {
  const double at = (std::clamp(value, support.low, support.high) - support.low) / support.gap();
  // The last atom counts as `above` of the one before it.
  const auto below = std::min(std::int64_t(at), support.atoms - 2);
  const double above = at - double(below);
  p[below] += mass * (1 - above);
  p[below + 1] += mass * above;
}

// Computes the loss of one item at a time; the buffers are reused.
class Loss {
 public:
  explicit Loss(const CategoricalLossInput& in)
      : in_(in), p_(std::size_t(in.support.atoms)), next_(p_.size()), target_(p_.size()) {}

  // Writes the target distribution to target_. Returns false if the return is not finite.
  bool MakeTarget(std::int64_t item) {
    const std::int64_t atoms = in_.support.atoms;
    const NStepReturn n = SumNSteps(in_.reward + item * in_.steps, in_.discount + item * in_.steps,
                                    in_.length[item], in_.gamma, in_.reward_clip);
    std::ranges::fill(target_, 0.0);
    if (!std::isfinite(n.sum) || !std::isfinite(n.factor)) return false;
    // After a termination the target is the return alone.
    if (n.factor == 0) {
      Project(in_.support, n.sum, 1, target_.data());
      return true;
    }
    Softmax(atoms, in_.logits_target + (item * in_.actions + Best(item)) * atoms, next_.data());
    for (std::int64_t k = 0; k < atoms; ++k) {
      Project(in_.support, n.sum + n.factor * in_.support.atom(k), next_[std::size_t(k)],
              target_.data());
    }
    return true;
  }

  // The action with the largest mean at the last observation, under the online weights if given.
  std::int64_t Best(std::int64_t item) {
    if (in_.actions == 1) return 0;
    const float* chooser = in_.logits_online != nullptr ? in_.logits_online : in_.logits_target;
    chooser += item * in_.actions * in_.support.atoms;
    std::int64_t best = 0;
    double most = 0;
    for (std::int64_t a = 0; a < in_.actions; ++a) {
      Softmax(in_.support.atoms, chooser + a * in_.support.atoms, next_.data());
      const double mean = Mean(in_.support, next_.data());
      if (a == 0 || most < mean) best = a, most = mean;
    }
    return best;
  }

  // Loss, gradient and priority of an item.
  void Add(std::int64_t item, const DqnLossOutput& out, DqnLossSummary* sum) {
    const std::int64_t atoms = in_.support.atoms;
    const double weight = in_.weight != nullptr ? in_.weight[item] : 1.0;
    const std::int64_t row = item * in_.actions + (in_.action != nullptr ? in_.action[item] : 0);
    const float* logits = in_.logits + row * atoms;
    float* const dlogits = out.dq + row * atoms;
    if (in_.actions > 1) {
      std::fill_n(out.dq + item * in_.actions * atoms, in_.actions * atoms, 0.0f);
    }
    // A return that is not finite gives NaN as loss and priority.
    const bool good = MakeTarget(item);
    const double log_sum = Softmax(atoms, logits, p_.data());
    double entropy = good ? 0 : NAN;
    for (std::int64_t k = 0; k < atoms; ++k) {
      const auto at = std::size_t(k);
      // Cross entropy with log softmax; its gradient is softmax - target.
      entropy -= target_[at] * (double(logits[k]) - log_sum);
      dlogits[k] = float(weight * (p_[at] - target_[at]) / double(in_.batch));
    }
    const double q = Mean(in_.support, p_.data());
    const double size = good ? std::abs(Mean(in_.support, target_.data()) - q) : NAN;
    out.priority[item] = float(size);
    sum->loss += weight * entropy;
    sum->td_error_mean += size;
    sum->q_mean += q;
  }

 private:
  const CategoricalLossInput& in_;
  std::vector<double> p_, next_, target_;  // [K]: prediction, bootstrap distribution, target
};

}  // namespace

DqnLossSummary CategoricalLoss(const CategoricalLossInput& in, const DqnLossOutput& out) {
  DqnLossSummary sum;
  Loss loss(in);
  for (std::int64_t i = 0; i < in.batch; ++i) loss.Add(i, out, &sum);
  const double scale = in.batch > 0 ? 1.0 / double(in.batch) : 0;
  return {sum.loss * scale, sum.td_error_mean * scale, sum.q_mean * scale};
}

void ExpectedValues(const ValueSupport& support, std::int64_t batch, const float* logits,
                    float* q) {
  std::vector<double> p(std::size_t(support.atoms));
  for (std::int64_t i = 0; i < batch; ++i) {
    Softmax(support.atoms, logits + i * support.atoms, p.data());
    q[i] = float(Mean(support, p.data()));
  }
}

void ExpectedValueGradient(const ValueSupport& support, std::int64_t batch, const float* logits,
                           double scale, float* dlogits) {
  std::vector<double> p(std::size_t(support.atoms));
  for (std::int64_t i = 0; i < batch; ++i) {
    Softmax(support.atoms, logits + i * support.atoms, p.data());
    const double mean = Mean(support, p.data());
    for (std::int64_t k = 0; k < support.atoms; ++k) {
      // dq/dlogits_k = p_k (atom_k - q).
      const double slope = p[std::size_t(k)] * (support.atom(k) - mean);
      dlogits[i * support.atoms + k] = float(scale * slope);
    }
  }
}

}  // namespace troop
