// Implements heads of two linear layers with the same input, which run as one product.
#include <string>

#include "kernels/elementwise/cast.h"
#include "nn/arena.h"
#include "nn/layers/layers.h"
#include "nn/models/joint_layer.h"
#include "nn/with_packed.h"

namespace troop {
namespace {

struct JointPacked final : Packed {
  DType compute = DType::kF32;
  std::unique_ptr<JointLayer> layer;  // both, [rows, in]
};

class JointHead final : public Module {
 public:
  JointHead(std::int64_t in, std::int64_t policy, const std::string& name, std::int64_t more)
      : in_(in), rows_(policy + more) {
    // The policy's layer comes first, under the names that a head of only that layer has, so that
    // exports need no case for this one. Offsets: each weight is followed by its bias.
    const std::int64_t weight = AlignParams(policy * in), bias = AlignParams(policy);
    first_ = {0, weight, 0, policy, 0, in};
    const std::int64_t second = weight + bias;
    second_ = {second, second + AlignParams(more * in), policy, more, 0, in};
    Add("", first_);
    Add(name + ".", second_);
  }

  std::span<const ParamSpec> params() const override { return params_; }

  // Nothing is kept for Backward. Workspace: the output's gradient in the precision of the layer.
  Result<Plan> MakePlan(std::span<const TensorSpec> in) const override {
    TROOP_RETURN_IF_ERROR(CheckInput(in, in_, "joint head"));
    const TensorSpec out{DType::kF32, {in[0].shape[0], rows_}};
    return Plan{.out = {out}, .cache_bytes = 0, .workspace_bytes = AlignBytes(out.bytes())};
  }

  std::unique_ptr<Packed> MakePacked(Precision precision) const override {
    auto packed = std::make_unique<JointPacked>();
    packed->compute = ActivationDType(AvailablePrecision(precision));
    packed->layer = std::make_unique<JointLayer>(in_, rows_, std::vector{first_, second_},
                                                 KernelOptions{packed->compute});
    return packed;
  }

  void Pack(std::span<const float> value, Packed* packed) const override {
    static_cast<JointPacked&>(*packed).layer->Pack(value);
  }

  // Without Packed the weights are packed for this call only.
  void Forward(const StepContext& context, std::span<const ConstTensor> in,
               std::span<const Tensor> out, Cache cache) const override {
    if (context.packed == nullptr)
      return WithPacked(*this, context,
                        [&](const StepContext& with) { Forward(with, in, out, cache); });
    const auto& packed = static_cast<const JointPacked&>(*context.packed);
    TROOP_CHECK(in[0].dtype() == packed.compute, "joint head: {} input", DTypeName(in[0].dtype()));
    packed.layer->kernel().Forward(in[0].dim(0), packed.layer->Weights(context.value),
                                   in[0].bytes().data(), out[0].bytes().data(), DType::kF32);
  }

  void Backward(const StepContext& context, std::span<const ConstTensor> in,
                std::span<const ConstTensor> dout, Cache cache,
                std::span<const Tensor> din) const override {
    if (context.packed == nullptr)
      return WithPacked(*this, context,
                        [&](const StepContext& with) { Backward(with, in, dout, cache, din); });
    const auto& packed = static_cast<const JointPacked&>(*context.packed);
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

  const std::int64_t in_, rows_;
  JointBlock first_, second_;
  std::vector<ParamSpec> params_;
};

}  // namespace

std::unique_ptr<Module> MakeGaussianHead(std::int64_t in, std::int64_t actions) {
  TROOP_CHECK(in > 0 && actions > 0, "gaussian head {} -> {}", in, actions);
  return std::make_unique<JointHead>(in, actions, "log_std", actions);
}

std::unique_ptr<Module> MakeActorCriticHead(std::int64_t in, std::int64_t actions) {
  TROOP_CHECK(in > 0 && actions > 0, "actor-critic head {} -> {}", in, actions);
  return std::make_unique<JointHead>(in, actions, "value", 1);
}

}  // namespace troop
