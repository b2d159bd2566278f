#pragma once

#include <cstdint>

#include "kernels/loss/policy_distribution.h"

namespace troop {

// Inputs of an actor-critic loss over unrolls: B unrolls, S steps, the largest length of an unroll.
// The unrolls' frames are consecutive rows of `out`: `length` + 1 of each, the last one only for
// its value. F: their sum. K: columns of the policy's distribution.
struct PolicyGradientInput {
  std::int64_t batch = 0, steps = 0;
  PolicyDistribution* policy = nullptr;  // π, with the actions [B, S] of the batch
  const float* out = nullptr;            // [F, K + 1]: of π, then the value V
  const float* log_mu = nullptr;         // [B, S]: log μ(a|s) of the policy that acted
  const float* mu_value = nullptr;       // [B, S]: V(s) of its network; read with value_clip only
  const double* target = nullptr;        // [B, S]: v_t, and with it
  const double* advantage = nullptr;     // [B, S]: A_t; nullptr: V-trace's of the current values
  const float* reward = nullptr;         // [B, S], not clipped yet
  const float* discount = nullptr;       // [B, S], without γ: 0 where the step terminated, else 1
  const std::int32_t* length = nullptr;  // [B]: 1 to S
  const float* weight = nullptr;         // [B] importance weights
  double gamma = 0.99;
  double reward_clip = 0;         // rewards are clipped to ± this value; 0: no clipping
  double lambda = 1;              // of V-trace's traces
  double rho_bar = 1, c_bar = 1;  // V-trace's bounds
  double value_cost = 0.5, entropy_cost = 0.01;
  double ratio_clip = 0;  // PPO's ε; 0: the plain policy gradient of IMPALA
  bool normalize_advantages = false;
  double value_clip = 0;  // bound of |V - mu_value| in the value's loss; 0: none
  double target_kl = 0;   // bound of KL(μ, π), see below; 0: none
};

// Results: gradient and priorities.
struct PolicyGradientOutput {
  float* dout = nullptr;      // [F, K + 1], 0 in the last row of each unroll
  float* priority = nullptr;  // [B]: mean |v_t - V_t| of the unroll
};

// Means over all steps of the batch.
struct PolicyGradientSummary {
  double loss = 0;  // policy_loss + value_cost · value_loss - entropy_cost · entropy
  double policy_loss = 0;
  double value_loss = 0;  // half the squared error
  double entropy = 0;
  double value_mean = 0;  // of the steps' observations
  double error_mean = 0;  // mean |v_t - V_t|
  double divergence = 0;  // estimate of KL(μ, π): mean of ratio - 1 - log ratio
  double clipped = 0;     // share of steps whose ratio is clipped
  bool stopped = false;   // the divergence exceeds its bound, and the policy has no gradient
};

// Loss of IMPALA (Espeholt et al. 2018, sec. 4.2) or, with ratio_clip, of asynchronous PPO:
//   policy: -log π(a_t|s_t) advantage_t, or PPO's clipped surrogate (Schulman et al. 2017, eq. 7)
//     -min(r_t A_t, clip(r_t, 1 - ε, 1 + ε) A_t), r_t = π/μ, A_t = v_t - V_t
//   value: half of (v_t - V_t)²;  entropy: -Σ π log π, or that of a
//   Gaussian
// With value_clip c the value's term is the larger one of that and half of (v_t - V_μ - clip(V_t -
// V_μ, ±c))² (OpenAI Baselines, ppo2). With target_kl, a batch whose estimated KL(μ, π) exceeds 1.5
// target_kl trains the value only: its policy and entropy terms are 0. That is the early stop of
// OpenAI's Spinning Up, decided by each batch for itself.
// Targets v_t and advantages are V-trace's (kernels/loss/vtrace_return.h) of the current values and
// policy, and constants, unless the caller computed them before (`target`). While both policies are
// equal, ρ̄ = c̄ = 1 make PPO's A_t the GAE(λ). All terms are means over the steps, times the
// unroll's weight. As in DqnLoss, arrays are f32, all between them is f64, and a value that is used
// and not finite makes `loss` not finite. O(F K).
PolicyGradientSummary PolicyGradientLoss(const PolicyGradientInput& in,
                                         const PolicyGradientOutput& out);

}  // namespace troop
