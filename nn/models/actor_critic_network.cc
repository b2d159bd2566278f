// Implements the networks of actor-critics: policy and value in one network or two, and standard
// deviations that do not depend on the observation.
#include "nn/models/actor_critic_network.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "nn/arena.h"
#include "nn/models/model.h"
#include "nn/models/trunk.h"

namespace troop {
namespace {

struct ActorCriticPacked final : Packed {
  std::unique_ptr<Packed> policy, value;
};

// Number of a policy's outputs before the value, without standard deviations.
std::int64_t MeansOf(const ActionSpec& action) {
  if (action.discrete()) return action.count;
  return action.integers ? action.choices() : std::int64_t(action.low.size());
}
// True for policies of logits.
bool IsCategorical(const ActionSpec& action) { return action.discrete() || action.integers; }

// Concatenates the outputs of one or two networks and the logarithms of the standard deviations.
// The networks write into the workspace, from which the rows are put together.
class ActorCriticNetwork final : public Module {
 public:
  struct Parts {
    std::unique_ptr<Module> policy;  // → [B, means]; without `value`: [B, means + 1]
    std::unique_ptr<Module> value;   // → [B, 1], or nullptr
    std::int64_t means = 0;
    std::optional<double> initial_log_std;  // nullopt: there are no standard deviations
  };
  // Order of the parameters: policy, log_std, value.
  explicit ActorCriticNetwork(Parts parts) : parts_(std::move(parts)) {
    const auto append = [&](const char* prefix, const Module& module) {
      for (ParamSpec spec : module.params()) {
        spec.name = prefix + spec.name;
        spec.offset += size_;
        params_.push_back(std::move(spec));
      }
      size_ += ParameterCount(module);
    };
    append(parts_.value == nullptr ? "" : "policy.", *parts_.policy);
    log_std_at_ = size_;
    if (parts_.initial_log_std) {
      params_.push_back({.name = "log_std",
                         .shape = {parts_.means},
                         .offset = size_,
                         .init = ParamSpec::Init::kConstant,
                         .constant = float(*parts_.initial_log_std),
                         .decays = false});
      size_ = AlignParams(size_ + parts_.means);
    }
    value_at_ = size_;
    if (parts_.value != nullptr) append("value.", *parts_.value);
  }

  std::span<const ParamSpec> params() const override { return params_; }

  Result<Plan> MakePlan(std::span<const TensorSpec> in) const override {
    TROOP_ASSIGN_OR_RETURN(const Layout layout, MakeLayout(in));
    return Plan{.out = {{DType::kF32, {in[0].shape[0], columns()}}},
                .cache_bytes = layout.value_cache_at() + layout.value.cache_bytes,
                .workspace_bytes = layout.inner_workspace_at() + layout.inner_workspace()};
  }

  // The concatenation itself has no packed form, and is always in f32.
  std::unique_ptr<Packed> MakePacked(Precision precision) const override {
    auto packed = std::make_unique<ActorCriticPacked>();
    packed->policy = parts_.policy->MakePacked(precision);
    if (parts_.value != nullptr) packed->value = parts_.value->MakePacked(precision);
    return packed;
  }

  void Pack(std::span<const float> value, Packed* packed) const override {
    const auto& mine = static_cast<ActorCriticPacked&>(*packed);
    parts_.policy->Pack(value.first(std::size_t(log_std_at_)), mine.policy.get());
    if (parts_.value != nullptr)
      parts_.value->Pack(value.subspan(std::size_t(value_at_)), mine.value.get());
  }

  // Every row gets the same deviations, which do not depend on the observation.
  void Forward(const StepContext& context, std::span<const ConstTensor> in,
               std::span<const Tensor> out, Cache cache) const override {
    const Layout layout = LayoutFor(in[0]);
    const Buffers at(layout, context, cache);
    parts_.policy->Forward(PolicyContext(context, at.inner), in, {&at.policy, 1}, at.policy_cache);
    if (parts_.value != nullptr)
      parts_.value->Forward(ValueContext(context, at.inner), in, {&at.value, 1}, at.value_cache);
    const std::span<const float> log_std =
        context.value.subspan(std::size_t(log_std_at_), deviations());
    Rows(at, out[0].as<float>(), [&](std::span<float> means, float* value, std::span<float> row) {
      std::ranges::copy(means, row.begin());
      std::ranges::copy(log_std, row.begin() + std::ptrdiff_t(means.size()));
      row.back() = *value;
    });
  }

