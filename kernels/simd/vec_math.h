#pragma once

#include "kernels/simd/vec.h"

// Elementary functions of a register. They consist only of +, -, *, / and powers of two, so all
// levels give the same bits. NaN stays NaN.
namespace troop {
namespace {

// tanh. |x| < 0.625: an odd polynomial; otherwise 1 - 2 / (exp(2|x|) + 1), where exp is 2^n times a
// polynomial. Both polynomials are from Moshier's Cephes (tanhf.c, expf.c). Error below 3 ulp. NaN
// stays NaN.
inline Vec Tanh(Vec x) {
  const Vec a = Max(x, Set(0) - x);  // |x|; NaN stays NaN
  const Vec z = x * x;
  // Odd polynomial: x + x³ P(x²).
  Vec p = Set(-5.70498872745e-3f);
  p = p * z + Set(2.06390887954e-2f);
  p = p * z + Set(-5.37397155531e-2f);
  p = p * z + Set(1.33314422036e-1f);
  p = p * z + Set(-3.33332819422e-1f);
  const Vec small = x + x * (z * p);

  const Vec y = Min(Set(20), a + a);   // tanh(10) is 1 in f32; NaN stays NaN
  const Vec magic = Set(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const Vec biased = y * Set(1.44269504088896341f) + magic;
  const Vec n = biased - magic;
  // r = y - n ln 2, with ln 2 as a sum of two floats (Cody-Waite reduction).
  const Vec r = (y - n * Set(0.693359375f)) - n * Set(-2.12194440e-4f);
  Vec e = Set(1.9875691500e-4f);
  e = e * r + Set(1.3981999507e-3f);
  e = e * r + Set(8.3334519073e-3f);
  e = e * r + Set(4.1665795894e-2f);
  e = e * r + Set(1.6666665459e-1f);
  e = e * r + Set(5.0000001201e-1f);
  e = (e * (r * r) + r) + Set(1);
  const Vec big = Set(1) - Set(2) / (e * ExponentOf(biased) + Set(1));
  return SelectGreater(a, Set(0.625f), CopySign(big, x), small);
}

// e^x for -87 <= x <= 88; x is clamped to this range. The method is that of Tanh. Error below 2
// ulp.
inline Vec Exp(Vec x) {
  // NaN stays NaN: Max and Min return their second argument.
  const Vec y = Min(Set(88), Max(Set(-87), x));
  const Vec magic = Set(12582912.0f);
  const Vec biased = y * Set(1.44269504088896341f) + magic;
  const Vec n = biased - magic;
  const Vec r = (y - n * Set(0.693359375f)) - n * Set(-2.12194440e-4f);
  Vec e = Set(1.9875691500e-4f);
  e = e * r + Set(1.3981999507e-3f);
  e = e * r + Set(8.3334519073e-3f);
  e = e * r + Set(4.1665795894e-2f);
  e = e * r + Set(1.6666665459e-1f);
  e = e * r + Set(5.0000001201e-1f);
  e = (e * (r * r) + r) + Set(1);
  return e * ExponentOf(biased);
}

// Error function as x P(x²) / Q(x²), fitted for the least relative error (2e-8) up to 3.92; beyond
// that it is ±1 in f32. Error below 4e-7.
inline Vec Erf(Vec x) {
  // Clamped; SelectGreater replaces the result outside.
  const Vec c = Min(Set(3.92f), Max(Set(-3.92f), x));
  const Vec z = c * c;
  Vec p = Set(2.05008519e-6f);
  p = p * z + Set(2.84880603e-4f);
  p = p * z + Set(3.76556045e-3f);
  p = p * z + Set(5.2748546e-2f);
  p = p * z + Set(1.90405279e-1f);
  p = p * z + Set(1.12837911f);
  Vec q = Set(3.80915844e-5f);
  q = q * z + Set(1.16252026e-3f);
  q = q * z + Set(1.4969104e-2f);
  q = q * z + Set(1.141086e-1f);
  q = q * z + Set(5.02075016e-1f);
  q = q * z + Set(1);
  const Vec inside = c * (p / q), magnitude = Max(x, Set(0) - x);
  return SelectGreater(magnitude, Set(3.92f), CopySign(Set(1), x), inside);
}

}  // namespace
}  // namespace troop
