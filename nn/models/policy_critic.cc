// Implements the policy and the critic of continuous control as one module.
#include "nn/models/policy_critic.h"

#include <algorithm>
#include <cstring>

#include "nn/arena.h"
#include "nn/models/model.h"
#include "nn/models/trunk.h"
#include "nn/models/value_head.h"

namespace troop {
namespace {

// Packed forms of both networks.
struct BothPacked final : Packed {
  std::unique_ptr<Packed> policy, critic;
};

// Memory layout of one batch, in bytes from the start of cache and workspace.
struct Layout {
  TensorSpec action;
  Plan policy, critic;
  std::size_t action_at() const { return AlignBytes(policy.cache_bytes); }
  std::size_t critic_at() const { return action_at() + AlignBytes(action.bytes()); }
  std::size_t inner_workspace() const {
    return std::max(policy.workspace_bytes, critic.workspace_bytes);
  }
};

// Cache: the policy's, the action, the critic's. Workspace: the action's gradient, then the
// networks' own.
Result<Layout> MakeLayout(const Module& policy, const Module& critic,
                          std::span<const TensorSpec> in) {
  Layout layout;
  TROOP_ASSIGN_OR_RETURN(layout.policy, policy.MakePlan(in));
  layout.action = layout.policy.out[0];
  const std::vector<TensorSpec> both{in[0], layout.action};
  TROOP_ASSIGN_OR_RETURN(layout.critic, critic.MakePlan(both));
  return layout;
}

// The layout of an input that passed MakePlan.
Layout LayoutFor(const Module& policy, const Module& critic, const ConstTensor& in) {
  const Result<Layout> layout = MakeLayout(policy, critic, {&in.spec(), 1});
  TROOP_CHECK(layout.ok(), "{}", layout.status().ToString());
  return *layout;
}

}  // namespace

// Concatenates the parameters, with prefixes and offsets.
PolicyCritic::PolicyCritic(Parts parts) : parts_(std::move(parts)) {
  critic_offset_ = ParameterCount(*parts_.policy);
  for (const auto& [name, module, base] :
       {std::tuple{"policy.", parts_.policy.get(), std::int64_t{0}},
        std::tuple{"critic.", parts_.critic.get(), critic_offset_}}) {
    for (ParamSpec spec : module->params()) {
      spec.name = name + spec.name;
      spec.offset += base;
      params_.push_back(std::move(spec));
    }
  }
}

// The action's gradient precedes the shared workspace of both networks.
Result<Plan> PolicyCritic::MakePlan(std::span<const TensorSpec> in) const {
  TROOP_ASSIGN_OR_RETURN(const Layout layout, MakeLayout(*parts_.policy, *parts_.critic, in));
  return Plan{.out = {layout.action, layout.critic.out[0]},
              .cache_bytes = layout.critic_at() + layout.critic.cache_bytes,
              .workspace_bytes = AlignBytes(layout.action.bytes()) + layout.inner_workspace()};
}

std::unique_ptr<Packed> PolicyCritic::MakePacked(Precision precision) const {
  auto packed = std::make_unique<BothPacked>();
  packed->policy = parts_.policy->MakePacked(precision);
  packed->critic = parts_.critic->MakePacked(precision);
  return packed;
}

void PolicyCritic::Pack(std::span<const float> value, Packed* packed) const {
  auto& mine = static_cast<BothPacked&>(*packed);
  const auto offset = std::size_t(critic_offset_);
  parts_.policy->Pack(value.first(offset), mine.policy.get());
  parts_.critic->Pack(value.subspan(offset), mine.critic.get());
}

// Restricts a context to the policy's parameters.
StepContext PolicyCritic::PolicyContext(const StepContext& context) const {
  const auto offset = std::size_t(critic_offset_);
  StepContext policy = context;
  policy.value = context.value.first(offset);
  if (context.packed != nullptr) {
    policy.packed = static_cast<const BothPacked*>(context.packed)->policy.get();
  }
  if (!context.gradient.empty()) policy.gradient = context.gradient.first(offset);
  return policy;
}

StepContext PolicyCritic::CriticContext(const StepContext& context) const {
  const auto offset = std::size_t(critic_offset_);
  StepContext critic = context;
  critic.value = context.value.subspan(offset);
  if (context.packed != nullptr) {
    critic.packed = static_cast<const BothPacked*>(context.packed)->critic.get();
  }
  if (!context.gradient.empty()) critic.gradient = context.gradient.subspan(offset);
  return critic;
}

// The action is copied to the cache: Backward needs it as the critic's input.
void PolicyCritic::Forward(const StepContext& context, std::span<const ConstTensor> in,
                           std::span<const Tensor> out, Cache cache) const {
  const Layout layout = LayoutFor(*parts_.policy, *parts_.critic, in[0]);
  const bool keep = !cache.empty();
  parts_.policy->Forward(PolicyContext(context), in, out.first(1),
                         keep ? cache.first(layout.policy.cache_bytes) : cache);
  if (keep) std::ranges::copy(out[0].bytes(), cache.subspan(layout.action_at()).begin());
  // The critic evaluates the policy's action.
  const std::vector<ConstTensor> judged{in[0], out[0]};
  parts_.critic->Forward(CriticContext(context), judged, out.subspan(1),
                         keep ? cache.subspan(layout.critic_at()) : cache);
}

void PolicyCritic::Backward(const StepContext& context, std::span<const ConstTensor> in,
                            std::span<const ConstTensor> dout, Cache cache,
                            std::span<const Tensor> din) const {
  TROOP_CHECK(din.empty() || din[0].empty(), "observations have no gradient");
  if (context.gradient.empty()) return;
  const Layout layout = LayoutFor(*parts_.policy, *parts_.critic, in[0]);
  const std::size_t action_bytes = AlignBytes(layout.action.bytes());
  const auto at = [&](std::span<std::byte> bytes) {
    return Tensor::View(nullptr, bytes.first(layout.action.bytes()), layout.action);
  };
  const Tensor action = at(cache.subspan(layout.action_at())), daction = at(context.workspace);
  StepContext inner = context;
  inner.workspace = context.workspace.subspan(action_bytes);

  // 1. The action's gradient from the critic, whose own parameters get none.
  StepContext critic = CriticContext(inner);
  critic.gradient = {};
  const std::vector<ConstTensor> judged{in[0], action};
  const std::vector<Tensor> wanted{Tensor(), daction};
  parts_.critic->Backward(critic, judged, dout.last(1), cache.subspan(layout.critic_at()), wanted);
  // 2. Clip it elementwise.
  if (parts_.action_gradient_clip > 0) {
    const float limit = float(parts_.action_gradient_clip / double(in[0].dim(0)));
    for (float& d : daction.as<float>()) d = std::clamp(d, -limit, limit);  // NaN passes
  }
  // 3. The policy's parameters.
  const ConstTensor dpolicy(daction);
  parts_.policy->Backward(PolicyContext(inner), in, {&dpolicy, 1},
                          cache.first(layout.policy.cache_bytes), {});
}

// Both networks normalize observations separately.
void PolicyCritic::UpdateStatistics(ConstTensor in, std::span<float> value) const {
  const auto offset = std::size_t(critic_offset_);
  parts_.policy->UpdateStatistics(in, value.first(offset));
  parts_.critic->UpdateStatistics(std::move(in), value.subspan(offset));
}

// Policy: input, layers, head, bounds. Critic: input and conv2d layers, then the rest with the
// action.
Result<std::unique_ptr<PolicyCritic>> MakePolicyCritic(const ModelSetup& setup,
                                                       const EnvSpec& env) {
  // 1. The policy.
  TROOP_RETURN_IF_ERROR(CheckObservation(setup, env));
  const auto actions = std::int64_t(env.action.low.size());
  PolicyCritic::Parts both{.action_gradient_clip = setup.action_gradient_clip};

  const std::vector<LayerConfig> layers = LayersOf(setup);
  TROOP_ASSIGN_OR_RETURN(TrunkInput first, MakeInputLayer(setup, env, layers[0]));
  std::vector<SequentialPart> policy;
  policy.push_back({"input", std::move(first.module)});
  TROOP_RETURN_IF_ERROR(
      AppendLayers({"network.layers", layers, 0, layers.size()}, &first.shape, &policy));
  policy.push_back({"head", MakeLinear(first.shape.elements(), actions)});
  policy.push_back({"bounds", MakeActionBounds(env.action.low, env.action.high)});
  both.policy = MakeSequential(std::move(policy));

  // 2. The critic: layers before `joint` see only the observation.
  const bool own = !setup.network.critic_layers.empty();
  const std::vector<LayerConfig>& judging = own ? setup.network.critic_layers : layers;
  const char* const key = own ? "network.critic_layers" : "network.layers";
  const auto is_linear = [](const LayerConfig& layer) { return layer.type != LayerType::kConv2d; };
  const auto joint = std::size_t(std::ranges::find_if(judging, is_linear) - judging.begin());
  TROOP_ASSIGN_OR_RETURN(TrunkInput seen, MakeInputLayer(setup, env, judging[0]));
  std::vector<SequentialPart> front, rest;
  front.push_back({"input", std::move(seen.module)});
  TROOP_RETURN_IF_ERROR(AppendLayers({key, judging, 0, joint}, &seen.shape, &front));
  CriticParts critic{.features = seen.shape.elements(), .actions = actions};
  Shape shape{critic.features + actions};
  TROOP_RETURN_IF_ERROR(AppendLayers({key, judging, joint, judging.size()}, &shape, &rest));
  rest.push_back({"head", MakeLinear(shape.elements(), GetValueHead(setup).numbers)});
  critic.front = MakeSequential(std::move(front));
  critic.rest = MakeSequential(std::move(rest));
  both.critic = MakeCritic(std::move(critic));
  return std::make_unique<PolicyCritic>(std::move(both));
}

}  // namespace troop
