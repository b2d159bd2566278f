// Implements residual blocks of convolutions.
#include <algorithm>
#include <cstring>
#include <utility>

#include "nn/arena.h"
#include "nn/layers/element.h"
#include "nn/layers/layers.h"

namespace troop {
namespace {

// y = activation(x + branch(x)). The cache begins with y if there is an activation.
class ResidualLayer final : public Module {
 public:
  ResidualLayer(std::unique_ptr<Module> branch, std::int64_t elements, Activation activation)
      : branch_(std::move(branch)), elements_(elements), activation_(activation) {}

  std::span<const ParamSpec> params() const override { return branch_->params(); }

  // The workspace begins with the gradient before the activation.
  Result<Plan> MakePlan(std::span<const TensorSpec> in) const override {
    TROOP_RETURN_IF_ERROR(CheckInput(in, elements_, "residual"));
    TROOP_ASSIGN_OR_RETURN(Plan plan, branch_->MakePlan(in));
    plan.workspace_bytes += AlignBytes(plan.out[0].bytes());
    plan.cache_begins_with_out = activation_ != Activation::kNone;
    if (plan.cache_begins_with_out) plan.cache_bytes += AlignBytes(plan.out[0].bytes());
    return plan;
  }

  // The sum itself has no packed form.
  std::unique_ptr<Packed> MakePacked(Precision precision) const override {
    return branch_->MakePacked(precision);
  }
  void Pack(std::span<const float> value, Packed* packed) const override {
    branch_->Pack(value, packed);
  }

  // The branch writes its output, to which the input is added.
  void Forward(const StepContext& context, std::span<const ConstTensor> in,
               std::span<const Tensor> out, Cache cache) const override {
    branch_->Forward(Inner(context, in[0]), in, out, cache.empty() ? cache : Branch(cache, in[0]));
    AddElements(in[0], out[0]);
    if (activation_ == Activation::kNone) return;
    const auto bytes = out[0].bytes();
    ActivationForward(activation_, out[0].elements(), bytes.data(), bytes.data(), out[0].dtype());
    if (!cache.empty() && bytes.data() != cache.data())
      std::memcpy(cache.data(), bytes.data(), bytes.size());
  }

  // The gradient of the sum goes to the branch, and to the input directly.
  void Backward(const StepContext& context, std::span<const ConstTensor> in,
                std::span<const ConstTensor> dout, Cache cache,
                std::span<const Tensor> din) const override {
    ConstTensor dsum = dout[0];
    if (activation_ != Activation::kNone) {
      const Tensor before =
          Tensor::View(nullptr, context.workspace.first(dout[0].bytes().size()), dout[0].spec());
      ActivationBackward({.activation = activation_,
                          .n = dout[0].elements(),
                          .y = cache.data(),
                          .dy = dout[0].bytes().data(),
                          .dtype = dout[0].dtype(),
                          .dz = before.bytes().data(),
                          .dz_dtype = before.dtype()});
      dsum = before;
    }
    branch_->Backward(Inner(context, in[0]), in, {&dsum, 1}, Branch(cache, in[0]), din);
    if (!din.empty() && !din[0].empty()) AddElements(dsum, din[0]);
  }

 private:
  // Bytes of an output in f32, as planned.
  std::size_t OutBytes(const ConstTensor& in) const {
    return AlignBytes(std::size_t(in.dim(0) * elements_) * sizeof(float));
  }
  // The workspace of the branch follows the gradient before the activation.
  StepContext Inner(StepContext context, const ConstTensor& in) const {
    context.workspace = context.workspace.subspan(OutBytes(in));
    return context;
  }
  // The cache of the branch follows the output, if that is kept.
  Cache Branch(Cache cache, const ConstTensor& in) const {
    return activation_ == Activation::kNone ? cache : cache.subspan(OutBytes(in));
  }

  const std::unique_ptr<Module> branch_;
  const std::int64_t elements_;
  const Activation activation_;
};

}  // namespace

std::unique_ptr<Module> MakeResidual(const ResidualOptions& o) {
  TROOP_CHECK(o.kernel > 0 && o.kernel % 2 == 1, "a residual block with kernel {}", o.kernel);
  // Zeros on each side keep height and width.
  const std::int64_t padding = o.kernel / 2;
  const auto convolution = [&](Activation activation) {
    return MakeConv2d({o.height + 2 * padding, o.width + 2 * padding, o.channels, o.channels,
                       o.kernel, 1, activation});
  };
  const ImagePadding zeros{o.height, o.width, o.channels, padding};
  std::vector<SequentialPart> branch;
  branch.push_back({"relu", MakeActivation(Activation::kRelu)});
  branch.push_back({"padding0", MakePadding(zeros)});
  branch.push_back({"conv0", convolution(Activation::kRelu)});
  branch.push_back({"padding1", MakePadding(zeros)});
  branch.push_back({"conv1", convolution(Activation::kNone)});
  return std::make_unique<ResidualLayer>(MakeSequential(std::move(branch)),
                                         o.height * o.width * o.channels, o.activation);
}

}  // namespace troop
