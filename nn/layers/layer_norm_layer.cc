// Implements the layer that normalizes the last axis of its input.
#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/elementwise/cast.h"
#include "kernels/simd/cpu_features.h"
#include "kernels/transformer/layer_norm_gelu.h"
#include "nn/arena.h"
#include "nn/layers/layers.h"

namespace troop {
namespace {

// Packed form: copies of weight and bias.
struct LayerNormPacked final : Packed {
  std::vector<float> weight, bias;
};

const TransformerKernels& Kernels() {
  static const TransformerKernels& kernels = TransformerKernelsFor(BestCpuLevel());
  return kernels;
}

float* Floats(std::span<std::byte> bytes) { return reinterpret_cast<float*>(bytes.data()); }

// Statistics are f32; within a bf16 network the input and the gradients are converted.
class LayerNormLayer final : public Module {
 public:
  LayerNormLayer(std::int64_t n, Activation activation)
      : n_(n),
        activation_(activation),
        params_({{.name = "weight",
                  .shape = {n},
                  .offset = 0,
                  .init = ParamSpec::Init::kOnes,
                  .decays = false},
                 {.name = "bias", .shape = {n}, .offset = AlignParams(n), .decays = false}}) {}

  std::span<const ParamSpec> params() const override { return params_; }

  // The cache has the output, from which the activation's derivative follows, and the statistics of
  // each row. The workspace has the input or a gradient as f32, and unwanted gradients.
  Result<Plan> MakePlan(std::span<const TensorSpec> in) const override {
    TROOP_RETURN_IF_ERROR(CheckInput(in, 0, "layer_norm"));
    const Shape& shape = in[0].shape;
    if (shape.rank() < 2 || shape[shape.rank() - 1] != n_) {
      return InvalidArgument("layer_norm: takes a tensor [B, …, {}], not {}", n_, in[0].ToString());
    }
    const TensorSpec out{DType::kF32, shape};
    const std::size_t statistics = AlignBytes(Rows(out.shape.elements()) * sizeof(float));
    return Plan{.out = {out},
                .cache_bytes = AlignBytes(out.bytes()) + 2 * statistics,
                .workspace_bytes =
                    2 * AlignBytes(out.bytes()) + 2 * std::max(statistics, AlignBytes(Bytes(n_))),
                .cache_begins_with_out = true};
  }

  std::unique_ptr<Packed> MakePacked(Precision) const override {
    auto packed = std::make_unique<LayerNormPacked>();
    packed->weight.resize(std::size_t(n_));
    packed->bias.resize(std::size_t(n_));
    return packed;
  }
  void Pack(std::span<const float> value, Packed* packed) const override {
    auto& mine = static_cast<LayerNormPacked&>(*packed);
    std::copy_n(value.begin(), n_, mine.weight.begin());
    std::copy_n(value.begin() + params_[1].offset, n_, mine.bias.begin());
  }

  void Forward(const StepContext& context, std::span<const ConstTensor> in,
               std::span<const Tensor> out, Cache cache) const override {
    const Weights weights = WeightsOf(context);
    const std::int64_t elements = in[0].elements();
    // In training the statistics are kept for the backward pass.
    Arena workspace(context.workspace);
    Statistics rows =
        cache.empty() ? TakeStatistics(elements, &workspace) : StatisticsOf(elements, cache);
    const float* const x = AsF32(in[0], &workspace);
    // A bf16 output is rounded after the activation.
    const bool wide = out[0].dtype() == DType::kF32;
    float* const y = wide ? Floats(out[0].bytes()) : Floats(workspace.Take(Bytes(elements)));
    Kernels().layer_norm({std::int64_t(Rows(elements)), n_, kLayerNormEpsilon}, x, weights.weight,
                         weights.bias, y, rows.mean, rows.rstd);
    if (activation_ != Activation::kNone)
      ActivationForward(activation_, elements, y, y, DType::kF32);
    if (!wide) {
      ConvertScaled({.n = elements, .x = y, .y = out[0].bytes().data(), .y_dtype = out[0].dtype()});
    }
    // The caller may place the output in the cache itself (cache_begins_with_out).
    const auto bytes = out[0].bytes();
    if (!cache.empty() && bytes.data() != cache.data())
      std::memcpy(cache.data(), bytes.data(), bytes.size());
  }

