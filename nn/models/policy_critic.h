#pragma once

#include <memory>
#include <vector>

#include "core/base/status.h"
#include "core/tensor/spec.h"
#include "nn/models/model_setup.h"
#include "nn/models/squashed_gaussian.h"
#include "nn/module.h"

namespace troop {

// The networks of continuous control: a policy μ(s) and one or two critics Q(s, a) in one flat
// parameter buffer: "policy.*", and from critic_offset() "critic.*" and "critic2.*" (the twin
// critics of Fujimoto et al. 2018), which have the same layers and other initial weights.
//
// The policy of Soft Actor-Critic is a squashed Gaussian, whose mode is μ(s), and its critics take
// the action normalized to [-1, 1]. The logarithm of its temperature is one more parameter, between
// the policy's and the critics', so that it is saved and synchronized like them.
//
// As a module it is Q(s, μ(s)) of the first critic: observation [B, ...NetworkInput] → μ(s) [B, A]
// f32 within the action bounds, and the critic's outputs [B, outputs] f32. Its backward pass is the
// deterministic policy gradient (Silver et al. 2014; Horgan et al. 2018, appendix D): from dout =
// {nothing, dq} the gradient of the policy's parameters, with the critics' fixed (their part of the
// gradient is not written) and the action gradient clipped elementwise to ±limit / B, which is
// ±limit if dq is that of a mean over the batch. There is no din. The critics themselves are
// trained through critic(). A Gaussian policy has no backward pass here: it is trained through
// policy() and gaussian().
class PolicyCritic final : public Module {
 public:
  struct Parts {
    std::unique_ptr<Module> policy;                // [B, ...] → [B, A] f32
    std::vector<std::unique_ptr<Module>> critics;  // {[B, ...], [B, A] f32} → [B, outputs] f32
    double action_gradient_clip = 1;               // 0: no clipping
    std::unique_ptr<SquashedGaussian> gaussian;    // nullptr: a deterministic policy
    double initial_temperature = 1;                // with gaussian
  };
  explicit PolicyCritic(Parts parts);

  std::span<const ParamSpec> params() const override { return params_; }
  Result<Plan> MakePlan(std::span<const TensorSpec> in) const override;
  std::unique_ptr<Packed> MakePacked(Precision precision) const override;
  void Pack(std::span<const float> value, Packed* packed) const override;
  void Forward(const StepContext& context, std::span<const ConstTensor> in,
               std::span<const Tensor> out, Cache cache) const override;
  void Backward(const StepContext& context, std::span<const ConstTensor> in,
                std::span<const ConstTensor> dout, Cache cache,
                std::span<const Tensor> din) const override;
  void UpdateStatistics(ConstTensor in, std::span<float> value) const override;

  // {observation, action [B, A] f32} → [B, outputs] f32. The only input gradient is the action's:
  // din[1]. Its plan needs no more workspace and cache than this module's.
  const Module& critic(std::size_t i = 0) const { return *parts_.critics[i]; }
  std::size_t critics() const { return parts_.critics.size(); }
  // [B, ...NetworkInput] → [B, A] f32; with gaussian() its head, [B, 2A]. The same holds for its
  // plan.
  const Module& policy() const { return *parts_.policy; }
  // The form of a stochastic policy; nullptr: the policy is deterministic.
  const SquashedGaussian* gaussian() const { return parts_.gaussian.get(); }
  // Where the critics' parameters begin. The policy's are before, and the temperature's.
  std::int64_t critic_offset() const { return ends_[0]; }
  // Index of log α in the parameters. REQUIRES: gaussian().
  std::int64_t temperature_offset() const { return temperature_; }
  // Restrict a context of this module to the critic's, or the policy's, part of value, gradient and
  // packed.
  StepContext CriticContext(const StepContext& context, std::size_t i = 0) const;
  StepContext PolicyContext(const StepContext& context) const;

 private:
  const Parts parts_;
  std::vector<ParamSpec> params_;
  std::vector<std::int64_t> ends_;  // of the parameters of the policy, then of each critic
  std::int64_t temperature_ = -1;   // offset of log α
};

// Creates both networks: network.layers form the policy, network.critic_layers (default: the same)
// the critic; learner.algorithm = "td3" and "sac" have two. A critic's conv2d layers see the
// observation; the action joins before the first linear layer. Errors: kInvalidArgument. REQUIRES:
// continuous actions.
Result<std::unique_ptr<PolicyCritic>> MakePolicyCritic(const ModelSetup& setup, const EnvSpec& env);

// Parts of a critic {[B, ...NetworkInput], [B, A] f32} → [B, outputs] f32: `front` takes the
// observation; `rest` takes the flattened output of `front` followed by the action, [B, features +
// actions].
struct CriticParts {
  std::unique_ptr<Module> front, rest;
  std::int64_t features = 0, actions = 0;
  // Bounds by which actions are normalized to [-1, 1] first; empty: they are taken as they are.
  std::vector<float> low, high;
};
std::unique_ptr<Module> MakeCritic(CriticParts parts);

}  // namespace troop
