#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/base/philox.h"
#include "kernels/transformer/dropout.h"
#include "nn/module.h"

// Building blocks of token models as plain loops in f64, to check the models against. Only the
// dropout factors come from the product (tests/kernels/transformer/dropout_test.cc checks these).
namespace troop::test {

using Row = std::vector<double>;
using Rows = std::vector<Row>;

// Parameters by their names.
class Values {
 public:
  Values(const Module& module, std::span<const double> value) : value_(value) {
    for (const ParamSpec& spec : module.params()) specs_[spec.name] = &spec;
  }
  const double* operator[](const std::string& name) const {
    return value_.data() + specs_.at(name)->offset;
  }
  std::size_t size(const std::string& name) const {
    return std::size_t(specs_.at(name)->shape.elements());
  }
  Row row(const std::string& name, std::size_t row) const {
    const auto n = std::size_t(specs_.at(name)->shape[1]);
    const double* const at = (*this)[name] + row * n;
    return {at, at + n};
  }

 private:
  const std::span<const double> value_;
  std::map<std::string, const ParamSpec*> specs_;
};

// weight · x, and a bias where there is one.
inline Row Product(const Values& values, const std::string& weight, const std::string& bias,
                   const Row& x) {
  Row y(values.size(weight) / x.size(), 0.0);
  if (!bias.empty()) y.assign(values[bias], values[bias] + y.size());
  const double* w = values[weight];
  for (double& sum : y) {
    for (const double v : x) sum += *w++ * v;
  }
  return y;
}
inline Row Linear(const Values& values, const std::string& name, const Row& x) {
  return Product(values, name + ".weight", name + ".bias", x);
}

inline void Softmax(Row* x) {
  double sum = 0;
  for (double& v : *x) sum += v = std::exp(v);
  for (double& v : *x) v /= sum;
}

// Applies dropout at a site, whose elements are counted through all rows. A null key disables it.
inline void Drop(const DropoutKey* key, std::uint32_t site, float rate, std::size_t first, Row* x) {
  if (key == nullptr || rate == 0) return;
  std::vector<float> factor(x->size());
  DropoutFactors({*key, site}, rate, std::int64_t(first), std::int64_t(x->size()), factor.data());
  for (std::size_t i = 0; i < x->size(); ++i) (*x)[i] *= double(factor[i]);
}
inline void Drop(const DropoutKey* key, std::uint32_t site, float rate, Rows* rows) {
  std::size_t first = 0;
  for (Row& row : *rows) {
    Drop(key, site, rate, first, &row);
    first += row.size();
  }
}

// The coefficients c of a loss Σ c·logits, one per element, chosen so that no gradients cancel.
inline float LossWeight(std::size_t i) { return float(std::cos(1.7 * double(i) + 0.3)); }

// Compares a gradient [P] with directional derivatives of a loss in f64: for each tensor along a
// random direction, by a central difference, which is exact to 1e-8. `tolerance` is relative to the
// tensor's gradient.
inline void ExpectSlopes(const Module& module, std::span<const float> value,
                         std::span<const float> gradient,
                         const std::function<double(std::span<const double>)>& loss,
                         double tolerance) {
  std::vector<double> at(value.begin(), value.end());
  Rng rng({21, Purpose::kTest});
  for (const ParamSpec& spec : module.params()) {
    const auto first = std::size_t(spec.offset), count = std::size_t(spec.shape.elements());
    double norm = 0;
    for (std::size_t i = first; i < first + count; ++i) norm += double(gradient[i]) * gradient[i];
    const double step = 1e-5;
    double expected = 0, got = 0, length = 0;
    std::vector<double> d(count);
    for (double& x : d) {
      x = rng.Normal();
      length += x * x;
    }
    for (const double side : {step, -step}) {
      for (std::size_t i = 0; i < count; ++i)
        at[first + i] = value[first + i] + side * d[i] / std::sqrt(length);
      expected += loss(at) / (2 * side);
    }
    for (std::size_t i = 0; i < count; ++i) {
      at[first + i] = value[first + i];
      got += d[i] * double(gradient[first + i]) / std::sqrt(length);
    }
    EXPECT_NEAR(got, expected, tolerance * (std::sqrt(norm) + 1e-2)) << spec.name;
  }
}

}  // namespace troop::test
