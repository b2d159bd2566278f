// Implements linear and conv2d layers, which share everything except their kernel.
#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "kernels/conv/conv2d.h"
#include "kernels/elementwise/cast.h"
#include "kernels/linear/linear.h"
#include "nn/arena.h"
#include "nn/layers/layers.h"
#include "nn/with_packed.h"

namespace troop {
namespace {

struct WeightedPacked final : Packed {
  DType compute = DType::kF32;
  std::unique_ptr<LayerKernel> kernel;
};

// Differences between the two kinds of layer.
struct WeightedOptions {
  const char* name;
  std::int64_t in;  // elements per row
  Shape out;        // without the batch
  Shape weight;
  std::int64_t fan_in;
  Activation activation;
  bool bias = true;
  float deviation = 0;  // of the initial weights; 0: uniform
  std::function<std::unique_ptr<LayerKernel>(const KernelOptions&)> make_kernel;
};

// Parameters: weight, then bias, if there is one. The cache holds the output if there is an
// activation, from which its derivative is computed.
class WeightedLayer final : public Module {
 public:
  // The bias begins at the next cache line.
  explicit WeightedLayer(WeightedOptions options) : options_(std::move(options)) {
    const auto init = ParamSpec::Init::kUniformFanIn;
    const std::int64_t bias_at = AlignParams(options_.weight.elements());
    params_ = {{"weight", options_.weight, 0, init, options_.fan_in},
               {"bias", {options_.weight[0]}, bias_at, init, options_.fan_in}};
    if (options_.deviation > 0) {
      params_[0].init = ParamSpec::Init::kNormal;
      params_[0].deviation = options_.deviation;
    }
    if (options_.bias) return;
    // The kernels add a bias in any case.
    params_.pop_back();
    zeros_.assign(std::size_t(options_.weight[0]), 0.0f);
  }

  std::span<const ParamSpec> params() const override { return params_; }

  // The workspace holds the gradient before the activation, and that of a bias of zeros.
  Result<Plan> MakePlan(std::span<const TensorSpec> in) const override {
    TROOP_RETURN_IF_ERROR(CheckInput(in, options_.in, options_.name));
    const TensorSpec out{DType::kF32, options_.out.Prepend(in[0].shape[0])};
    Plan plan{.out = {out}, .workspace_bytes = AlignBytes(out.bytes()) + ZerosBytes()};
    if (options_.activation != Activation::kNone) {
      plan.cache_bytes = AlignBytes(out.bytes());
      plan.cache_begins_with_out = true;
    }
    return plan;
  }

  std::unique_ptr<Packed> MakePacked(Precision precision) const override {
    auto packed = std::make_unique<WeightedPacked>();
    packed->compute = ActivationDType(AvailablePrecision(precision));
    packed->kernel = options_.make_kernel({packed->compute, options_.activation});
    return packed;
  }

  void Pack(std::span<const float> value, Packed* packed) const override {
    static_cast<WeightedPacked*>(packed)->kernel->Pack(Weights(value));
  }

  // Without Packed the weights are packed for this call only.
  void Forward(const StepContext& context, std::span<const ConstTensor> in,
               std::span<const Tensor> out, Cache cache) const override {
    if (context.packed == nullptr)
      return WithPacked(*this, context,
                        [&](const StepContext& with) { Forward(with, in, out, cache); });
    const auto& packed = static_cast<const WeightedPacked&>(*context.packed);
    CheckDType(packed, in[0]);
    packed.kernel->Forward(in[0].dim(0), Weights(context.value), in[0].bytes().data(),
                           out[0].bytes().data(), out[0].dtype());
    if (options_.activation == Activation::kNone || cache.empty()) return;
    const auto bytes = out[0].bytes();
    if (bytes.data() != cache.data()) std::memcpy(cache.data(), bytes.data(), bytes.size());
  }

