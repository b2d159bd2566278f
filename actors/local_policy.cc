// Implements ε-greedy exploration, its schedules, and the local policy for discrete actions.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "actors/policy.h"
#include "core/base/philox.h"
#include "nn/layers/layers.h"
#include "nn/models/model.h"
#include "nn/models/value_head.h"

namespace troop {

Status CheckWeightCount(std::size_t given, std::size_t wanted) {
  if (given == wanted) return Status::Ok();
  return InvalidArgument(
      "{} weights, but the network has {}; the run's roles have different configs", given, wanted);
}

namespace {

// Random values of a step: whether to explore, the random action, and that of a stochastic policy.
struct Draw {
  double uniform;
  std::uint32_t action;
  double policy;  // [0, 1), for a sample of the policy
};
// Four words per step are reserved in the episode's stream.
Draw DrawFor(std::uint64_t seed, const ExploreKey& key, std::uint32_t actions) {
  Rng rng({.run_seed = seed,
           .purpose = Purpose::kExploration,
           .index = key.env,
           .episode = key.episode});
  // Each step has a fixed offset in the episode's stream, so the values do not depend on history.
  rng.Seek(key.step * 4);
  const double uniform = rng.Uniform();
  // Multiply-shift maps 32 random bits to [0, actions).
  const auto action = std::uint32_t(std::uint64_t{rng.NextU32()} * actions >> 32);
  return {uniform, action, double(rng.NextU32()) * 0x1p-32};
}

// Number of a row's actions that its observation allows (nn/layers/layers.h, MakeActionMask).
std::uint32_t AllowedCount(std::span<const float> row) {
  return std::uint32_t(row.size() - std::size_t(std::ranges::count_if(row, IsMasked)));
}
// Action `index` of those.
std::int32_t AllowedAction(std::span<const float> row, std::uint32_t index) {
  for (std::size_t a = 0; a < row.size(); ++a) {
    if (!IsMasked(row[a]) && index-- == 0) return std::int32_t(a);
  }
  return 0;  // parameters that have diverged give only such outputs
}

}  // namespace

// q_taken is the value of the explored action, which priorities need.
void ChooseActions(std::uint64_t seed, std::span<const ExploreKey> keys, const ConstTensor& q,
                   const Choice& choice) {
  const auto actions = std::size_t(q.dim(1));
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto row = q.as<float>().subspan(i * actions, actions);
    const auto best = std::ranges::max_element(row);
    auto action = std::int32_t(best - row.begin());
    // The random values of other steps do not depend on this condition.
    if (keys[i].epsilon > 0) {
      const Draw draw = DrawFor(seed, keys[i], AllowedCount(row));
      if (draw.uniform < keys[i].epsilon) action = AllowedAction(row, draw.action);
    }
    choice.action[i] = action;
    choice.q_max[i] = *best;
    choice.q_taken[i] = row[std::size_t(action)];
  }
}

namespace {

// Probabilities of the actions.
std::vector<double> SoftmaxOf(std::span<const float> logits) {
  std::vector<double> probability(logits.size());
  // The largest logit is subtracted first, so that no exponential overflows.
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (std::size_t a = 0; a < logits.size(); ++a)
    sum += probability[a] = std::exp(double(logits[a]) - largest);
  for (double& p : probability) p /= sum;
  return probability;
}

// First action at which the cumulated probability exceeds u in [0, 1); if rounding leaves none, the
// last possible one.
std::int32_t ActionAt(std::span<const double> probability, double u) {
  // Probabilities of 0 belong to masked actions.
  std::size_t last = 0;
  for (std::size_t a = 0; a < probability.size(); ++a) {
    if (probability[a] > 0) last = a;
    u -= probability[a];
    if (u < 0) break;
  }
  return std::int32_t(last);
}

}  // namespace

std::int32_t SampleSoftmax(std::span<const float> logits, double u) {
  return ActionAt(SoftmaxOf(logits), u);
}