  // The networks run last to first, so the watch of the first one sees that the rest is final.
  void Backward(const StepContext& context, std::span<const ConstTensor> in,
                std::span<const ConstTensor> dout, Cache cache,
                std::span<const Tensor> din) const override {
    TROOP_CHECK(din.empty() || din[0].empty(), "observations have no gradient");
    if (context.gradient.empty()) return;
    const Layout layout = LayoutFor(in[0]);
    const Buffers at(layout, context, cache);
    const std::span<float> log_std =
        context.gradient.subspan(std::size_t(log_std_at_), deviations());
    // Its gradient is the sum over the rows.
    if (!context.accumulate) std::ranges::fill(log_std, 0.0F);
    Rows(at, dout[0].as<float>(),
         [&](std::span<float> means, float* value, std::span<const float> row) {
           std::ranges::copy(row.first(means.size()), means.begin());
           *value = row.back();
           for (std::size_t k = 0; k < log_std.size(); ++k) log_std[k] += row[means.size() + k];
         });
    const Tensor none;
    const ConstTensor dpolicy(at.policy), dvalue(at.value);
    if (parts_.value != nullptr)
      parts_.value->Backward(ValueContext(context, at.inner), in, {&dvalue, 1}, at.value_cache,
                             {&none, 1});
    parts_.policy->Backward(PolicyContext(context, at.inner), in, {&dpolicy, 1}, at.policy_cache,
                            {&none, 1});
  }

  // The networks normalize observations separately.
  void UpdateStatistics(ConstTensor in, std::span<float> value) const override {
    parts_.policy->UpdateStatistics(in, value.first(std::size_t(log_std_at_)));
    if (parts_.value != nullptr)
      parts_.value->UpdateStatistics(in, value.subspan(std::size_t(value_at_)));
  }

 private:
  // Memory of one batch. Workspace: the outputs of the networks, then what the networks need.
  struct Layout {
    Plan policy, value;
    std::size_t value_at() const { return AlignBytes(policy.out[0].bytes()); }
    std::size_t inner_workspace_at() const {
      return value_at() + (value.out.empty() ? 0 : AlignBytes(value.out[0].bytes()));
    }
    std::size_t inner_workspace() const {
      return std::max(policy.workspace_bytes, value.workspace_bytes);
    }
    std::size_t value_cache_at() const { return AlignBytes(policy.cache_bytes); }
  };
  struct Buffers {
    Buffers(const Layout& layout, const StepContext& context, Cache cache)
        : policy(View(context.workspace, layout.policy.out[0])),
          value(layout.value.out.empty()
                    ? Tensor()
                    : View(context.workspace.subspan(layout.value_at()), layout.value.out[0])),
          inner(context.workspace.subspan(layout.inner_workspace_at())) {
      if (cache.empty()) return;
      policy_cache = cache.first(layout.policy.cache_bytes);
      value_cache = cache.subspan(layout.value_cache_at());
    }
    static Tensor View(std::span<std::byte> bytes, const TensorSpec& spec) {
      return Tensor::View(nullptr, bytes.first(spec.bytes()), spec);
    }
    Tensor policy, value;  // outputs, or their gradients
    std::span<std::byte> inner;
    Cache policy_cache, value_cache;
  };

  std::size_t deviations() const { return parts_.initial_log_std ? std::size_t(parts_.means) : 0; }
  std::int64_t columns() const { return parts_.means + std::int64_t(deviations()) + 1; }

  Result<Layout> MakeLayout(std::span<const TensorSpec> in) const {
    Layout layout;
    TROOP_ASSIGN_OR_RETURN(layout.policy, parts_.policy->MakePlan(in));
    if (parts_.value != nullptr) {
      TROOP_ASSIGN_OR_RETURN(layout.value, parts_.value->MakePlan(in));
    }
    return layout;
  }
  // The layout of an input that passed MakePlan.
  Layout LayoutFor(const ConstTensor& in) const {
    const Result<Layout> layout = MakeLayout({&in.spec(), 1});
    TROOP_CHECK(layout.ok(), "{}", layout.status().ToString());
    return *layout;
  }

  // Without a network of the value, the value follows the means in the policy's output. Calls
  // f(means, value, row) for the rows of the networks' outputs and of `all`.
  template <class T, class F>
  void Rows(const Buffers& at, std::span<T> all, F f) const {
    const auto means = std::size_t(parts_.means), width = std::size_t(columns());
    const std::span<float> policy = at.policy.as<float>();
    const std::size_t step = parts_.value == nullptr ? means + 1 : means;
    for (std::size_t i = 0; i < all.size() / width; ++i) {
      const std::span<float> row = policy.subspan(i * step, step);
      float* const value = parts_.value == nullptr ? &row[means] : &at.value.as<float>()[i];
      f(row.first(means), value, all.subspan(i * width, width));
    }
  }

