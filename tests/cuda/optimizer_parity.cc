#include "kernels/cuda/ops/optimizer_step.h"

#include <cmath>

#include "tests/cuda/parity_cases.h"

namespace troop::cuda {
namespace {

// Odd, so that the last group has fewer than four elements, and large enough for many blocks.
std::int64_t Size(Parity& parity) { return parity.large() ? 5'000'003 : 3'007; }

struct Arrays {
  std::vector<float> gradient, m, v, value;
};

Arrays RandomArrays(Parity& parity, std::int64_t n) {
  return {parity.Random(n), parity.Random(n), parity.Random(n, 1, 2), parity.Random(n)};
}

// Runs `step` on the device and in the plain CPU version: the same bits.
template <class Step, class OnDevice, class OnHost>
void SameBits(Parity& parity, const Step& step, bool has_m, bool has_v, const OnDevice& on_device,
              const OnHost& on_host) {
  const std::int64_t n = Size(parity);
  Arrays a = RandomArrays(parity, n);
  const auto device_step = parity.Upload(std::vector<Step>{step});
  const auto gradient = parity.Upload(a.gradient), m = parity.Upload(a.m), v = parity.Upload(a.v),
             value = parity.Upload(a.value);
  const auto value_bf16 = parity.Output<BF16>(n);
  OptimizerArrays arrays{n,
                         gradient.data(),
                         has_m ? m.data() : nullptr,
                         has_v ? v.data() : nullptr,
                         value.data(),
                         value_bf16.data()};
  for (int i = 0; i < 2; ++i) {
    on_device(device_step.data(), arrays);
    on_host(OptimizerKernelsFor(CpuLevel::kPlain), &a, n);
  }
  parity.Equal("m", parity.Download(m), a.m);
  parity.Equal("v", parity.Download(v), a.v);
  parity.Equal("value", parity.Download(value), a.value);
  std::vector<float> rounded;
  for (const float x : a.value) rounded.push_back(RoundedToBF16(x));
  parity.Equal("value_bf16", FromBF16s(parity.Download(value_bf16)), rounded);
}

void AdamGivesTheBitsOfTheCpu(Parity& parity) {
  AdamStep step;
  step.gradient_scale = 0.37f;
  step.step_size = 0.01f;
  step.root_scale = 1.3f;
  step.decay_factor = 0.999f;
  // The second one is RAdam's, before it divides.
  for (const bool divides : {true, false}) {
    if (!divides) step.root_scale = 0, step.epsilon = 1;
    SameBits(
        parity, step, true, true,
        [&](const AdamStep* s, const OptimizerArrays& a) { Adam(parity.stream(), s, a); },
        [&](const OptimizerKernels& k, Arrays* a, std::int64_t n) {
          k.adam(step, n, a->gradient.data(), a->m.data(), a->v.data(), a->value.data());
        });
  }
}

void RmsPropGivesTheBitsOfTheCpu(Parity& parity) {
  for (const bool centered : {true, false}) {
    RmsPropStep step;
    step.gradient_scale = 0.37f;
    step.learning_rate = 0.01f;
    step.epsilon = 1e-3f;
    SameBits(
        parity, step, centered, true,
        [&](const RmsPropStep* s, const OptimizerArrays& a) { RmsProp(parity.stream(), s, a); },
        [&](const OptimizerKernels& k, Arrays* a, std::int64_t n) {
          k.rmsprop(step, n, a->gradient.data(), centered ? a->m.data() : nullptr, a->v.data(),
                    a->value.data());
        });
  }
}

void SgdGivesTheBitsOfTheCpu(Parity& parity) {
  for (const bool momentum : {true, false}) {
    SgdStep step;
    step.gradient_scale = 0.37f;
    step.momentum = momentum ? 0.9f : 0;
    step.learning_rate = 0.01f;
    step.weight_decay = 0.3f;
    SameBits(
        parity, step, momentum, false,
        [&](const SgdStep* s, const OptimizerArrays& a) { Sgd(parity.stream(), s, a); },
        [&](const OptimizerKernels& k, Arrays* a, std::int64_t n) {
          k.sgd(step, n, a->gradient.data(), momentum ? a->m.data() : nullptr, a->value.data());
        });
  }
}

void ARefusedUpdateChangesNothing(Parity& parity) {
  const std::int64_t n = 100;
  const Arrays a = RandomArrays(parity, n);
  const auto step = parity.Upload(std::vector<AdamStep>(1));
  const auto gradient = parity.Upload(a.gradient), m = parity.Upload(a.m), v = parity.Upload(a.v),
             value = parity.Upload(a.value), target = parity.Upload(a.m);
  const auto go = parity.Upload(std::vector<std::int32_t>{0});
  Adam(parity.stream(), step.data(),
       {n, gradient.data(), m.data(), v.data(), value.data(), nullptr, go.data()});
  MoveTarget(parity.stream(),
             {.n = n, .tau = 1, .value = value.data(), .target = target.data(), .go = go.data()});
  parity.Equal("m", parity.Download(m), a.m);
  parity.Equal("v", parity.Download(v), a.v);
  parity.Equal("value", parity.Download(value), a.value);
  parity.Equal("target", parity.Download(target), a.m);
}

void SumSquaresIsExactEnough(Parity& parity) {
  for (const std::int64_t n : {std::int64_t(1), std::int64_t(1023), Size(parity)}) {
    std::vector<float> x = parity.Random(n);
    x[0] = 1e25f;  // its square exceeds f32
    const auto on_device = parity.Upload(x);
    const auto partial = parity.Output<double>(kSumSquaresParts), sum = parity.Output<double>(1);
    SumSquares(parity.stream(),
               {.n = n, .x = on_device.data(), .partial = partial.data(), .sum = sum.data()});
    double want = 0;
    for (const float f : x) want += double(f) * f;
    // Orders of f64 sums differ by n roundings of 1e-16.
    parity.Close("sum", parity.Download(sum), std::vector<double>{want}, 1e-12);
  }
  std::vector<float> x = parity.Random(1000);
  x[731] = NAN;
  const auto on_device = parity.Upload(x);
  const auto partial = parity.Output<double>(kSumSquaresParts), sum = parity.Output<double>(1);
  SumSquaresArgs args{
      .n = 1000, .x = on_device.data(), .partial = partial.data(), .sum = sum.data()};
  SumSquares(parity.stream(), args);
  parity.True("NaN is seen", std::isnan(parity.Download(sum)[0]));
  // Excluded blocks of 16: some, the one with the NaN, and the last one, which is short.
  std::vector<std::uint8_t> left_out(63, 0);
  left_out[2] = left_out[731 / 16] = left_out[62] = 1;
  const auto flags = parity.Upload(left_out);
  args.left_out = flags.data();
  SumSquares(parity.stream(), args);
  double want = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    if (left_out[i / 16] == 0) want += double(x[i]) * x[i];
  parity.Close("sum of what counts", parity.Download(sum), std::vector<double>{want}, 1e-12);
}

void TheTargetFollows(Parity& parity) {
  const std::int64_t n = Size(parity);
  const std::vector<float> value = parity.Random(n), target = parity.Random(n);
  const auto on_device = parity.Upload(value), followed = parity.Upload(target),
             copied = parity.Upload(target);
  MoveTarget(parity.stream(),
             {.n = n, .tau = 0.01f, .value = on_device.data(), .target = followed.data()});
  MoveTarget(parity.stream(),
             {.n = n, .tau = 1, .value = on_device.data(), .target = copied.data()});
  std::vector<double> want;
  for (std::size_t i = 0; i < value.size(); ++i)
    want.push_back(target[i] + double(0.01f) * (double(value[i]) - target[i]));
  parity.Close("followed", parity.Download(followed), want, 1e-6);
  parity.Equal("copied", parity.Download(copied), value);
}

}  // namespace

std::vector<ParityCase> OptimizerCases() {
  return {{"Optimizer.AdamGivesTheBitsOfTheCpu", AdamGivesTheBitsOfTheCpu},
          {"Optimizer.RmsPropGivesTheBitsOfTheCpu", RmsPropGivesTheBitsOfTheCpu},
          {"Optimizer.SgdGivesTheBitsOfTheCpu", SgdGivesTheBitsOfTheCpu},
          {"Optimizer.ARefusedUpdateChangesNothing", ARefusedUpdateChangesNothing},
          {"Optimizer.SumSquaresIsExactEnough", SumSquaresIsExactEnough},
          {"Optimizer.TheTargetFollows", TheTargetFollows}};
}

}  // namespace troop::cuda