void SampleActions(std::uint64_t seed, std::span<const ExploreKey> keys, const ConstTensor& out,
                   std::span<std::int32_t> actions) {
  const auto width = std::size_t(out.dim(1));
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto row = out.as<float>().subspan(i * width, width);
    const auto logits = row.first(width - 1);
    auto action = std::int32_t(std::ranges::max_element(logits) - logits.begin());
    const Draw draw = DrawFor(seed, keys[i], AllowedCount(logits));
    // Random actions replace some of the policy, hence the mixture in LogProbability.
    if (keys[i].noise_sigma > 0) action = SampleSoftmax(logits, draw.policy);
    if (draw.uniform < keys[i].epsilon) action = AllowedAction(logits, draw.action);
    actions[i] = action;
  }
}

float LogProbability(const ExploreKey& key, std::span<const float> row, std::int32_t action) {
  const std::vector<double> probability = SoftmaxOf(row.first(row.size() - 1));
  const double uniform = key.epsilon / double(AllowedCount(row.first(row.size() - 1)));
  return float(std::log(uniform + (1 - key.epsilon) * probability[std::size_t(action)]));
}

namespace {

// Synchronous: Submit computes the output, Poll returns it.
class LocalPolicy final : public Policy {
 public:
  LocalPolicy(std::unique_ptr<Module> module, const ActingConfig& config, const ActionSpec& spec)
      : module_(std::move(module)),
        spec_(spec),
        form_(GetValueHead(config.model)),
        actor_critic_(IsActorCritic(config.model.algorithm)),
        noisy_(config.model.network.noisy),
        columns_(StateColumns(config.model.network.layers)),
        seed_(std::uint64_t(config.seed)) {
    value_.resize(std::size_t(ParameterCount(*module_)));
    packed_ = module_->MakePacked(config.model.network.precision == NetworkPrecision::kBf16
                                      ? Precision::kBF16
                                      : Precision::kF32);
  }

  // Allocates for `size` observations; Submit uses the first rows.
  Status Plan(const TensorSpec& observation) {
    TROOP_ASSIGN_OR_RETURN(troop::Plan plan, module_->MakePlan({{observation}}));
    workspace_ = MutableBuffer(plan.workspace_bytes);
    const std::int64_t size = observation.shape[0], outputs = plan.out[0].shape[1];
    q_ = Tensor(DType::kF32, {size, outputs / form_.numbers});
    out_ = form_.numbers == 1 ? q_ : Tensor(DType::kF32, plan.out[0].shape);
    q_taken_ = Tensor(DType::kF32, {observation.shape[0]});
    q_max_ = Tensor(DType::kF32, {observation.shape[0]});
    // One number per environment, or one per action dimension.
    const TensorSpec action = spec_.tensor();
    action_ = Tensor(action.dtype, action.shape.Prepend(size));
    if (columns_ > 0) {
      state_ = Tensor(DType::kF32, {size, columns_});
      next_state_ = Tensor(DType::kF32, {size, columns_});
      one_step_.assign(std::size_t(size), 1);
    }
    return Status::Ok();
  }

  void Submit(ConstTensor observation, std::span<const ExploreKey> keys) override {
    const auto rows = std::int64_t(keys.size());
    const Sequences sequences = NextStep(keys);
    const StepContext context{.value = value_,
                              .packed = packed_.get(),
                              .gradient = {},
                              .workspace = workspace_.bytes(),
                              .sequences = columns_ > 0 ? &sequences : nullptr,
                              .noise = NoiseOf(keys)};
    const Tensor q = q_.Rows(0, rows), out = out_.Rows(0, rows);
    module_->Forward(context, {&observation, 1}, {&out, 1}, {});
    // Value distributions: q is their expectation.
    if (form_.numbers > 1) ExpectedValues(form_, out.as<float>(), q.as<float>());
    Choose(keys, q);
    output_ = {action_.Rows(0, rows), q, q_taken_.Rows(0, rows), q_max_.Rows(0, rows), version_};
    if (columns_ > 0) output_.state = state_.Rows(0, rows);
    ready_ = true;
  }

  const PolicyOutput* Poll() override { return std::exchange(ready_, false) ? &output_ : nullptr; }

