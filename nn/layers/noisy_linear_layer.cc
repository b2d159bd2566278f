// Implements noisy linear layers. The noisy weights are never formed: with x' = ε_in ⊙ x, the sum
// is mean(x) + ε_out ⊙ deviation(x'), two products of ordinary linear layers, and so are the
// gradients.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/base/philox.h"
#include "kernels/elementwise/cast.h"
#include "kernels/linear/linear.h"
#include "nn/arena.h"
#include "nn/layers/element.h"
#include "nn/layers/layers.h"
#include "nn/with_packed.h"

namespace troop {
namespace {

struct NoisyPacked final : Packed {
  DType compute = DType::kF32;
  std::unique_ptr<LayerKernel> mean, deviation;  // both without an activation
};

// The factors of a pass.
struct Noise {
  std::span<float> in, out;  // [in], [units]
};

// to[b, i] = from[b, i] · factor[i], both of `dtype`.
void ScaleColumns(DType dtype, std::span<const float> factor, std::int64_t batch, const void* from,
                  void* to) {
  WithElement(dtype, [&]<class T>(T*) {
    const T* x = static_cast<const T*>(from);
    T* y = static_cast<T*>(to);
    for (std::int64_t b = 0; b < batch; ++b) {
      for (const float f : factor) *y++ = StoreElement<T>(LoadElement(*x++) * f);
    }
  });
}

// sums[b, i] += factor[i] · more[b, i].
void AddScaledColumns(std::span<const float> factor, std::int64_t batch, const float* more,
                      float* sums) {
  for (std::int64_t b = 0; b < batch; ++b) {
    for (const float f : factor) *sums++ += f * *more++;
  }
}

// The cache holds the output if there is an activation, as in a linear layer.
class NoisyLinear final : public Module {
 public:
  // Offsets of the parameters: each begins at a cache line.
  explicit NoisyLinear(const NoisyLinearOptions& options) : options_(options) {
    const std::int64_t in = options.in, units = options.units;
    const std::int64_t weight = AlignParams(units * in), bias = AlignParams(units);
    const float sigma = options.sigma / std::sqrt(float(in));
    const auto add = [&](const char* name, const Shape& shape, std::int64_t at, bool mean) {
      ParamSpec spec{.name = name, .shape = shape, .offset = at, .fan_in = in};
      spec.init = mean ? ParamSpec::Init::kUniformFanIn : ParamSpec::Init::kConstant;
      if (!mean) spec.constant = sigma;
      params_.push_back(std::move(spec));
    };
    add("weight", {units, in}, 0, true);
    add("bias", {units}, weight, true);
    add("weight_sigma", {units, in}, weight + bias, false);
    add("bias_sigma", {units}, 2 * weight + bias, false);
  }

  std::span<const ParamSpec> params() const override { return params_; }

  // Workspace: the factors, then the buffers of Backward, which are more than those of Forward.
  Result<Plan> MakePlan(std::span<const TensorSpec> in) const override {
    TROOP_RETURN_IF_ERROR(CheckInput(in, options_.in, "noisy linear"));
    const std::int64_t batch = in[0].shape[0];
    const TensorSpec out{DType::kF32, {batch, options_.units}};
    Plan plan{.out = {out}};
    plan.workspace_bytes = BytesTaken([&](Arena& arena) {
      for (const std::int64_t n : {options_.in, options_.units}) TakeFloats(arena, n);
      for (int i = 0; i < 3; ++i) TakeFloats(arena, batch * options_.in);
      for (int i = 0; i < 2; ++i) TakeFloats(arena, batch * options_.units);
    });
    plan.cache_begins_with_out = options_.activation != Activation::kNone;
    if (plan.cache_begins_with_out) plan.cache_bytes = AlignBytes(out.bytes());
    return plan;
  }

