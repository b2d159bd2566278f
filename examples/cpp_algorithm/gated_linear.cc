// Implements the gated linear layer with its backward pass.
#include "gated_linear.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "nn/arena.h"

namespace {

// Both weights transposed, [in, units], so that the inner loop of the forward pass is contiguous.
struct GatedPacked final : troop::Packed {
  std::vector<float> weight, gate;
};

class GatedLinear final : public troop::Module {
 public:
  GatedLinear(std::int64_t in, std::int64_t units) : in_(in), units_(units) {
    // All parameters of a network share one buffer: each begins at a multiple of 16 elements.
    std::int64_t end = 0;
    const auto add = [&](const char* name, troop::Shape shape) {
      troop::ParamSpec param;
      param.name = name;
      param.shape = shape;
      param.offset = end;
      param.init = troop::ParamSpec::Init::kUniformFanIn;
      param.fan_in = in;
      params_.push_back(param);
      end += troop::AlignParams(shape.elements());
    };
    add("weight", {units, in});
    add("bias", {units});
    add("gate_weight", {units, in});
    add("gate_bias", {units});
  }

  std::span<const troop::ParamSpec> params() const override { return params_; }

  // Cache: W x + b and the gate, [B, units] each.
  troop::Result<troop::Plan> MakePlan(std::span<const troop::TensorSpec> in) const override {
    TROOP_RETURN_IF_ERROR(troop::CheckInput(in, in_, "gated linear layer"));
    const std::int64_t batch = in[0].shape[0];
    const std::size_t bytes = std::size_t(batch * units_) * sizeof(float);
    return troop::Plan{.out = {{troop::DType::kF32, {batch, units_}}},
                       .cache_bytes = 2 * troop::AlignBytes(bytes),
                       .workspace_bytes = 2 * troop::AlignBytes(bytes)};
  }

  std::unique_ptr<troop::Packed> MakePacked(troop::Precision) const override {
    auto packed = std::make_unique<GatedPacked>();
    packed->weight.resize(std::size_t(in_ * units_));
    packed->gate.resize(std::size_t(in_ * units_));
    return packed;
  }

  void Pack(std::span<const float> value, troop::Packed* packed) const override {
    auto& mine = static_cast<GatedPacked&>(*packed);
    for (std::int64_t u = 0; u < units_; ++u) {
      for (std::int64_t i = 0; i < in_; ++i) {
        mine.weight[std::size_t(i * units_ + u)] = At(value, 0)[u * in_ + i];
        mine.gate[std::size_t(i * units_ + u)] = At(value, 2)[u * in_ + i];
      }
    }
  }

  // Inference keeps both products in the workspace, training in the cache.
  void Forward(const troop::StepContext& context, std::span<const troop::ConstTensor> in,
               std::span<const troop::Tensor> out, troop::Cache cache) const override {
    const std::int64_t batch = in[0].dim(0);
    troop::Arena arena(cache.empty() ? context.workspace : cache);
    const auto [linear, gate] = Take(batch, &arena);
    const auto run = [&](const GatedPacked& packed) {
      Multiply(batch, in[0].as<float>().data(), packed.weight.data(), At(context.value, 1), linear);
      Multiply(batch, in[0].as<float>().data(), packed.gate.data(), At(context.value, 3), gate);
    };
    if (context.packed != nullptr) {
      run(static_cast<const GatedPacked&>(*context.packed));
    } else {
      const auto packed = MakePacked(troop::Precision::kF32);
      Pack(context.value, packed.get());
      run(static_cast<const GatedPacked&>(*packed));
    }
    float* const y = out[0].as<float>().data();
    for (std::int64_t i = 0; i < batch * units_; ++i) {
      gate[i] = 1.0f / (1.0f + std::exp(-gate[i]));
      y[i] = linear[i] * gate[i];
    }
  }

