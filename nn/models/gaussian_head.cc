// Implements the head of a Gaussian policy: means and log standard deviations as one product.
#include <string>

#include "kernels/elementwise/cast.h"
#include "nn/arena.h"
#include "nn/layers/layers.h"
#include "nn/models/joint_layer.h"
#include "nn/with_packed.h"

namespace troop {
namespace {

struct GaussianPacked final : Packed {
  DType compute = DType::kF32;
  std::unique_ptr<JointLayer> layer;  // [2A, in]
};

// Two linear layers with the same input.
class GaussianHead final : public Module {
 public:
  GaussianHead(std::int64_t in, std::int64_t actions) : in_(in), actions_(actions) {
    // The means come first, under the names that a deterministic head has, so that exports need no
    // case for this one. Offsets: each weight is followed by its bias.
    const std::int64_t weight = AlignParams(actions * in), bias = AlignParams(actions);
    mean_ = {0, weight, 0, actions, 0, in};
    log_std_ = {weight + bias, weight + bias + weight, actions, actions, 0, in};
    Add("", mean_);
    Add("log_std.", log_std_);
  }

  std::span<const ParamSpec> params() const override { return params_; }

  // Nothing is kept for Backward. Workspace: the output's gradient in the precision of the layer.
  Result<Plan> MakePlan(std::span<const TensorSpec> in) const override {
    TROOP_RETURN_IF_ERROR(CheckInput(in, in_, "gaussian head"));
    const TensorSpec out{DType::kF32, {in[0].shape[0], 2 * actions_}};
    return Plan{.out = {out}, .cache_bytes = 0, .workspace_bytes = AlignBytes(out.bytes())};
  }

  std::unique_ptr<Packed> MakePacked(Precision precision) const override {
    auto packed = std::make_unique<GaussianPacked>();
    packed->compute = ActivationDType(AvailablePrecision(precision));
    packed->layer = std::make_unique<JointLayer>(in_, 2 * actions_, std::vector{mean_, log_std_},
                                                 KernelOptions{packed->compute});
    return packed;
  }

  void Pack(std::span<const float> value, Packed* packed) const override {
    static_cast<GaussianPacked&>(*packed).layer->Pack(value);
  }

  // Without Packed the weights are packed for this call only.
  void Forward(const StepContext& context, std::span<const ConstTensor> in,
               std::span<const Tensor> out, Cache cache) const override {
    if (context.packed == nullptr)
      return WithPacked(*this, context,
                        [&](const StepContext& with) { Forward(with, in, out, cache); });
    const auto& packed = static_cast<const GaussianPacked&>(*context.packed);
    TROOP_CHECK(in[0].dtype() == packed.compute, "gaussian head: {} input",
                DTypeName(in[0].dtype()));
    packed.layer->kernel().Forward(in[0].dim(0), packed.layer->Weights(context.value),
                                   in[0].bytes().data(), out[0].bytes().data(), DType::kF32);
  }

  void Backward(const StepContext& context, std::span<const ConstTensor> in,
                std::span<const ConstTensor> dout, Cache cache,
                std::span<const Tensor> din) const override {
    if (context.packed == nullptr)
      return WithPacked(*this, context,
                        [&](const StepContext& with) { Backward(with, in, dout, cache, din); });
    const auto& packed = static_cast<const GaussianPacked&>(*context.packed);
    const std::int64_t batch = in[0].dim(0);
    // The kernels take gradients in the precision of the layer.
    void* const dz = context.workspace.data();
    ConvertScaled(
        {.n = dout[0].elements(), .x = dout[0].bytes().data(), .y = dz, .y_dtype = packed.compute});
    if (!context.gradient.empty())
      packed.layer->BackwardWeight(batch, in[0].bytes().data(), dz, context.gradient,
                                   context.accumulate);
    if (!din.empty() && !din[0].empty())
      packed.layer->kernel().BackwardData(batch, packed.layer->Weights(context.value), dz,
                                          din[0].bytes().data(), din[0].dtype());
  }

 private:
  // Adds the parameters of one layer; initialization as in PyTorch.
  void Add(const std::string& prefix, const JointBlock& block) {
    const auto init = ParamSpec::Init::kUniformFanIn;
    params_.push_back(
        {prefix + "weight", {block.rows, block.columns}, block.weight, init, block.columns});
    params_.push_back({prefix + "bias", {block.rows}, block.bias, init, block.columns});
  }

  const std::int64_t in_, actions_;
  JointBlock mean_, log_std_;
  std::vector<ParamSpec> params_;
};

}  // namespace

std::unique_ptr<Module> MakeGaussianHead(std::int64_t in, std::int64_t actions) {
  TROOP_CHECK(in > 0 && actions > 0, "gaussian head {} -> {}", in, actions);
  return std::make_unique<GaussianHead>(in, actions);
}

}  // namespace troop
