#pragma once

#include "kernels/cuda/loss/dqn_loss.h"
#include "kernels/cuda/runtime/device_code.h"
#include "kernels/cuda/runtime/vector_types.h"

// Device code shared by the temporal-difference losses. Only for .cu files.
namespace troop::cuda {

// n-step return of an item, as NStepReturn of kernels/loss/n_step_return.h.
struct Return {
  double sum = 0, factor = 1;  // Σ γ^k (Π d) r, and the factor of the bootstrap value
};
template <class Input>
TROOP_DEVICE Return SumSteps(const Input& in, std::int64_t item) {
  Return n;
  for (std::int32_t k = 0; k < in.length[item]; ++k) {
    const double reward = in.reward[item * in.steps + k], limit = in.reward_clip;
    // NaN stays NaN.
    const double clipped = !(limit > 0)      ? reward
                           : reward < -limit ? -limit
                           : limit < reward  ? limit
                                             : reward;
    n.sum += n.factor * clipped;
    n.factor *= in.gamma * double(in.discount[item * in.steps + k]);
  }
  return n;
}

// The term that is common to value k of all actions of an item: v - mean(a) for the heads value [B,
// K] and advantage [B, A, K] of a dueling network; 0 if value is nullptr.
TROOP_DEVICE double DuelingBase(const float* value, const float* advantage, std::int64_t actions,
                                std::int64_t numbers, std::int64_t item, std::int64_t k) {
  if (value == nullptr) return 0;
  const float* a = advantage + item * actions * numbers + k;
  double sum = 0;
  for (std::int64_t i = 0; i < actions; ++i) sum += double(a[i * numbers]);
  return double(value[item * numbers + k]) - sum / double(actions);
}

// Stores the gradient g with respect to value k of q[action]; those of other actions become 0. With
// dueling heads, applies the chain rule through v + a - mean(a): dv = g, da = g (1{action} - 1/A).
template <class T>
TROOP_DEVICE void PutGradient(const LossOutput& out, std::int64_t actions, std::int64_t numbers,
                              std::int64_t item, std::int64_t action, std::int64_t k, double g) {
  const double share = out.dvalue != nullptr ? g / double(actions) : 0;
  if (out.dvalue != nullptr) Put(static_cast<T*>(out.dvalue) + item * numbers + k, float(g));
  T* const dq = static_cast<T*>(out.dq) + item * actions * numbers + k;
  for (std::int64_t a = 0; a < actions; ++a)
    Put(dq + a * numbers, float((a == action ? g : 0) - share));
}

}  // namespace troop::cuda
