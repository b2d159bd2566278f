// Implements the policy and the critics of continuous control as one module.
#include "nn/models/policy_critic.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "nn/arena.h"
#include "nn/models/model.h"
#include "nn/models/trunk.h"
#include "nn/models/value_head.h"

namespace troop {
namespace {

// Packed forms of all networks.
struct PolicyCriticPacked final : Packed {
  std::unique_ptr<Packed> policy;
  std::vector<std::unique_ptr<Packed>> critics;
};

// Restricts a context to the parameters from `begin` to `end`.
StepContext Restrict(const StepContext& context, std::int64_t begin, std::int64_t end) {
  const auto first = std::size_t(begin), count = std::size_t(end - begin);
  StepContext part = context;
  part.value = context.value.subspan(first, count);
  if (!context.gradient.empty()) part.gradient = context.gradient.subspan(first, count);
  return part;
}

// Memory layout of one batch, in bytes from the start of cache and workspace. A Gaussian policy's
// head is at the start of the workspace.
struct Layout {
  TensorSpec action;
  std::size_t head_bytes() const { return AlignBytes(policy.out[0].bytes()); }
  Plan policy, critic;
  std::size_t action_at() const { return AlignBytes(policy.cache_bytes); }
  std::size_t critic_at() const { return action_at() + AlignBytes(action.bytes()); }
  std::size_t inner_workspace() const {
    return std::max(policy.workspace_bytes, critic.workspace_bytes);
  }
};

// Cache: the policy's, the action, the critic's. Workspace: the action's gradient, then the
// networks' own.
Result<Layout> MakeLayout(const PolicyCritic& network, std::span<const TensorSpec> in) {
  Layout layout;
  TROOP_ASSIGN_OR_RETURN(layout.policy, network.policy().MakePlan(in));
  layout.action = layout.policy.out[0];
  if (network.gaussian() != nullptr)
    layout.action.shape = {layout.action.shape[0], layout.action.shape[1] / 2};
  const std::vector<TensorSpec> both{in[0], layout.action};
  TROOP_ASSIGN_OR_RETURN(layout.critic, network.critic().MakePlan(both));
  return layout;
}

// The layout of an input that passed MakePlan.
Layout LayoutFor(const PolicyCritic& network, const ConstTensor& in) {
  const Result<Layout> layout = MakeLayout(network, {&in.spec(), 1});
  TROOP_CHECK(layout.ok(), "{}", layout.status().ToString());
  return *layout;
}

}  // namespace

// Concatenates the parameters, with prefixes and offsets.
PolicyCritic::PolicyCritic(Parts parts) : parts_(std::move(parts)) {
  const auto append = [&](const std::string& prefix, const Module& module) {
    const std::int64_t base = ends_.empty() ? 0 : ends_.back();
    for (ParamSpec spec : module.params()) {
      spec.name = prefix + spec.name;
      spec.offset += base;
      params_.push_back(std::move(spec));
    }
    ends_.push_back(base + ParameterCount(module));
  };
  append("policy.", *parts_.policy);
  if (parts_.gaussian != nullptr) {
    temperature_ = ends_[0];
    ends_[0] = AlignParams(temperature_ + 1);
    params_.push_back({.name = "log_temperature",
                       .shape = {1},
                       .offset = temperature_,
                       .init = ParamSpec::Init::kConstant,
                       .constant = float(std::log(parts_.initial_temperature)),
                       .decays = false});
  }
  append("critic.", critic());
  if (critics() == 2) append("critic2.", critic(1));
}

// The action's gradient precedes the shared workspace of both networks.
Result<Plan> PolicyCritic::MakePlan(std::span<const TensorSpec> in) const {
  TROOP_ASSIGN_OR_RETURN(const Layout layout, MakeLayout(*this, in));
  // A Gaussian policy's head is wider than the action.
  return Plan{.out = {layout.action, layout.critic.out[0]},
              .cache_bytes = layout.critic_at() + layout.critic.cache_bytes,
              .workspace_bytes = layout.head_bytes() + layout.inner_workspace()};
}

std::unique_ptr<Packed> PolicyCritic::MakePacked(Precision precision) const {
  auto packed = std::make_unique<PolicyCriticPacked>();
  packed->policy = policy().MakePacked(precision);
  for (const auto& critic : parts_.critics)
    packed->critics.push_back(critic->MakePacked(precision));
  return packed;
}

void PolicyCritic::Pack(std::span<const float> value, Packed* packed) const {
  auto& mine = static_cast<PolicyCriticPacked&>(*packed);
  const StepContext all{.value = value};
  policy().Pack(Restrict(all, 0, ends_[0]).value, mine.policy.get());
  for (std::size_t i = 0; i < critics(); ++i)
    critic(i).Pack(Restrict(all, ends_[i], ends_[i + 1]).value, mine.critics[i].get());
}

// Restricts a context to the policy's parameters.
StepContext PolicyCritic::PolicyContext(const StepContext& context) const {
  StepContext part = Restrict(context, 0, ends_[0]);
  if (context.packed != nullptr)
    part.packed = static_cast<const PolicyCriticPacked*>(context.packed)->policy.get();
  return part;
}

StepContext PolicyCritic::CriticContext(const StepContext& context, std::size_t i) const {
  StepContext part = Restrict(context, ends_[i], ends_[i + 1]);
  if (context.packed != nullptr)
    part.packed = static_cast<const PolicyCriticPacked*>(context.packed)->critics[i].get();
  return part;
}

// The action is copied to the cache: Backward needs it as the critic's input.
void PolicyCritic::Forward(const StepContext& context, std::span<const ConstTensor> in,
                           std::span<const Tensor> out, Cache cache) const {
  const Layout layout = LayoutFor(*this, in[0]);
  const bool keep = !cache.empty();
  const Cache policy_cache = keep ? cache.first(layout.policy.cache_bytes) : cache;
  if (gaussian() == nullptr) {
    policy().Forward(PolicyContext(context), in, out.first(1), policy_cache);
  } else {
    StepContext inner = PolicyContext(context);
    inner.workspace = context.workspace.subspan(layout.head_bytes());
    const TensorSpec& spec = layout.policy.out[0];
    const Tensor head = Tensor::View(nullptr, context.workspace.first(spec.bytes()), spec);
    policy().Forward(inner, in, {&head, 1}, policy_cache);
    gaussian()->Mode(head.as<float>(), out[0].as<float>());
  }
  if (keep) std::ranges::copy(out[0].bytes(), cache.subspan(layout.action_at()).begin());
  // The critic evaluates the policy's action.
  const std::vector<ConstTensor> judged{in[0], out[0]};
  critic().Forward(CriticContext(context), judged, out.subspan(1),
                   keep ? cache.subspan(layout.critic_at()) : cache);
}

void PolicyCritic::Backward(const StepContext& context, std::span<const ConstTensor> in,
                            std::span<const ConstTensor> dout, Cache cache,
                            std::span<const Tensor> din) const {
  TROOP_CHECK(din.empty() || din[0].empty(), "observations have no gradient");
  TROOP_CHECK(gaussian() == nullptr, "a Gaussian policy is trained through policy()");
  if (context.gradient.empty()) return;
  const Layout layout = LayoutFor(*this, in[0]);
  const std::size_t action_bytes = AlignBytes(layout.action.bytes());
  const auto at = [&](std::span<std::byte> bytes) {
    return Tensor::View(nullptr, bytes.first(layout.action.bytes()), layout.action);
  };
  const Tensor action = at(cache.subspan(layout.action_at())), daction = at(context.workspace);
  StepContext inner = context;
  inner.workspace = context.workspace.subspan(action_bytes);

  // 1. The action's gradient from the critic, whose own parameters get none.
  StepContext judge = CriticContext(inner);
  judge.gradient = {};
  const std::vector<ConstTensor> judged{in[0], action};
  const std::vector<Tensor> wanted{Tensor(), daction};
  critic().Backward(judge, judged, dout.last(1), cache.subspan(layout.critic_at()), wanted);
  // 2. Clip it elementwise.
  if (parts_.action_gradient_clip > 0) {
    const float limit = float(parts_.action_gradient_clip / double(in[0].dim(0)));
    for (float& d : daction.as<float>()) d = std::clamp(d, -limit, limit);  // NaN passes
  }
  // 3. The policy's parameters.
  const ConstTensor dpolicy(daction);
  policy().Backward(PolicyContext(inner), in, {&dpolicy, 1}, cache.first(layout.policy.cache_bytes),
                    {});
}

// The networks normalize observations separately.
void PolicyCritic::UpdateStatistics(ConstTensor in, std::span<float> value) const {
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < ends_.size(); begin = ends_[i], ++i) {
    const Module& network = i == 0 ? policy() : critic(i - 1);
    network.UpdateStatistics(in, value.subspan(std::size_t(begin), std::size_t(ends_[i] - begin)));
  }
}