  Status SetWeights(std::uint64_t version, std::span<const float> value) override {
    TROOP_RETURN_IF_ERROR(CheckWeightCount(value.size(), value_.size()));
    std::ranges::copy(value, value_.begin());
    if (packed_) module_->Pack(value_, packed_.get());
    version_ = version;
    return Status::Ok();
  }

 private:
  // One draw for the whole call, keyed by its first row; nullopt: the means of noisy layers.
  std::optional<NoiseKey> NoiseOf(std::span<const ExploreKey> keys) const {
    if (!noisy_ || keys.empty() || keys[0].noise_sigma <= 0) return std::nullopt;
    const std::uint64_t seed = DeriveSeed({.run_seed = seed_,
                                           .purpose = Purpose::kNoisyActing,
                                           .index = keys[0].env,
                                           .episode = keys[0].episode});
    return NoiseKey{seed, keys[0].step};
  }

  // Sets the actions and their values.
  void Choose(std::span<const ExploreKey> keys, const ConstTensor& q) {
    const std::span<float> q_taken = q_taken_.as<float>(), q_max = q_max_.as<float>();
    if (!actor_critic_)
      return ChooseActions(seed_, keys, q, {action_.as<std::int32_t>(), q_taken, q_max});
    // The value is the last column.
    const auto width = std::size_t(q.dim(1));
    for (std::size_t i = 0; i < keys.size(); ++i)
      q_taken[i] = q_max[i] = q.as<float>()[(i + 1) * width - 1];
    if (spec_.discrete()) return SampleActions(seed_, keys, q, action_.as<std::int32_t>());
    SampleActions(seed_, keys, q, spec_, action_.as<float>());
  }

  // The states after the call before become those before this one; an episode begins with zeros.
  Sequences NextStep(std::span<const ExploreKey> keys) {
    if (columns_ == 0) return {};
    // Row i is the same environment in each call.
    std::swap(state_, next_state_);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (keys[i].step == 0) std::ranges::fill(state_.Rows(std::int64_t(i), 1).as<float>(), 0.0f);
    }
    const auto rows = std::int64_t(keys.size());
    return {std::span(one_step_).first(keys.size()), state_.Rows(0, rows).as<float>(),
            next_state_.Rows(0, rows).as<float>(), columns_};
  }

  const std::unique_ptr<Module> module_;
  const ActionSpec spec_;
  const ValueHead form_;
  const bool actor_critic_;
  const bool noisy_;
  const std::int64_t columns_;  // recurrent state per row; 0: none
  const std::uint64_t seed_;
  std::vector<float> value_;
  std::unique_ptr<Packed> packed_;
  MutableBuffer workspace_;
  Tensor out_;  // [N, A K], the network's output
  Tensor q_, q_taken_, q_max_, action_;
  Tensor state_, next_state_;           // [N, columns]
  std::vector<std::int32_t> one_step_;  // [N]: the length of each row's sequence
  PolicyOutput output_;
  std::uint64_t version_ = 0;
  bool ready_ = false;
};

}  // namespace

Result<std::unique_ptr<Policy>> MakeLocalPolicy(const ActingConfig& config, const EnvSpec& env,
                                                int size) {
  TROOP_RETURN_IF_ERROR(CheckActions(config.model, env));
  if (!env.action.discrete() && !IsActorCritic(config.model.algorithm))
    return MakeContinuousPolicy(config, env, size);
  TROOP_ASSIGN_OR_RETURN(std::unique_ptr<Module> module, MakeNetwork(config.model, env));
  // Starts with the run's initial weights, as version 0.
  std::vector<float> initial(std::size_t(ParameterCount(*module)));
  InitParameters(*module, std::uint64_t(config.seed), initial);
  auto policy = std::make_unique<LocalPolicy>(std::move(module), config, env.action);
  const TensorSpec input = NetworkInput(config.model, env);
  TROOP_RETURN_IF_ERROR(policy->Plan({input.dtype, input.shape.Prepend(size)}));
  TROOP_RETURN_IF_ERROR(policy->SetWeights(0, initial));
  return std::unique_ptr<Policy>(std::move(policy));
}

}  // namespace troop
