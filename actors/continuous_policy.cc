// Implements the local policy for continuous actions: Gaussian noise, samples of a stochastic
// policy, or uniform exploration.

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "actors/policy.h"
#include "core/base/philox.h"
#include "kernels/loss/policy_distribution.h"
#include "nn/models/model.h"
#include "nn/models/policy_critic.h"
#include "nn/models/value_head.h"

namespace troop {
namespace {

// Random values of a step: block 0 decides whether the action is random; block 1 + k is for
// component k of the noise or of the random action.
class Draws {
 public:
  Draws(std::uint64_t seed, const ExploreKey& key, std::size_t actions)
      : rng_({.run_seed = seed,
              .purpose = Purpose::kExploration,
              .index = key.env,
              .episode = key.episode}),
        first_(key.step * (1 + actions) * 4) {}
  // The random-action decision; then component k of the random action, or of the noise.
  double Uniform() { return At(0).Uniform(); }
  double Uniform(std::size_t k) { return At(1 + k).Uniform(); }
  double Uniform(std::size_t k, float low, float high) { return At(1 + k).Uniform(low, high); }
  double Normal(std::size_t k) { return At(1 + k).Normal(); }

 private:
  // Random access: a value depends on step and block only.
  Rng& At(std::uint64_t block) {
    rng_.Seek(first_ + 4 * block);
    return rng_;
  }

  Rng rng_;
  const std::uint64_t first_;
};

}  // namespace

namespace {

// Samples each component of one action from the softmax of its logits, or takes the largest.
void SampleIntegers(const ExploreKey& key, const float* logits, const ActionSpec& spec,
                    Draws* draws, std::span<float> action) {
  // One decision for all components: a random action is random in each.
  const bool random = key.epsilon > 0 && draws->Uniform() < key.epsilon;
  for (std::size_t k = 0; k < action.size(); ++k) {
    const std::span row(logits, std::size_t(spec.choices(k)));
    logits += row.size();
    std::size_t choice = std::size_t(std::ranges::max_element(row) - row.begin());
    if (random) {
      choice = std::size_t(draws->Uniform(k) * double(row.size()));
    } else if (key.noise_sigma > 0) {
      choice = std::size_t(SampleSoftmax(row, draws->Uniform(k)));
    }
    // Logits that are NaN, and rounding, never lead beyond the last value.
    action[k] = spec.low[k] + float(std::min(choice, row.size() - 1));
  }
}

// log of weight · exp(a) + (1 - weight) · exp(b).
double LogMixture(double weight, double a, double b) {
  if (weight <= 0) return b;
  const double first = a + std::log(weight);
  // The larger exponent is taken out of the sum, which then neither overflows nor vanishes.
  if (weight >= 1) return first;
  const double second = b + std::log1p(-weight), most = std::max(first, second);
  return most + std::log(std::exp(first - most) + std::exp(second - most));
}

}  // namespace

// Random values are those of the other continuous policies: one block per component.
void SampleActions(std::uint64_t seed, std::span<const ExploreKey> keys, const ConstTensor& out,
                   const ActionSpec& spec, std::span<float> action) {
  const std::size_t size = spec.low.size(), width = std::size_t(out.dim(1));
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto row = out.as<float>().subspan(i * width, width);
    Draws draws(seed, keys[i], size);
    if (spec.integers) {
      SampleIntegers(keys[i], row.data(), spec, &draws, action.subspan(i * size, size));
      continue;
    }
    const bool random = keys[i].epsilon > 0 && draws.Uniform() < keys[i].epsilon;
    for (std::size_t k = 0; k < size; ++k) {
      const float low = spec.low[k], high = spec.high[k];
      float& a = action[i * size + k];
      if (random) {
        a = float(draws.Uniform(k, low, high));
        continue;
      }
      // In units of half the range; beyond 1 the sample is clipped to exactly the bound.
      double u = row[k];
      if (keys[i].noise_sigma > 0)
        u += keys[i].noise_sigma * std::exp(double(row[size + k])) * draws.Normal(k);
      const double half = 0.5 * double(high) - 0.5 * double(low);
      const double x = 0.5 * double(low) + 0.5 * double(high) + half * u;
      // Environments never receive NaN; the NaN outputs mark the step as invalid.
      a = !(u > -1) ? low : u >= 1 ? high : std::clamp(float(x), low, high);
    }
  }
}

