// Optimizers, norms and target updates over all parameters. Compiled without contraction of
// multiplication and addition (cmake/TroopCuda.cmake), so that bits equal the CPU's.
#include "kernels/cuda/ops/optimizer_step.h"

#include "kernels/cuda/runtime/block_sum.h"
#include "kernels/cuda/runtime/launch.h"

namespace troop::cuda {
namespace {

// Four elements per thread: 16-byte accesses. Adam has four independent ones in flight before it
// uses the first.
constexpr int kThreads = 256, kEach = 4;

// One thread per kEach elements.
LaunchShape Over(std::int64_t n) {
  return {dim3(unsigned(CeilDivide(n, kThreads * kEach))), dim3(kThreads)};
}

// The formulas, in the order of operations of kernels/optim/optimizer_step_impl.h.
TROOP_DEVICE void AdamElement(const AdamStep& s, float gradient, float& m, float& v, float& value) {
  const float g = gradient * s.gradient_scale;
  m = s.beta1 * m + s.one_minus_beta1 * g;
  v = s.beta2 * v + s.one_minus_beta2 * (g * g);
  value = s.decay_factor * value - s.step_size * (m / (sqrtf(v) * s.root_scale + s.epsilon));
}

template <bool kCentered>
TROOP_DEVICE void RmsPropElement(const RmsPropStep& s, float gradient, float& m, float& v,
                                 float& value) {
  const float g = gradient * s.gradient_scale;
  v = s.decay * v + s.one_minus_decay * (g * g);
  float variance = v;
  if constexpr (kCentered) {
    m = s.decay * m + s.one_minus_decay * g;
    variance = v - m * m;
    variance = variance < 0 ? 0 : variance;  // NaN stays NaN
  }
  value = s.decay_factor * value - s.learning_rate * (g / sqrtf(variance + s.epsilon));
}

template <bool kMomentum>
TROOP_DEVICE void SgdElement(const SgdStep& s, float gradient, float& m, float& value) {
  const float g = gradient * s.gradient_scale + s.weight_decay * value;
  if constexpr (kMomentum) {
    m = s.momentum * m + g;
    value = value - s.learning_rate * m;
  } else {
    value = value - s.learning_rate * g;
  }
}

// Interface of a rule: which state arrays it has, how a step leaves out the weight decay, and its
// update.
struct AdamRule {
  using Step = AdamStep;
  static constexpr bool kM = true, kV = true;
  TROOP_DEVICE static void LeaveOutDecay(Step& s) { s.decay_factor = 1; }
  TROOP_DEVICE static void Apply(const Step& s, float g, float& m, float& v, float& x) {
    AdamElement(s, g, m, v, x);
  }
};
// m is used only if kCentered.
template <bool kCentered>
struct RmsPropRule {
  using Step = RmsPropStep;
  static constexpr bool kM = kCentered, kV = true;
  TROOP_DEVICE static void LeaveOutDecay(Step& s) { s.decay_factor = 1; }
  TROOP_DEVICE static void Apply(const Step& s, float g, float& m, float& v, float& x) {
    RmsPropElement<kCentered>(s, g, m, v, x);
  }
};
// SGD has no second moment; its weight decay is coupled.
template <bool kMomentum>
struct SgdRule {
  using Step = SgdStep;
  static constexpr bool kM = kMomentum, kV = false;
  TROOP_DEVICE static void LeaveOutDecay(Step& s) { s.weight_decay = 0; }
  TROOP_DEVICE static void Apply(const Step& s, float g, float& m, float&, float& x) {
    SgdElement<kMomentum>(s, g, m, x);
  }
};

// One update of all parameters.
template <class Rule>
TROOP_KERNEL void StepKernel(const typename Rule::Step* step, OptimizerArrays a) {
  if (a.go != nullptr && *a.go == 0) return;
  typename Rule::Step s = *step;
  const std::int64_t i = (std::int64_t(blockIdx.x) * kThreads + threadIdx.x) * kEach;
  // Four elements never span two blocks of parameters.
  if (a.spared != nullptr && i < a.n && a.spared[i / kParameterBlock] != 0) Rule::LeaveOutDecay(s);
  if (i + kEach <= a.n) {
    // Whole groups of four with vector accesses; state arrays only if the rule has them.
    const float4 g = *reinterpret_cast<const float4*>(a.gradient + i);
    float4 m = make_float4(0, 0, 0, 0), v = m;
    if constexpr (Rule::kM) m = *reinterpret_cast<const float4*>(a.m + i);
    if constexpr (Rule::kV) v = *reinterpret_cast<const float4*>(a.v + i);
    float4 x = *reinterpret_cast<const float4*>(a.value + i);
    Rule::Apply(s, g.x, m.x, v.x, x.x);
    Rule::Apply(s, g.y, m.y, v.y, x.y);
    Rule::Apply(s, g.z, m.z, v.z, x.z);
    Rule::Apply(s, g.w, m.w, v.w, x.w);
    if constexpr (Rule::kM) *reinterpret_cast<float4*>(a.m + i) = m;
    if constexpr (Rule::kV) *reinterpret_cast<float4*>(a.v + i) = v;
    *reinterpret_cast<float4*>(a.value + i) = x;
    if (a.value_bf16 != nullptr) {
      *reinterpret_cast<uint2*>(a.value_bf16 + i) =
          make_uint2(ToBF16x2(x.x, x.y), ToBF16x2(x.z, x.w));
    }
    return;
  }
  // The last, partial group.
  for (std::int64_t j = i; j < a.n; ++j) {
    float m = Rule::kM ? a.m[j] : 0, v = Rule::kV ? a.v[j] : 0, x = a.value[j];
    Rule::Apply(s, a.gradient[j], m, v, x);
    if constexpr (Rule::kM) a.m[j] = m;
    if constexpr (Rule::kV) a.v[j] = v;
    a.value[j] = x;
    if (a.value_bf16 != nullptr) a.value_bf16[j] = ToBF16(x);
  }
}

// Polyak averaging; tau = 1 copies exactly.
TROOP_KERNEL void MoveTargetKernel(std::int64_t n, float tau, const float* value, float* target,
                                   BF16* target_bf16, const std::int32_t* go) {
  if (go != nullptr && *go == 0) return;
  const std::int64_t i = (std::int64_t(blockIdx.x) * kThreads + threadIdx.x) * kEach;
  for (std::int64_t j = i; j < i + kEach && j < n; ++j) {
    const float x = tau == 1 ? value[j] : target[j] + tau * (value[j] - target[j]);
    target[j] = x;
    if (target_bf16 != nullptr) target_bf16[j] = ToBF16(x);
  }
}

// One partial sum per block.
TROOP_KERNEL void SumSquaresKernel(std::int64_t n, const float* x, const std::uint8_t* left_out,
                                   double* partial) {
  double sum = 0;
  // A grid-stride loop: the assignment of elements depends only on n.
  const std::int64_t stride = std::int64_t(gridDim.x) * kThreads * kEach;
  for (std::int64_t i = (std::int64_t(blockIdx.x) * kThreads + threadIdx.x) * kEach; i < n;
       i += stride) {
    if (left_out != nullptr && left_out[i / kParameterBlock] != 0) continue;
    if (i + kEach <= n) {
      const float4 four = *reinterpret_cast<const float4*>(x + i);
      sum += double(four.x) * four.x + double(four.y) * four.y + double(four.z) * four.z +
             double(four.w) * four.w;
    } else {
      for (std::int64_t j = i; j < n; ++j) sum += double(x[j]) * x[j];
    }
  }
  sum = BlockSum<kThreads>(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

// One block adds the partial sums.
TROOP_KERNEL void SumPartsKernel(int parts, const double* partial, double* sum) {
  double x = 0;
  for (int i = int(threadIdx.x); i < parts; i += kThreads) x += partial[i];
  x = BlockSum<kThreads>(x);
  if (threadIdx.x == 0) *sum = x;
}

// Launches the step kernel of a rule.
template <class Rule>
void Step(Stream& stream, const char* name, const typename Rule::Step* step,
          const OptimizerArrays& arrays) {
  Launch(stream, name, Over(arrays.n), StepKernel<Rule>, step, arrays);
}

}  // namespace

void Adam(Stream& stream, const AdamStep* step, const OptimizerArrays& arrays) {
  Step<AdamRule>(stream, "Adam", step, arrays);
}
void RmsProp(Stream& stream, const RmsPropStep* step, const OptimizerArrays& arrays) {
  if (arrays.m != nullptr) return Step<RmsPropRule<true>>(stream, "RmsProp", step, arrays);
  Step<RmsPropRule<false>>(stream, "RmsProp", step, arrays);
}
void Sgd(Stream& stream, const SgdStep* step, const OptimizerArrays& arrays) {
  if (arrays.m != nullptr) return Step<SgdRule<true>>(stream, "Sgd", step, arrays);
  Step<SgdRule<false>>(stream, "Sgd", step, arrays);
}

std::int64_t SumSquaresInParts(Stream& stream, const SumSquaresArgs& args) {
  const std::int64_t n = args.n;
  const std::int64_t blocks =
      n == 0 ? 0 : min(kSumSquaresParts, CeilDivide(n, std::int64_t(kThreads) * kEach));
  Launch(stream, "SumSquares", {dim3(unsigned(blocks)), dim3(kThreads)}, SumSquaresKernel, n,
         args.x, args.left_out, args.partial);
  return blocks;
}
void SumSquares(Stream& stream, const SumSquaresArgs& args) {
  const std::int64_t parts = SumSquaresInParts(stream, args);
  Launch(stream, "SumParts", {dim3(1), dim3(kThreads)}, SumPartsKernel, int(parts), args.partial,
         args.sum);
}

void MoveTarget(Stream& stream, const MoveTargetArgs& args) {
  Launch(stream, "MoveTarget", Over(args.n), MoveTargetKernel, args.n, args.tau, args.value,
         args.target, args.target_bf16, args.go);
}

}  // namespace troop::cuda