  // Two kernels of the same shape, without a fused activation, which follows their sum.
  std::unique_ptr<Packed> MakePacked(Precision precision) const override {
    auto packed = std::make_unique<NoisyPacked>();
    packed->compute = ActivationDType(AvailablePrecision(precision));
    for (auto* kernel : {&packed->mean, &packed->deviation})
      *kernel = MakeLinearKernel({options_.in, options_.units}, {.compute = packed->compute});
    return packed;
  }

  void Pack(std::span<const float> value, Packed* packed) const override {
    auto& mine = static_cast<NoisyPacked&>(*packed);
    mine.mean->Pack(Means(value));
    mine.deviation->Pack(Deviations(value));
  }

  // The sums are f32; the activation is a pass over them.
  void Forward(const StepContext& context, std::span<const ConstTensor> in,
               std::span<const Tensor> out, Cache cache) const override {
    if (context.packed == nullptr)
      return WithPacked(*this, context,
                        [&](const StepContext& with) { Forward(with, in, out, cache); });
    const NoisyPacked& packed = PackedOf(context, in[0]);
    const std::int64_t batch = in[0].dim(0), n = batch * options_.units;
    Arena arena(context.workspace);
    const bool plain = out[0].dtype() == DType::kF32;
    float* const sums =
        plain ? reinterpret_cast<float*>(out[0].bytes().data()) : TakeFloats(arena, n);
    const void* const x = in[0].bytes().data();
    packed.mean->Forward(batch, Means(context.value), x, sums, DType::kF32);
    if (context.noise) {
      const Noise noise = Draw(*context.noise, &arena);
      void* const scaled = TakeFloats(arena, batch * options_.in);
      ScaleColumns(packed.compute, noise.in, batch, x, scaled);
      float* const more = TakeFloats(arena, n);
      packed.deviation->Forward(batch, Deviations(context.value), scaled, more, DType::kF32);
      AddScaledColumns(noise.out, batch, more, sums);
    }
    if (options_.activation != Activation::kNone)
      ActivationForward(options_.activation, n, sums, sums, DType::kF32);
    const auto bytes = out[0].bytes();
    if (!plain) ConvertScaled({.n = n, .x = sums, .y = bytes.data(), .y_dtype = out[0].dtype()});
    if (options_.activation == Activation::kNone || cache.empty()) return;
    if (bytes.data() != cache.data()) std::memcpy(cache.data(), bytes.data(), bytes.size());
  }

  // The noise is drawn again, which costs less than keeping it in memory for large batches.
  void Backward(const StepContext& context, std::span<const ConstTensor> in,
                std::span<const ConstTensor> dout, Cache cache,
                std::span<const Tensor> din) const override {
    if (context.packed == nullptr)
      return WithPacked(*this, context,
                        [&](const StepContext& with) { Backward(with, in, dout, cache, din); });
    const NoisyPacked& packed = PackedOf(context, in[0]);
    const std::int64_t batch = in[0].dim(0), n = batch * options_.units;
    Arena arena(context.workspace);
    // 1. The gradient before the activation, in the kernels' type.
    const void* dz = dout[0].bytes().data();
    if (options_.activation != Activation::kNone || dout[0].dtype() != packed.compute) {
      void* const before = TakeFloats(arena, n);
      ActivationBackward({.activation = options_.activation,
                          .n = n,
                          .y = cache.data(),
                          .dy = dz,
                          .dtype = dout[0].dtype(),
                          .dz = before,
                          .dz_dtype = packed.compute});
      dz = before;
    }
    const void* const x = in[0].bytes().data();
    const bool wants_din = !din.empty() && !din[0].empty();
    const bool wants_gradient = !context.gradient.empty();
    // 2. The means, whose gradients do not depend on the noise.
    if (wants_gradient)
      packed.mean->BackwardWeight(batch, x, dz, Gradient(context, 0), context.accumulate);
    if (!context.noise) {
      if (wants_gradient && !context.accumulate) ClearDeviations(context.gradient);
      if (wants_din)
        packed.mean->BackwardData(batch, Means(context.value), dz, din[0].bytes().data(),
                                  din[0].dtype());
      return;
    }
    // 3. The deviations: gradients of the sum ε_out ⊙ deviation(ε_in ⊙ x).
    const Noise noise = Draw(*context.noise, &arena);
    void* const dscaled = TakeFloats(arena, n);
    ScaleColumns(packed.compute, noise.out, batch, dz, dscaled);
    void* const scaled = TakeFloats(arena, batch * options_.in);
    if (wants_gradient) {
      ScaleColumns(packed.compute, noise.in, batch, x, scaled);
      packed.deviation->BackwardWeight(batch, scaled, dscaled, Gradient(context, 2),
                                       context.accumulate);
    }
    if (!wants_din) return;
    // 4. The input, in f32 until both parts are added.
    const bool plain = din[0].dtype() == DType::kF32;
    const std::int64_t inputs = batch * options_.in;
    float* const dx =
        plain ? reinterpret_cast<float*>(din[0].bytes().data()) : TakeFloats(arena, inputs);
    float* const more = TakeFloats(arena, inputs);
    packed.mean->BackwardData(batch, Means(context.value), dz, dx, DType::kF32);
    packed.deviation->BackwardData(batch, Deviations(context.value), dscaled, more, DType::kF32);
    AddScaledColumns(noise.in, batch, more, dx);
    if (!plain)
      ConvertScaled({.n = inputs, .x = dx, .y = din[0].bytes().data(), .y_dtype = din[0].dtype()});
  }

