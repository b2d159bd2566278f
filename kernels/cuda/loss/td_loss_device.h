#pragma once

#include "kernels/cuda/loss/dqn_loss.h"
#include "kernels/cuda/runtime/device_code.h"
#include "kernels/cuda/runtime/vector_types.h"

// What the kernels of all temporal-difference losses do alike. Only for .cu files.
namespace troop::cuda {

struct Return {
  double sum = 0, factor = 1;  // Σ γ^k (Π d) r, and what a value behind it counts
};
template <class Input>
TROOP_DEVICE Return SumSteps(const Input& in, std::int64_t item) {
  Return n;
  for (std::int32_t k = 0; k < in.length[item]; ++k) {
    const double reward = in.reward[item * in.steps + k], limit = in.reward_clip;
    // NaN stays.
    const double clipped = !(limit > 0)      ? reward
                           : reward < -limit ? -limit
                           : limit < reward  ? limit
                                             : reward;
    n.sum += n.factor * clipped;
    n.factor *= in.gamma * double(in.discount[item * in.steps + k]);
  }
  return n;
}

// What is added to number k of all of an item's actions: v - mean(a) of a dueling network's heads,
// value [B, K] and advantage [B, A, K]; else (nullptr) 0.
TROOP_DEVICE double DuelingBase(const float* value, const float* advantage, std::int64_t actions,
                                std::int64_t numbers, std::int64_t item, std::int64_t k) {
  if (value == nullptr) return 0;
  const float* a = advantage + item * actions * numbers + k;
  double sum = 0;
  for (std::int64_t i = 0; i < actions; ++i) sum += double(a[i * numbers]);
  return double(value[item * numbers + k]) - sum / double(actions);
}

// Puts the gradient g by number k of q of `action`; of the other actions it is 0. With the chain
// rule through v + a - mean(a), where there are heads: dv = g, da = g (1{action} - 1/A).
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