// A mixture of the policy and the uniform distribution, whose density is 1/2 per dimension, or 1/n
// per component of n values.
float LogProbability(const ExploreKey& key, std::span<const float> row, const ActionSpec& spec,
                     std::span<const float> action) {
  if (spec.integers) {
    MultiCategoricalDistribution categorical(spec.low, spec.high, action.data());
    double uniform = 0;
    for (std::size_t k = 0; k < spec.low.size(); ++k) uniform -= std::log(double(spec.choices(k)));
    return float(LogMixture(key.epsilon, uniform, categorical.LogProbability(row.data(), 0)));
  }
  GaussianDistribution gaussian(spec.low, spec.high, action.data());
  const double uniform = -double(spec.low.size()) * std::numbers::ln2;
  return float(LogMixture(key.epsilon, uniform, gaussian.LogProbability(row.data(), 0)));
}

namespace {

// Synchronous: Submit computes the output, Poll returns it.
class ContinuousPolicy final : public Policy {
 public:
  ContinuousPolicy(const ActingConfig& config, const ActionSpec& spec,
                   std::unique_ptr<PolicyCritic> network)
      : network_(std::move(network)),
        spec_(spec),
        form_(GetValueHead(config.model)),
        seed_(std::uint64_t(config.seed)) {
    value_.resize(std::size_t(ParameterCount(*network_)));
    packed_ = network_->MakePacked(config.model.network.precision == NetworkPrecision::kBf16
                                       ? Precision::kBF16
                                       : Precision::kF32);
  }

  // Allocates for `size` observations; Submit uses the first rows.
  Status Plan(const TensorSpec& observation) {
    TROOP_ASSIGN_OR_RETURN(troop::Plan plan, network_->MakePlan({&observation, 1}));
    workspace_ = MutableBuffer(plan.workspace_bytes);
    const std::int64_t size = observation.shape[0];
    for (Tensor* t : {&mean_, &action_}) *t = Tensor(DType::kF32, plan.out[0].shape);
    TROOP_ASSIGN_OR_RETURN(const troop::Plan policy,
                           network_->policy().MakePlan({&observation, 1}));
    head_ = Tensor(DType::kF32, policy.out[0].shape);
    noise_.resize(spec_.low.size());
    critic_out_ = Tensor(DType::kF32, plan.out[1].shape);
    for (Tensor* t : {&q_taken_, &q_max_}) *t = Tensor(DType::kF32, {size});
    q_ = Tensor(DType::kF32, {size, 2});
    return Status::Ok();
  }

  // Steps: the policy's actions with their q, exploration, then q of the actions taken.
  void Submit(ConstTensor observation, std::span<const ExploreKey> keys) override {
    const StepContext context{
        .value = value_, .packed = packed_.get(), .gradient = {}, .workspace = workspace_.bytes()};
    const auto rows = std::int64_t(keys.size());
    const Tensor action = action_.Rows(0, rows), critic_out = critic_out_.Rows(0, rows);
    const Tensor q_taken = q_taken_.Rows(0, rows), q_max = q_max_.Rows(0, rows);
    Evaluate(context, observation, {mean_.Rows(0, rows), critic_out});
    ExpectedValues(form_, critic_out.as<float>(), q_max.as<float>());
    bool any = false;
    for (std::size_t i = 0; i < keys.size(); ++i) any = Choose(i, keys[i]) || any;
    // Without exploration the taken actions are the policy's, and one critic pass is saved.
    if (any) {
      const std::vector<ConstTensor> judged{observation, action};
      network_->critic().Forward(network_->CriticContext(context), judged, {&critic_out, 1}, {});
      ExpectedValues(form_, critic_out.as<float>(), q_taken.as<float>());
    } else {
      std::ranges::copy(q_max.as<float>(), q_taken.as<float>().begin());
    }
    for (std::size_t i = 0; i < keys.size(); ++i) {
      q_.as<float>()[2 * i] = q_taken.as<float>()[i];
      q_.as<float>()[2 * i + 1] = q_max.as<float>()[i];
    }
    output_ = {action, q_.Rows(0, rows), q_taken, q_max, version_};
    ready_ = true;
  }

  const PolicyOutput* Poll() override { return std::exchange(ready_, false) ? &output_ : nullptr; }

  Status SetWeights(std::uint64_t version, std::span<const float> value) override {
    TROOP_RETURN_IF_ERROR(CheckWeightCount(value.size(), value_.size()));
    std::ranges::copy(value, value_.begin());
    network_->Pack(value_, packed_.get());
    version_ = version;
    return Status::Ok();
  }

