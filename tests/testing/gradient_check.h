#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/base/philox.h"
#include "nn/models/model.h"
#include "nn/module.h"

namespace troop::test {

// A module with all buffers of a training step. The loss is L = Σ c·out with fixed random c, so
// that dL/dout is c and L is summed in f64.
class ModuleBench {
 public:
  ModuleBench(const Module& module, const TensorSpec& in, Precision precision,
              std::uint64_t seed = 1)
      : ModuleBench(module, Tensor(in.dtype, in.shape), {}, precision, seed) {
    FillInput();
  }
  // With the given inputs, which have no gradients.
  ModuleBench(const Module& module, std::vector<ConstTensor> inputs, Precision precision,
              std::uint64_t seed = 1)
      : ModuleBench(module, Tensor(), std::move(inputs), precision, seed) {}

  // Packs the current value and runs Forward.
  double Loss(bool keep = true) {
    module_.Pack(value, packed.get());
    return Rerun(keep);
  }
  double Rerun(bool keep = true) {
    module_.Forward(Context(), Inputs(), {&output, 1}, keep ? cache_.bytes() : Cache{});
    double sum = 0;
    for (std::int64_t i = 0; i < output.elements(); ++i)
      sum += double(output.data<float>()[i]) * double(direction.data<float>()[i]);
    return sum;
  }
  // REQUIRES: Loss(true) before.
  void Backward(const Tensor& din = {}, bool accumulate = true) {
    const ConstTensor dout = direction;
    StepContext context = Context();
    context.gradient = gradient;
    context.accumulate = accumulate;
    module_.Backward(context, Inputs(), {&dout, 1}, cache_.bytes(), {&din, 1});
  }

  StepContext Context() {
    return {.value = value,
            .packed = packed.get(),
            .workspace = workspace_.bytes(),
            .replicas = replicas,
            .statistics = statistics,
            .dropout = dropout};
  }

  const Module& module_;
  Plan plan;
  std::vector<float> value, gradient;
  Tensor input, output, direction;
  std::unique_ptr<Packed> packed;
  std::span<float> statistics;          // batch statistics; empty: none are stored
  std::span<const DropoutKey> dropout;  // empty: nothing is dropped
  TensorGroup* replicas = nullptr;      // the batch's other parts

 private:
  ModuleBench(const Module& module, Tensor in, std::vector<ConstTensor> given, Precision precision,
              std::uint64_t seed)
      : module_(module),
        input(std::move(in)),
        given_(std::move(given)),
        rng_({seed, Purpose::kTest}) {
    std::vector<TensorSpec> specs;
    for (const ConstTensor& tensor : Inputs()) specs.push_back(tensor.spec());
    auto made = module.MakePlan(specs);
    EXPECT_TRUE(made.ok()) << made.status().ToString();
    plan = *made;
    value.resize(std::size_t(ParameterCount(module)));
    InitParameters(module, seed, value);
    gradient.assign(value.size(), 0.0f);
    output = Tensor(plan.out[0].dtype, plan.out[0].shape);
    direction = Tensor(plan.out[0].dtype, plan.out[0].shape);
    cache_ = MutableBuffer(plan.cache_bytes);
    workspace_ = MutableBuffer(plan.workspace_bytes);
    packed = module.MakePacked(precision);
    for (float& c : direction.as<float>()) c = float(rng_.Normal());
  }
  std::vector<ConstTensor> Inputs() const {
    return given_.empty() ? std::vector<ConstTensor>{input} : given_;
  }
  void FillInput() {
    if (input.dtype() == DType::kU8) {
      for (auto& x : input.as<std::uint8_t>()) x = std::uint8_t(rng_.Below(256));
    } else {
      for (auto& x : input.as<float>()) x = float(rng_.Normal());
    }
  }