  // With u = W x + b and s = sigmoid(V x + c): du = dy · s, dz = dy · u · s · (1 - s).
  void Backward(const troop::StepContext& context, std::span<const troop::ConstTensor> in,
                std::span<const troop::ConstTensor> dout, troop::Cache cache,
                std::span<const troop::Tensor> din) const override {
    const std::int64_t batch = in[0].dim(0);
    troop::Arena kept(cache), arena(context.workspace);
    const auto [linear, gate] = Take(batch, &kept);
    const auto [du, dz] = Take(batch, &arena);
    const float* const dy = dout[0].as<float>().data();
    for (std::int64_t i = 0; i < batch * units_; ++i) {
      du[i] = dy[i] * gate[i];
      dz[i] = dy[i] * linear[i] * gate[i] * (1.0f - gate[i]);
    }
    // An empty gradient or din is not wanted.
    if (!context.gradient.empty()) {
      const float* const x = in[0].as<float>().data();
      AddGradient(batch, x, du, context, 0);
      AddGradient(batch, x, dz, context, 2);
    }
    if (din.empty() || din[0].empty()) return;
    float* const dx = din[0].as<float>().data();
    std::fill_n(dx, batch * in_, 0.0f);
    AddInputGradient(batch, du, At(context.value, 0), dx);
    AddInputGradient(batch, dz, At(context.value, 2), dx);
  }

 private:
  struct Pair {
    float *first, *second;  // [B, units] each
  };
  Pair Take(std::int64_t batch, troop::Arena* arena) const {
    const std::size_t bytes = std::size_t(batch * units_) * sizeof(float);
    auto* const first = reinterpret_cast<float*>(arena->Take(bytes).data());
    return {first, reinterpret_cast<float*>(arena->Take(bytes).data())};
  }
  const float* At(std::span<const float> value, std::size_t param) const {
    return value.data() + params_[param].offset;
  }

  // y = x w + bias. x: [B, in], w: [in, units], y: [B, units].
  void Multiply(std::int64_t batch, const float* x, const float* w, const float* bias,
                float* y) const {
    for (std::int64_t b = 0; b < batch; ++b, x += in_, y += units_) {
      std::copy_n(bias, units_, y);
      for (std::int64_t i = 0; i < in_; ++i) {
        for (std::int64_t u = 0; u < units_; ++u) y[u] += x[i] * w[i * units_ + u];
      }
    }
  }

  // Gradients of parameter `first` (a weight) and of the bias after it, from dz [B, units].
  void AddGradient(std::int64_t batch, const float* x, const float* dz,
                   const troop::StepContext& context, std::size_t first) const {
    float* const weight = context.gradient.data() + params_[first].offset;
    float* const bias = context.gradient.data() + params_[first + 1].offset;
    if (!context.accumulate) {
      std::fill_n(weight, units_ * in_, 0.0f);
      std::fill_n(bias, units_, 0.0f);
    }
    for (std::int64_t b = 0; b < batch; ++b, x += in_, dz += units_) {
      for (std::int64_t u = 0; u < units_; ++u) {
        bias[u] += dz[u];
        for (std::int64_t i = 0; i < in_; ++i) weight[u * in_ + i] += dz[u] * x[i];
      }
    }
  }

  // dx += dz w. w: [units, in].
  void AddInputGradient(std::int64_t batch, const float* dz, const float* w, float* dx) const {
    for (std::int64_t b = 0; b < batch; ++b, dz += units_, dx += in_) {
      for (std::int64_t u = 0; u < units_; ++u) {
        for (std::int64_t i = 0; i < in_; ++i) dx[i] += dz[u] * w[u * in_ + i];
      }
    }
  }

  const std::int64_t in_, units_;
  std::vector<troop::ParamSpec> params_;  // weight, bias, gate_weight, gate_bias
};

}  // namespace

troop::Result<troop::OwnLayer> MakeGatedLinear(const troop::OwnLayerRequest& request) {
  if (request.layer.units < 1) return troop::InvalidArgument("has no units; add units = 64");
  troop::OwnLayer layer;
  layer.module = std::make_unique<GatedLinear>(request.in.elements(), request.layer.units);
  return layer;
}