namespace {

// A critic: input and conv2d layers, then the rest with the action.
Result<std::unique_ptr<Module>> MakeCriticOf(const ModelSetup& setup, const EnvSpec& env) {
  const bool own = !setup.network.critic_layers.empty();
  const std::vector<LayerConfig> layers = own ? setup.network.critic_layers : LayersOf(setup);
  const char* const key = own ? "network.critic_layers" : "network.layers";
  const auto takes_action = [](const LayerConfig& layer) {
    return !IsImageLayer(layer.type) && layer.type != LayerType::kLayerNorm;
  };
  const auto joint = std::size_t(std::ranges::find_if(layers, takes_action) - layers.begin());
  TROOP_ASSIGN_OR_RETURN(
      TrunkInput seen, MakeInputLayer(setup, env, {key, layers, 0, layers.size(), setup.library}));
  // Layers before `joint` see only the observation.
  std::vector<SequentialPart> front, rest;
  front.push_back({"input", std::move(seen.module)});
  TROOP_RETURN_IF_ERROR(
      AppendLayers({key, layers, seen.layers, joint, setup.library}, &seen.shape, &front));
  CriticParts critic{.features = seen.shape.elements(),
                     .actions = std::int64_t(env.action.low.size())};
  if (setup.algorithm == AlgorithmKind::kSac) {
    critic.low = env.action.low;
    critic.high = env.action.high;
  }
  Shape shape{critic.features + critic.actions};
  TROOP_RETURN_IF_ERROR(
      AppendLayers({key, layers, joint, layers.size(), setup.library}, &shape, &rest));
  rest.push_back({"head", MakeLinear(shape.elements(), GetValueHead(setup).numbers)});
  critic.front = MakeSequential(std::move(front));
  critic.rest = MakeSequential(std::move(rest));
  return MakeCritic(std::move(critic));
}

}  // namespace

