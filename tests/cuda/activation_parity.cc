#include "kernels/cuda/ops/activation.h"

#include <cmath>

#include "tests/cuda/parity_cases.h"

namespace troop::cuda {
namespace {

void DerivativesFollowFromResults(Parity& parity) {
  const std::int64_t n = parity.large() ? 10'000'003 : 2'051;
  std::vector<float> y = parity.Random(n), dy = parity.Random(n);
  y[0] = 0;  // the derivative of ReLU is 0 there
  for (const auto activation : {Activation::kNone, Activation::kRelu, Activation::kTanh}) {
    const auto derived = [&](float a, float d) {
      if (activation == Activation::kRelu) return a > 0 ? double(d) : 0.0;
      return activation == Activation::kTanh ? d * (1 - double(a) * a) : double(d);
    };
    const auto on_y = parity.Upload(y), on_dy = parity.Upload(dy), dz = parity.Output<float>(n);
    ActivationBackward(
        parity.stream(),
        {.activation = activation, .n = n, .y = on_y.data(), .dy = on_dy.data(), .dz = dz.data()});
    const auto y16 = parity.Upload(ToBF16s(y)), dy16 = parity.Upload(ToBF16s(dy));
    ActivationBackward(parity.stream(), {.activation = activation,
                                         .dtype = DType::kBF16,
                                         .n = n,
                                         .y = y16.data(),
                                         .dy = dy16.data(),
                                         .dz = dy16.data()});  // in place
    std::vector<double> want, want16;
    for (std::size_t i = 0; i < y.size(); ++i) {
      want.push_back(derived(y[i], dy[i]));
      want16.push_back(derived(RoundedToBF16(y[i]), RoundedToBF16(dy[i])));
    }
    // All tolerances of 1e-6: a few roundings of f32, 2^-24 each.
    parity.Close("f32", parity.Download(dz), want, 1e-6);
    parity.Close("bf16", FromBF16s(parity.Download(dy16)), want16, 4e-3);  // one rounding: 2^-9
  }
}

void ConvertsEveryPairOfTypes(Parity& parity) {
  const std::int64_t n = parity.large() ? 10'000'003 : 2'051;
  const float scale = 1.0f / 255;
  std::vector<std::uint8_t> bytes;
  std::vector<double> want, wanted_floats;
  for (std::int64_t i = 0; i < n; ++i) {
    bytes.push_back(std::uint8_t(parity.Below(256)));
    want.push_back(double(bytes.back()) * scale);
  }
  const std::vector<float> floats = parity.Random(n);
  for (const float f : floats) wanted_floats.push_back(double(f) * scale);
  const auto on_bytes = parity.Upload(bytes);
  const auto on_floats = parity.Upload(floats);
  const auto out = parity.Output<float>(n);
  const auto out16 = parity.Output<BF16>(n), back = parity.Output<BF16>(n);
  ConvertScaledArgs args{
      .n = n, .from = on_bytes.data(), .from_dtype = DType::kU8, .scale = scale, .to = out.data()};
  ConvertScaled(parity.stream(), args);
  parity.Close("u8 to f32", parity.Download(out), want, 1e-6);
  args.to = out16.data();
  args.to_dtype = DType::kBF16;
  ConvertScaled(parity.stream(), args);
  parity.Close("u8 to bf16", FromBF16s(parity.Download(out16)), want, 4e-3);
  ConvertScaled(parity.stream(), {.n = n,
                                  .from = on_floats.data(),
                                  .scale = scale,
                                  .to = back.data(),
                                  .to_dtype = DType::kBF16});
  parity.Close("f32 to bf16", FromBF16s(parity.Download(back)), wanted_floats, 4e-3);
  ConvertScaled(parity.stream(),
                {.n = n, .from = out16.data(), .from_dtype = DType::kBF16, .to = out.data()});
  parity.Equal("bf16 to f32", parity.Download(out), FromBF16s(parity.Download(out16)));
}

// The formulas and their derivatives in f64, over a range where both tails vanish.
void GeluOfBothForms(Parity& parity) {
  const std::int64_t n = parity.large() ? 10'000'003 : 2'051;
  const std::vector<float> z = parity.Random(n, -6, 6), dy = parity.Random(n);
  const double pi = std::acos(-1.0);
  for (const GeluForm form : {GeluForm::kErf, GeluForm::kTanh}) {
    const auto share = [&](double x) {
      if (form == GeluForm::kErf) return 0.5 * std::erfc(-x / std::sqrt(2.0));
      return 0.5 * (1 + std::tanh(std::sqrt(2 / pi) * (x + 0.044715 * x * x * x)));
    };
    const auto slope = [&](double x) {
      if (form == GeluForm::kErf) return share(x) + x * std::exp(-0.5 * x * x) / std::sqrt(2 * pi);
      const double t = 2 * share(x) - 1;
      return share(x) + 0.5 * x * (1 - t * t) * std::sqrt(2 / pi) * (1 + 3 * 0.044715 * x * x);
    };
    std::vector<double> want, want16, wanted_slope, wanted_slope16;
    for (std::size_t i = 0; i < z.size(); ++i) {
      const double x = z[i], x16 = RoundedToBF16(z[i]);
      want.push_back(x * share(x));
      want16.push_back(x16 * share(x16));
      wanted_slope.push_back(double(dy[i]) * slope(x));
      wanted_slope16.push_back(double(RoundedToBF16(dy[i])) * slope(x16));
    }
    const auto on_z = parity.Upload(z), on_dy = parity.Upload(dy), y = parity.Output<float>(n);
    Gelu(parity.stream(), {.form = form, .n = n, .z = on_z.data(), .y = y.data()});
    parity.Close("gelu", parity.Download(y), want, 1e-6);
    GeluBackward(parity.stream(),
                 {.form = form, .n = n, .z = on_z.data(), .dy = on_dy.data(), .dz = on_dy.data()});
    parity.Close("gelu's gradient, in place", parity.Download(on_dy), wanted_slope, 1e-6);
    const auto z16 = parity.Upload(ToBF16s(z)), dy16 = parity.Upload(ToBF16s(dy));
    GeluBackward(parity.stream(), {.form = form,
                                   .dtype = DType::kBF16,
                                   .n = n,
                                   .z = z16.data(),
                                   .dy = dy16.data(),
                                   .dz = dy16.data()});
    parity.Close("gelu's gradient in bf16", FromBF16s(parity.Download(dy16)), wanted_slope16, 4e-3);
    Gelu(parity.stream(),
         {.form = form, .dtype = DType::kBF16, .n = n, .z = z16.data(), .y = z16.data()});
    parity.Close("gelu in bf16, in place", FromBF16s(parity.Download(z16)), want16, 4e-3);
  }
}

}  // namespace

std::vector<ParityCase> ActivationCases() {
  return {{"Activation.DerivativesFollowFromResults", DerivativesFollowFromResults},
          {"Activation.ConvertsEveryPairOfTypes", ConvertsEveryPairOfTypes},
          {"Gelu.OfBothForms", GeluOfBothForms}};
}

}  // namespace troop::cuda