 private:
  // The two plain layers within the flat buffer.
  LayerWeights Means(std::span<const float> value) const {
    return {value.data(), value.data() + params_[1].offset};
  }
  LayerWeights Deviations(std::span<const float> value) const {
    return {value.data() + params_[2].offset, value.data() + params_[3].offset};
  }
  // Gradient of the weight and the bias from params_[first] on.
  LayerGradient Gradient(const StepContext& context, std::size_t first) const {
    float* const gradient = context.gradient.data();
    return {gradient + params_[first].offset, gradient + params_[first + 1].offset};
  }
  // Without noise the deviations have no effect.
  void ClearDeviations(std::span<float> gradient) const {
    for (const ParamSpec& spec : std::span(params_).last(2))
      std::ranges::fill(
          gradient.subspan(std::size_t(spec.offset), std::size_t(spec.shape.elements())), 0.0f);
  }

  // The packed form of a call, whose input must have its type.
  const NoisyPacked& PackedOf(const StepContext& context, const ConstTensor& in) const {
    const auto& packed = static_cast<const NoisyPacked&>(*context.packed);
    TROOP_CHECK(in.dtype() == packed.compute, "noisy linear computes in {}, its input is {}",
                DTypeName(packed.compute), DTypeName(in.dtype()));
    return packed;
  }

  // f(x) = sign(x) sqrt(|x|) of normal numbers: inputs, then units.
  Noise Draw(const NoiseKey& key, Arena* arena) const {
    const Noise noise{{TakeFloats(*arena, options_.in), std::size_t(options_.in)},
                      {TakeFloats(*arena, options_.units), std::size_t(options_.units)}};
    Rng rng({.run_seed = key.seed,
             .purpose = Purpose::kNoisyLayer,
             .index = options_.place,
             .episode = key.draw});
    for (const std::span<float> factors : {noise.in, noise.out}) {
      for (float& f : factors) {
        const double x = rng.Normal();
        f = float(std::copysign(std::sqrt(std::abs(x)), x));
      }
    }
    return noise;
  }

  const NoisyLinearOptions options_;
  std::vector<ParamSpec> params_;
};

}  // namespace

std::unique_ptr<Module> MakeNoisyLinear(const NoisyLinearOptions& options) {
  TROOP_CHECK(options.in > 0 && options.units > 0, "noisy linear {} -> {}", options.in,
              options.units);
  return std::make_unique<NoisyLinear>(options);
}

}  // namespace troop
