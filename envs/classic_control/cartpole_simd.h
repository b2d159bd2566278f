#pragma once

#include <cstdint>
#include <cstring>

#include "envs/classic_control/cartpole_batch.h"
#include "envs/classic_control/cartpole_dynamics.h"

// Loop over a batch for one vector width; included by one file per instruction set. Everything here
// has internal linkage and calls nothing with external linkage: the linker could otherwise use one
// file's copy for all instruction sets.
namespace troop::cartpole {
namespace {

// GCC vector types of kLanes elements.
template <int kLanes>
struct Lanes {
  typedef double F64 __attribute__((vector_size(kLanes * 8)));
  typedef float F32 __attribute__((vector_size(kLanes * 4)));
  typedef std::int64_t I64 __attribute__((vector_size(kLanes * 8)));
  typedef std::int32_t I32 __attribute__((vector_size(kLanes * 4)));
  typedef std::int8_t I8 __attribute__((vector_size(kLanes)));
};

// Unaligned load and store.
template <class V, class T>
inline V Load(const T* from) {
  V v;
  __builtin_memcpy(&v, from, sizeof(V));
  return v;
}

template <class V, class T>
inline void Store(V v, T* to) {
  __builtin_memcpy(to, &v, sizeof(V));
}

// Steps environments [first, first + kLanes).
template <int kLanes>
inline void StepLanes(const BatchStep& step, int first) {
  using L = Lanes<kLanes>;
  using F64 = typename L::F64;
  State<F64> s = {Load<F64>(&step.x[first]), Load<F64>(&step.x_dot[first]),
                  Load<F64>(&step.theta[first]), Load<F64>(&step.theta_dot[first])};
  const auto action = __builtin_convertvector(Load<typename L::I32>(step.action + first), F64);
  Advance(&s, action * (2 * kForce) - kForce);  // exact: action is 0 or 1
  Store(s.x, &step.x[first]);
  Store(s.x_dot, &step.x_dot[first]);
  Store(s.theta, &step.theta[first]);
  Store(s.theta_dot, &step.theta_dot[first]);
  const typename L::I64 ended =
      (s.x < -kPositionMax) | (s.x > kPositionMax) | (s.theta < -kAngleMax) | (s.theta > kAngleMax);
  Store(__builtin_convertvector(ended & 1, typename L::I8), step.terminated + first);
  const auto x = __builtin_convertvector(s.x, typename L::F32);
  const auto x_dot = __builtin_convertvector(s.x_dot, typename L::F32);
  const auto theta = __builtin_convertvector(s.theta, typename L::F32);
  const auto theta_dot = __builtin_convertvector(s.theta_dot, typename L::F32);
  float* out = step.observation + 4 * first;
  for (int lane = 0; lane < kLanes; ++lane, out += 4) {
    out[0] = x[lane];
    out[1] = x_dot[lane];
    out[2] = theta[lane];
    out[3] = theta_dot[lane];
  }
}

template <int kLanes>
inline void StepAll(const BatchStep& step) {
  static_assert(kLaneMultiple % kLanes == 0);
  for (int first = 0; first < step.count; first += kLanes) StepLanes<kLanes>(step, first);
}

}  // namespace
}  // namespace troop::cartpole