  const std::vector<ConstTensor> given_;  // empty: `input` is used
  Rng rng_;
  MutableBuffer cache_, workspace_;
};

struct GradientCheckOptions {
  int directions = 8;                              // random directions in parameter space
  std::vector<double> steps = {3e-3, 1e-3, 3e-4};  // of the central difference; the best one counts
  double tolerance = 2e-2;                         // relative to the norm of the gradient
};

// Compares derivatives along random directions d, not by single elements: the central difference
// (L(v + hd) - L(v - hd)) / 2h with Σ g·d. Rounding of the f32 forward pass, about 1e-7 of the
// terms of L, is divided by h, which gives 3e-4 to 3e-5 of the terms. A ReLU that changes sign
// within a step causes a first-order error, which smaller steps avoid: so the best of three steps
// counts. A wrong gradient fails at every step.
inline void ExpectDirectionalDerivative(ModuleBench& bench, std::span<float> at,
                                        std::span<const float> gradient, Rng& rng,
                                        const GradientCheckOptions& options,
                                        const std::string& what) {
  const std::vector<float> origin(at.begin(), at.end());
  double norm_g = 0;
  for (const float g : gradient) norm_g += double(g) * double(g);
  norm_g = std::sqrt(norm_g);
  std::vector<double> d(at.size());
  for (int k = 0; k < options.directions; ++k) {
    double norm_d = 0;
    for (std::size_t i = 0; i < d.size(); ++i) {
      // Half along the gradient, so that the derivative is large compared to rounding.
      d[i] = rng.Normal() / std::sqrt(double(d.size())) + (norm_g > 0 ? gradient[i] / norm_g : 0);
      norm_d += d[i] * d[i];
    }
    const auto point = [&](std::size_t i, double h) {
      return float(origin[i] + h * d[i] / std::sqrt(norm_d));
    };
    double best = INFINITY;
    for (const double h : options.steps) {
      for (std::size_t i = 0; i < at.size(); ++i) at[i] = point(i, h);
      double numeric = bench.Loss(false), analytic = 0;
      for (std::size_t i = 0; i < at.size(); ++i) at[i] = point(i, -h);
      numeric -= bench.Loss(false);
      for (std::size_t i = 0; i < at.size(); ++i)  // the actual difference in f32
        analytic += double(gradient[i]) * (double(point(i, h)) - double(point(i, -h)));
      best = std::min(best, std::abs(numeric - analytic) / (2 * h));
    }
    EXPECT_LE(best, options.tolerance * norm_g) << what << ", direction " << k;
    std::copy(origin.begin(), origin.end(), at.begin());
  }
  bench.Loss(true);
}

inline void ExpectParameterGradients(ModuleBench& bench, Rng& rng,
                                     const GradientCheckOptions& options) {
  for (const ParamSpec& spec : bench.module_.params()) {
    const auto first = std::size_t(spec.offset), count = std::size_t(spec.shape.elements());
    ExpectDirectionalDerivative(bench, std::span(bench.value).subspan(first, count),
                                std::span(bench.gradient).subspan(first, count), rng, options,
                                spec.name);
  }
}

// Checks the gradient of every parameter tensor, and of the input if it is f32 and `input_gradient`
// is set.
inline void CheckGradients(const Module& module, const TensorSpec& in, bool input_gradient = true,
                           const GradientCheckOptions& options = {}) {
  ModuleBench bench(module, in, Precision::kF32);
  Rng rng({2, Purpose::kTest});
  Tensor din = input_gradient ? Tensor(DType::kF32, in.shape) : Tensor();
  bench.Loss(true);
  bench.Backward(din);
  ExpectParameterGradients(bench, rng, options);
  if (input_gradient)
    ExpectDirectionalDerivative(bench, bench.input.as<float>(), din.as<float>(), rng, options,
                                "input");
}
// Checks the gradients of the parameters for inputs without gradients.
inline void CheckGradients(const Module& module, std::vector<ConstTensor> inputs,
                           const GradientCheckOptions& options = {}) {
  ModuleBench bench(module, std::move(inputs), Precision::kF32);
  Rng rng({2, Purpose::kTest});
  bench.Loss(true);
  bench.Backward();
  ExpectParameterGradients(bench, rng, options);
}

}  // namespace troop::test
