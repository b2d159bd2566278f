#pragma once

#include <numbers>

// Dynamics of CartPole, shared by one environment (V = double) and several at once (V = a vector of
// doubles). IEEE operations only, never contracted to FMA, so that every V gives the same bits.
// Everything here has internal linkage: the file is compiled once per instruction set, and the
// linker must not merge the results.
namespace troop::cartpole {
namespace {

// Gymnasium's constants, in SI units.
constexpr double kGravity = 9.8;
constexpr double kPoleMass = 0.1;
constexpr double kTotalMass = 0.1 + 1.0;
constexpr double kHalfLength = 0.5;
constexpr double kPoleMassLength = kPoleMass * kHalfLength;
constexpr double kForce = 10.0;
constexpr double kStep = 0.02;  // s
constexpr double kPositionMax = 2.4;
constexpr double kAngleMax = 12 * 2 * std::numbers::pi / 360;

template <class V>
struct State {
  V x, x_dot, theta, theta_dot;
};

// Taylor series. A step starts from |a| <= kAngleMax < 0.2095, where the first omitted term is
// below 2^-59 of the sine (a^12 / 13!) and 2^-64 of the cosine (a^14 / 14!). The remaining error is
// the rounding of the last addition: results are within 0.6 ulp.
template <class V>
inline void SinCos(V a, V* sine, V* cosine) {
  const V z = a * a;
  V s = 1.0 / 362880 - z * (1.0 / 39916800);  // 1/9! - z/11!
  s = -1.0 / 6 + z * (1.0 / 120 + z * (-1.0 / 5040 + z * s));
  V c = -1.0 / 3628800 + z * (1.0 / 479001600);  // -1/10! + z/12!
  c = 1.0 / 24 + z * (-1.0 / 720 + z * (1.0 / 40320 + z * c));
  *sine = a + a * (z * s);
  *cosine = 1.0 - (0.5 * z - z * z * c);
}

// One explicit Euler step; Florian 2007, "Correct equations for the dynamics of the cart-pole
// system", without friction.
template <class V>
inline void Advance(State<V>* state, V force) {
  V sine, cosine;
  SinCos(state->theta, &sine, &cosine);
  const V push =
      (force + kPoleMassLength * (state->theta_dot * state->theta_dot) * sine) / kTotalMass;
  const V theta_acc = (kGravity * sine - cosine * push) /
                      (kHalfLength * (4.0 / 3.0 - kPoleMass * (cosine * cosine) / kTotalMass));
  const V x_acc = push - kPoleMassLength * theta_acc * cosine / kTotalMass;
  state->x = state->x + kStep * state->x_dot;
  state->x_dot = state->x_dot + kStep * x_acc;
  state->theta = state->theta + kStep * state->theta_dot;
  state->theta_dot = state->theta_dot + kStep * theta_acc;
}

}  // namespace
}  // namespace troop::cartpole