 private:
  // The policy's actions and their values: out = {μ(s), Q(s, μ(s))}.
  void Evaluate(const StepContext& context, const ConstTensor& observation,
                const std::vector<Tensor>& out) {
    const SquashedGaussian* const gaussian = network_->gaussian();
    if (gaussian == nullptr) return network_->Forward(context, {&observation, 1}, out, {});
    // The head is kept for samples.
    const Tensor head = head_.Rows(0, observation.dim(0));
    network_->policy().Forward(network_->PolicyContext(context), {&observation, 1}, {&head, 1}, {});
    gaussian->Mode(head.as<float>(), out[0].as<float>());
    const std::vector<ConstTensor> judged{observation, out[0]};
    network_->critic().Forward(network_->CriticContext(context), judged, {&out[1], 1}, {});
  }

  // Writes a sample of the stochastic policy to row i of action_.
  void SampleAction(std::size_t i, double sigma, Draws* draws) {
    const std::size_t size = spec_.low.size();
    for (std::size_t k = 0; k < size; ++k) noise_[k] = sigma * draws->Normal(k);
    const auto action = action_.as<float>().subspan(i * size, size);
    network_->gaussian()->Sample(head_.as<float>().subspan(i * 2 * size, 2 * size), noise_, action,
                                 {});
    for (std::size_t k = 0; k < size; ++k)
      if (std::isnan(action[k])) action[k] = spec_.low[k];
  }

  // Writes row i of action_. Returns false if it is the policy's action.
  bool Choose(std::size_t i, const ExploreKey& key) {
    const std::size_t size = spec_.low.size();
    const auto mean = mean_.as<float>().subspan(i * size, size);
    const auto action = action_.as<float>().subspan(i * size, size);
    Draws draws(seed_, key, size);
    const bool random = key.epsilon > 0 && draws.Uniform() < key.epsilon;
    if (!random && key.noise_sigma > 0 && network_->gaussian() != nullptr) {
      SampleAction(i, key.noise_sigma, &draws);
      return true;
    }
    for (std::size_t k = 0; k < size; ++k) {
      const float low = spec_.low[k], high = spec_.high[k];
      double x = mean[k];
      if (random) {
        x = draws.Uniform(k, low, high);
      } else if (key.noise_sigma > 0) {
        // Halves are subtracted, so that the range does not overflow.
        x += key.noise_sigma * (0.5 * double(high) - 0.5 * double(low)) * draws.Normal(k);
      }
      // Environments never receive NaN; the NaN q-value marks the step as invalid.
      action[k] = std::isnan(x) ? low : std::clamp(float(x), low, high);
    }
    return random || key.noise_sigma > 0;
  }

  const std::unique_ptr<PolicyCritic> network_;
  const ActionSpec spec_;
  const ValueHead form_;
  const std::uint64_t seed_;
  std::vector<float> value_;
  std::unique_ptr<Packed> packed_;
  MutableBuffer workspace_;
  Tensor mean_, action_;       // [N, A]
  Tensor head_;                // [N, outputs of the policy]
  std::vector<double> noise_;  // [A] of one sample
  Tensor critic_out_;          // [N, outputs]
  Tensor q_, q_taken_, q_max_;
  PolicyOutput output_;
  std::uint64_t version_ = 0;
  bool ready_ = false;
};

}  // namespace

// The critic is part of the policy, since priorities need q.
Result<std::unique_ptr<Policy>> MakeContinuousPolicy(const ActingConfig& config, const EnvSpec& env,
                                                     int size) {
  TROOP_ASSIGN_OR_RETURN(std::unique_ptr<PolicyCritic> network,
                         MakePolicyCritic(config.model, env));
  // Starts with the run's initial weights, as version 0.
  std::vector<float> initial(std::size_t(ParameterCount(*network)));
  InitParameters(*network, std::uint64_t(config.seed), initial);
  auto policy = std::make_unique<ContinuousPolicy>(config, env.action, std::move(network));
  const TensorSpec input = NetworkInput(config.model, env);
  TROOP_RETURN_IF_ERROR(policy->Plan({input.dtype, input.shape.Prepend(size)}));
  TROOP_RETURN_IF_ERROR(policy->SetWeights(0, initial));
  return std::unique_ptr<Policy>(std::move(policy));
}

}  // namespace troop