  // Restricts a context to a part of the parameters, with the workspace of the networks.
  static StepContext Restrict(const StepContext& context, std::size_t begin, std::size_t count,
                              std::span<std::byte> workspace) {
    StepContext part = context;
    part.value = context.value.subspan(begin, count);
    if (!context.gradient.empty()) part.gradient = context.gradient.subspan(begin, count);
    part.workspace = workspace;
    return part;
  }
  // Recurrent states and the watch of the gradient belong to the policy.
  StepContext PolicyContext(const StepContext& context, std::span<std::byte> workspace) const {
    StepContext part = Restrict(context, 0, std::size_t(log_std_at_), workspace);
    if (context.packed != nullptr)
      part.packed = static_cast<const ActorCriticPacked*>(context.packed)->policy.get();
    return part;
  }
  StepContext ValueContext(const StepContext& context, std::span<std::byte> workspace) const {
    StepContext part =
        Restrict(context, std::size_t(value_at_), std::size_t(size_ - value_at_), workspace);
    if (context.packed != nullptr)
      part.packed = static_cast<const ActorCriticPacked*>(context.packed)->value.get();
    part.watch = nullptr;
    part.sequences = nullptr;  // it has no recurrent layers
    return part;
  }

  const Parts parts_;
  std::vector<ParamSpec> params_;
  std::int64_t size_ = 0, log_std_at_ = 0, value_at_ = 0;
};

// One network: input, layers and head. `range` says whether lstm and gru layers are supported.
using MakeHead = std::unique_ptr<Module> (*)(std::int64_t features, std::int64_t outputs);
Result<std::unique_ptr<Module>> MakeTower(const ModelSetup& setup, const EnvSpec& env,
                                          LayerRange range, std::int64_t outputs, MakeHead head) {
  TROOP_ASSIGN_OR_RETURN(TrunkInput first, MakeInputLayer(setup, env, range));
  std::vector<SequentialPart> parts;
  parts.push_back({"input", std::move(first.module)});
  range.begin = first.layers;
  TROOP_RETURN_IF_ERROR(AppendLayers(range, &first.shape, &parts));
  parts.push_back({"head", head(first.shape.elements(), outputs)});
  return MakeSequential(std::move(parts));
}

// MakeLinear has one more argument.
std::unique_ptr<Module> LinearHead(std::int64_t features, std::int64_t outputs) {
  return MakeLinear(features, outputs);
}

}  // namespace

std::int64_t ActorCriticColumns(const ActionSpec& action) {
  return (IsCategorical(action) ? 1 : 2) * MeansOf(action) + 1;
}

// With discrete actions and a shared network there is nothing to concatenate.
Result<std::unique_ptr<Module>> MakeActorCriticNetwork(const ModelSetup& setup,
                                                       const EnvSpec& env) {
  TROOP_RETURN_IF_ERROR(CheckObservation(setup, env));
  if (IsCategorical(env.action) &&
      setup.network.initial_log_std != NetworkConfig().initial_log_std) {
    return InvalidArgument(
        "network.initial_log_std: {} has discrete actions, whose policy has no standard "
        "deviation; omit it",
        env.id);
  }
  const std::vector<LayerConfig> layers = LayersOf(setup);
  const std::vector<LayerConfig>& value_layers = setup.network.critic_layers;
  const bool shared = value_layers.empty();
  ActorCriticNetwork::Parts parts{.means = MeansOf(env.action)};
  TROOP_ASSIGN_OR_RETURN(
      parts.policy,
      MakeTower(setup, env, {"network.layers", layers, 0, layers.size(), setup.library, true},
                parts.means, shared ? MakeActorCriticHead : LinearHead));
  if (shared && IsCategorical(env.action)) return std::move(parts.policy);
  if (!shared) {
    TROOP_ASSIGN_OR_RETURN(parts.value, MakeTower(setup, env,
                                                  {"network.critic_layers", value_layers, 0,
                                                   value_layers.size(), setup.library},
                                                  1, LinearHead));
  }
  if (!IsCategorical(env.action)) parts.initial_log_std = setup.network.initial_log_std;
  return std::unique_ptr<Module>(new ActorCriticNetwork(std::move(parts)));
}

}  // namespace troop