// Policy: input, layers, head, bounds; a Gaussian policy has no bounds layer.
Result<std::unique_ptr<PolicyCritic>> MakePolicyCritic(const ModelSetup& setup,
                                                       const EnvSpec& env) {
  TROOP_RETURN_IF_ERROR(CheckObservation(setup, env));
  PolicyCritic::Parts parts{.action_gradient_clip = setup.action_gradient_clip,
                            .initial_temperature = setup.initial_temperature};
  const std::vector<LayerConfig> layers = LayersOf(setup);
  LayerRange range{"network.layers", layers, 0, layers.size(), setup.library};
  TROOP_ASSIGN_OR_RETURN(TrunkInput first, MakeInputLayer(setup, env, range));
  std::vector<SequentialPart> policy;
  policy.push_back({"input", std::move(first.module)});
  range.begin = first.layers;
  TROOP_RETURN_IF_ERROR(AppendLayers(range, &first.shape, &policy));
  const std::int64_t features = first.shape.elements();
  const auto actions = std::int64_t(env.action.low.size());
  if (setup.algorithm == AlgorithmKind::kSac) {
    policy.push_back({"head", MakeGaussianHead(features, actions)});
    parts.gaussian = std::make_unique<SquashedGaussian>(env.action.low, env.action.high);
  } else {
    policy.push_back({"head", MakeLinear(features, actions)});
    policy.push_back({"bounds", MakeActionBounds(env.action.low, env.action.high)});
  }
  parts.policy = MakeSequential(std::move(policy));
  const std::size_t critics = HasTwinCritics(setup.algorithm) ? 2 : 1;
  while (parts.critics.size() < critics) {
    TROOP_ASSIGN_OR_RETURN(parts.critics.emplace_back(), MakeCriticOf(setup, env));
  }
  return std::make_unique<PolicyCritic>(std::move(parts));
}

}  // namespace troop
