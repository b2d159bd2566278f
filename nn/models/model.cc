// Implements the choice of a network by its settings, and the initialization of parameters.
#include "nn/models/model.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

#include "core/base/philox.h"
#include "nn/arena.h"
#include "nn/models/actor_critic_network.h"
#include "nn/models/fused_q_network.h"
#include "nn/models/policy_critic.h"
#include "nn/models/text_model.h"
#include "nn/models/trunk.h"
#include "nn/models/value_head.h"
#include "nn/parallel/tensor_parallel.h"

namespace troop {
namespace {

// Place of the head's first noisy layer, after those of all possible layers.
constexpr std::uint64_t kHeadPlace = std::uint64_t{1} << 32;

// Linear or dueling, noisy or not: `numbers` outputs per action.
std::unique_ptr<Module> MakeValueHead(const NetworkConfig& network, std::int64_t features,
                                      std::int64_t actions, std::int64_t numbers) {
  const auto sigma = float(network.noisy_sigma);
  if (network.dueling && network.noisy)
    return MakeNoisyDuelingHead(
        {features, network.dueling_units, actions, numbers, sigma, kHeadPlace});
  if (network.dueling) return MakeDuelingHead(features, network.dueling_units, actions, numbers);
  if (network.noisy)
    return MakeNoisyLinear({features, actions * numbers, Activation::kNone, sigma, kHeadPlace});
  return MakeLinear(features, actions * numbers);
}

// Builds input, layers and head. The fused small network replaces them if it supports the settings;
// parameters are equal.
Result<std::unique_ptr<Module>> MakeQNetwork(const ModelSetup& setup, const EnvSpec& env) {
  TROOP_RETURN_IF_ERROR(CheckObservation(setup, env));
  if (env.action.count <= 0)
    return InvalidArgument("environment {}: a q-network needs discrete actions", env.id);
  if (setup.critic == CriticKind::kCategorical && ActionMaskOffset(env)) {
    return InvalidArgument(
        "learner.critic = \"categorical\" has no value for an action that the mask of {} forbids; "
        "use \"quantile\" or \"scalar\"",
        env.id);
  }
  const std::vector<LayerConfig> layers = LayersOf(setup);
  LayerRange range{"network.layers", layers,        0,
                   layers.size(),    setup.library, LearnsFromUnrolls(setup.algorithm)};
  // With dueling, only the streams are noisy.
  if (setup.network.noisy && !setup.network.dueling)
    range.noisy_sigma = float(setup.network.noisy_sigma);
  TROOP_ASSIGN_OR_RETURN(TrunkInput first, MakeInputLayer(setup, env, range));
  std::vector<SequentialPart> parts;
  // Shapes flow through the layers; the head has K outputs per action.
  parts.push_back({"input", std::move(first.module)});
  Shape shape = first.shape;
  range.begin = first.layers;
  TROOP_RETURN_IF_ERROR(AppendLayers(range, &shape, &parts));
  if (setup.network.dueling_units < 0)
    return InvalidArgument("network.dueling_units = {}: needs >= 0", setup.network.dueling_units);
  const std::int64_t features = shape.elements(), numbers = GetValueHead(setup).numbers;
  parts.push_back({"head", MakeValueHead(setup.network, features, env.action.count, numbers)});
  // The general network defines names and layout in both cases.
  auto network = MakeSequential(std::move(parts));
  // The fused kernels take plain inputs only, and one output per action in a dueling head; they
  // have no noise.
  const bool plain_input = !PicturesOf(setup, env, layers[0]) && setup.network.one_hot == 0 &&
                           !setup.network.normalize_observations && env.parts.empty();
  if (!plain_input || setup.network.noisy || (setup.network.dueling && numbers > 1)) return network;
  const FusedNetworkSpec small{
      NetworkInput(setup, env), env.observation_scale,       layers,
      setup.network.dueling,    setup.network.dueling_units, env.action.count * numbers};
  if (auto fused = MakeFusedNetwork(small, network->params())) return fused;
  return network;
}

// Hides the actions that the environment does not allow, if it has a mask.
Result<std::unique_ptr<Module>> MaskActions(const ModelSetup& setup, const EnvSpec& env,
                                            std::unique_ptr<Module> network, std::int64_t numbers) {
  // Without a mask the network remains as it is, also for the fused kernels.
  const std::optional<std::int64_t> first = ActionMaskOffset(env);
  if (!first) return network;
  return MakeActionMask(std::move(network), {setup.frame_stack, env.observation.shape.elements(),
                                             *first, env.action.count, numbers});
}

// Draws all values of the whole tensor and keeps those of the slice, so that slices equal the
// whole.
template <class Draw>
void FillSlice(const ParamSpec& spec, Draw draw, std::span<float> values) {
  const auto [length, first, run] = RunsOf(spec);
  auto to = values.begin();
  while (to != values.end()) {
    for (std::int64_t i = 0; i < length; ++i) {
      const float value = draw();
      if (i >= first && i < first + run) *to++ = value;
    }
  }
}

// Fills [positions, width], never sliced: alternating sin and cos of position / 10000^(2i / width)
// (Vaswani et al. 2017, sec. 3.5), with mean square deviation².
void FillSinusoids(const ParamSpec& spec, std::span<float> values) {
  const std::int64_t width = spec.shape[1];
  for (std::int64_t place = 0; place < spec.shape[0]; ++place) {
    for (std::int64_t i = 0; i < width; ++i) {
      const double angle = double(place) / std::pow(1e4, double(i - i % 2) / double(width));
      values[std::size_t(place * width + i)] = float(
          spec.deviation * std::numbers::sqrt2 * (i % 2 == 0 ? std::sin(angle) : std::cos(angle)));
    }
  }
}

}  // namespace

// An external program, behavior cloning, an own algorithm and actor-critics may learn both kinds of
// actions.
Status CheckActions(const ModelSetup& setup, const EnvSpec& env) {
  const AlgorithmKind algorithm = setup.algorithm;
  using Kind = AlgorithmKind;
  // Only the policies of actor-critics have a distribution per component.
  if (env.action.integers && !IsActorCritic(algorithm) && algorithm != Kind::kOwn) {
    return InvalidArgument(
        "env.id: {} has actions of {} discrete components, which learner.algorithm = \"{}\" does "
        "not support; set learner.algorithm = \"ppo\" or \"vtrace\", or choose another "
        "environment",
        env.id, env.action.low.size(), EnumName(algorithm));
  }
  if (algorithm == Kind::kExternal || algorithm == Kind::kBehaviorCloning ||
      algorithm == Kind::kOwn || IsActorCritic(algorithm))
    return Status::Ok();
  if (env.action.discrete() == !HasPolicyNetwork(algorithm)) return Status::Ok();
  const char* const kinds[] = {"continuous", "discrete"};
  const bool discrete = env.action.discrete();
  return InvalidArgument(
      "env.id: {} has {} actions, learner.algorithm = \"{}\" needs {} ones; set "
      "learner.algorithm = {}, or choose another environment",
      env.id, kinds[int(discrete)], EnumName(algorithm), kinds[int(!discrete)],
      discrete ? R"("dqn", "r2d2", "pqn", "vtrace" or "ppo")"
               : R"("dpg", "td3", "sac", "vtrace" or "ppo")");
}

TensorSpec NetworkInput(const ModelSetup& setup, const EnvSpec& env) {
  if (setup.frame_stack == 1) return env.observation;
  return {env.observation.dtype, env.observation.shape.Prepend(setup.frame_stack)};
}

// Dispatches by mode and by the kind of actions.
Result<std::unique_ptr<Module>> MakeNetwork(const ModelSetup& setup, const EnvSpec& env) {
  if (IsSupervised(setup)) return MakeTextModel(setup);
  TROOP_RETURN_IF_ERROR(CheckActions(setup, env));
  if (IsActorCritic(setup.algorithm)) {
    TROOP_ASSIGN_OR_RETURN(auto network, MakeActorCriticNetwork(setup, env));
    return MaskActions(setup, env, std::move(network), 1);
  }
  if (env.action.discrete()) {
    TROOP_ASSIGN_OR_RETURN(auto network, MakeQNetwork(setup, env));
    return MaskActions(setup, env, std::move(network), GetValueHead(setup).numbers);
  }
  TROOP_ASSIGN_OR_RETURN(std::unique_ptr<PolicyCritic> both, MakePolicyCritic(setup, env));
  return std::unique_ptr<Module>(std::move(both));
}

// End of the last tensor, rounded up to a cache line.
std::int64_t ParameterCount(const Module& module) {
  std::int64_t end = 0;
  for (const ParamSpec& spec : module.params())
    end = std::max(end, spec.offset + spec.shape.elements());
  return AlignParams(end);
}

std::int64_t ElementCount(const Module& module) {
  std::int64_t count = 0;
  for (const ParamSpec& spec : module.params()) count += spec.shape.elements();
  return count;
}

// Each tensor has its own random stream, so that the values do not depend on other tensors.
void InitParameters(const Module& module, std::uint64_t seed, std::span<float> value,
                    std::uint64_t first) {
  TROOP_CHECK(std::int64_t(value.size()) == ParameterCount(module), "{} values for {} parameters",
              value.size(), ParameterCount(module));
  std::ranges::fill(value, 0.0f);
  std::uint64_t index = first;
  for (const ParamSpec& spec : module.params()) {
    Rng rng({seed, Purpose::kParameters, index++});
    const auto all = value.subspan(std::size_t(spec.offset), std::size_t(spec.shape.elements()));
    if (spec.init == ParamSpec::Init::kOnes) std::ranges::fill(all, 1.0f);
    if (spec.init == ParamSpec::Init::kConstant) std::ranges::fill(all, spec.constant);
    if (spec.init == ParamSpec::Init::kNormal)
      FillSlice(
          spec, [&] { return float(spec.deviation * rng.Normal()); }, all);
    if (spec.init == ParamSpec::Init::kSinusoids) FillSinusoids(spec, all);
    if (spec.init != ParamSpec::Init::kUniformFanIn) continue;
    // PyTorch's default for linear and conv layers.
    const float bound = 1.0f / std::sqrt(float(spec.fan_in));
    FillSlice(
        spec, [&] { return bound * (2.0f * rng.UniformF32() - 1.0f); }, all);
  }
}

}  // namespace troop