  // First the gradient of the activation's input, then that of the normalization.
  void Backward(const StepContext& context, std::span<const ConstTensor> in,
                std::span<const ConstTensor> dout, Cache cache,
                std::span<const Tensor> din) const override {
    const Weights weights = WeightsOf(context);
    const std::int64_t elements = in[0].elements();
    Arena workspace(context.workspace);
    float* const dz = Floats(workspace.Take(Bytes(elements)));
    ActivationBackward({.activation = activation_,
                        .n = elements,
                        .y = cache.data(),
                        .dy = dout[0].bytes().data(),
                        .dtype = dout[0].dtype(),
                        .dz = dz,
                        .dz_dtype = DType::kF32});
    const float* const x = AsF32(in[0], &workspace);
    float* dweight = Floats(workspace.Take(Bytes(n_)));
    float* dbias = Floats(workspace.Take(Bytes(n_)));
    // Unwanted gradients go to the workspace.
    const bool wanted = !context.gradient.empty();
    if (wanted) {
      dweight = context.gradient.data();
      dbias = dweight + params_[1].offset;
    }
    // The kernel adds.
    if (!wanted || !context.accumulate) {
      std::fill_n(dweight, n_, 0.0f);
      std::fill_n(dbias, n_, 0.0f);
    }
    const Statistics rows = StatisticsOf(elements, cache);
    Kernels().layer_norm_backward({std::int64_t(Rows(elements)), n_, kLayerNormEpsilon}, x,
                                  weights.weight, rows.mean, rows.rstd, dz, dz, dweight, dbias);
    if (din.empty() || din[0].empty()) return;
    ConvertScaled({.n = elements, .x = dz, .y = din[0].bytes().data(), .y_dtype = din[0].dtype()});
  }

 private:
  // Weight and bias: [n] each.
  struct Weights {
    const float *weight, *bias;
  };
  // Without Packed they are those of the value.
  Weights WeightsOf(const StepContext& context) const {
    if (context.packed == nullptr)
      return {context.value.data(), context.value.data() + params_[1].offset};
    const auto& packed = static_cast<const LayerNormPacked&>(*context.packed);
    return {packed.weight.data(), packed.bias.data()};
  }

  // Numbers of the rows: [rows] each.
  struct Statistics {
    float *mean, *rstd;
  };
  static std::size_t Bytes(std::int64_t elements) { return std::size_t(elements) * sizeof(float); }
  std::size_t Rows(std::int64_t elements) const { return std::size_t(elements / n_); }

  Statistics TakeStatistics(std::int64_t elements, Arena* arena) const {
    float* const mean = Floats(arena->Take(Rows(elements) * sizeof(float)));
    return {mean, Floats(arena->Take(Rows(elements) * sizeof(float)))};
  }
  // They follow the output.
  Statistics StatisticsOf(std::int64_t elements, Cache cache) const {
    Arena rest(cache.subspan(AlignBytes(Bytes(elements))));
    return TakeStatistics(elements, &rest);
  }
  // The values themselves, or a copy in the workspace.
  static const float* AsF32(const ConstTensor& tensor, Arena* workspace) {
    if (tensor.dtype() == DType::kF32) return tensor.as<float>().data();
    float* const out = Floats(workspace->Take(Bytes(tensor.elements())));
    ConvertScaled(
        {.n = tensor.elements(), .x = tensor.bytes().data(), .x_dtype = tensor.dtype(), .y = out});
    return out;
  }

  const std::int64_t n_;
  const Activation activation_;
  const std::vector<ParamSpec> params_;
};

}  // namespace

std::unique_ptr<Module> MakeLayerNorm(std::int64_t n, Activation activation) {
  return std::make_unique<LayerNormLayer>(n, activation);
}

}  // namespace troop