  void Backward(const StepContext& context, std::span<const ConstTensor> in,
                std::span<const ConstTensor> dout, Cache cache,
                std::span<const Tensor> din) const override {
    if (context.packed == nullptr)
      return WithPacked(*this, context,
                        [&](const StepContext& with) { Backward(with, in, dout, cache, din); });
    const auto& packed = static_cast<const WeightedPacked&>(*context.packed);
    CheckDType(packed, in[0]);
    const std::int64_t batch = in[0].dim(0);
    // 1. The gradient before the activation, in the kernel's type.
    const void* dz = dout[0].bytes().data();
    if (options_.activation != Activation::kNone || dout[0].dtype() != packed.compute) {
      ActivationBackward({.activation = options_.activation,
                          .n = dout[0].elements(),
                          .y = cache.data(),
                          .dy = dz,
                          .dtype = dout[0].dtype(),
                          .dz = context.workspace.data(),
                          .dz_dtype = packed.compute});
      dz = context.workspace.data();
    }
    // 2. Gradients of the parameters, and of the input if wanted.
    if (!context.gradient.empty()) {
      packed.kernel->BackwardWeight(
          batch, in[0].bytes().data(), dz,
          {context.gradient.data(),
           BiasGradient(context, AlignBytes(std::size_t(dout[0].elements()) * sizeof(float)))},
          context.accumulate);
    }
    if (!din.empty() && !din[0].empty()) {
      packed.kernel->BackwardData(batch, Weights(context.value), dz, din[0].bytes().data(),
                                  din[0].dtype());
    }
  }

 private:
  LayerWeights Weights(std::span<const float> value) const {
    return {value.data(), options_.bias ? value.data() + params_[1].offset : zeros_.data()};
  }
  // Workspace of a gradient that is not wanted; 0 with a bias.
  std::size_t ZerosBytes() const { return AlignBytes(zeros_.size() * sizeof(float)); }
  // Its place in the gradient, or in the workspace after `used` bytes, where it is discarded.
  float* BiasGradient(const StepContext& context, std::size_t used) const {
    if (options_.bias) return context.gradient.data() + params_[1].offset;
    float* const unused = reinterpret_cast<float*>(context.workspace.subspan(used).data());
    // The kernel may add, and numbers that were never set could be slow or trap.
    std::copy(zeros_.begin(), zeros_.end(), unused);
    return unused;
  }
  void CheckDType(const WeightedPacked& packed, const ConstTensor& in) const {
    TROOP_CHECK(in.dtype() == packed.compute, "{} computes in {}, its input is {}", options_.name,
                DTypeName(packed.compute), DTypeName(in.dtype()));
  }
  const WeightedOptions options_;
  std::vector<ParamSpec> params_;
  std::vector<float> zeros_;  // without a bias: the kernel's
};

}  // namespace

// A linear layer flattens its input.
std::unique_ptr<Module> MakeLinear(std::int64_t in, std::int64_t units, Activation activation) {
  return std::make_unique<WeightedLayer>(
      WeightedOptions{.name = "linear",
                      .in = in,
                      .out = {units},
                      .weight = {units, in},
                      .fan_in = in,
                      .activation = activation,
                      .make_kernel = [=](const KernelOptions& k) {
                        return MakeLinearKernel({in, units}, k);
                      }});
}

// Fan-in: inputs of one filter application.
std::unique_ptr<Module> MakeConv2d(const Conv2dOptions& o) {
  const ConvShape shape{o.height, o.width,  o.channels, o.filters,
                        o.kernel, o.stride, o.padding,  o.groups};
  return std::make_unique<WeightedLayer>(WeightedOptions{
      .name = "conv2d",
      .in = o.height * o.width * o.channels,
      .out = {shape.out_height(), shape.out_width(), o.filters},
      .weight = {o.filters, o.kernel, o.kernel, o.channels / o.groups},
      .fan_in = shape.fan_in(),
      .activation = o.activation,
      .bias = o.bias,
      .deviation = o.deviation,
      .make_kernel = [=](const KernelOptions& k) { return MakeConvKernel(shape, k); }});
}

}  // namespace troop
