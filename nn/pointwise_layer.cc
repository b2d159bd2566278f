// Layers without parameters: standalone activations, and the input's scale.
#include <cstring>

#include "kernels/convert.h"
#include "nn/arena.h"
#include "nn/layers.h"

namespace troop {
namespace {

struct NothingPacked final : Packed {};

class ActivationLayer final : public Module {
 public:
  explicit ActivationLayer(Activation activation) : activation_(activation) {}

  std::span<const ParamSpec> params() const override { return {}; }

  Result<Plan> MakePlan(std::span<const TensorSpec> in) const override {
    TROOP_RETURN_IF_ERROR(CheckInput(in, 0, "activation"));
    const TensorSpec out{DType::kF32, in[0].shape};
    return Plan{.out = {out},
                .cache_bytes = AlignBytes(out.bytes()),
                .workspace_bytes = 0,
                .cache_begins_with_out = true};
  }

  std::unique_ptr<Packed> MakePacked(Precision) const override {
    return std::make_unique<NothingPacked>();
  }
  void Pack(std::span<const float>, Packed*) const override {}

  void Forward(const StepContext&, std::span<const ConstTensor> in, std::span<const Tensor> out,
               Cache cache) const override {
    const auto bytes = out[0].bytes();
    ActivationForward(activation_, in[0].elements(), in[0].bytes().data(), bytes.data(),
                      in[0].dtype());
    if (!cache.empty() && bytes.data() != cache.data())
      std::memcpy(cache.data(), bytes.data(), bytes.size());
  }

  void Backward(const StepContext&, std::span<const ConstTensor>, std::span<const ConstTensor> dout,
                Cache cache, std::span<const Tensor> din) const override {
    if (din.empty() || din[0].empty()) return;
    ActivationBackward(activation_, dout[0].elements(), cache.data(), dout[0].bytes().data(),
                       dout[0].dtype(), din[0].bytes().data(), din[0].dtype());
  }

 private:
  const Activation activation_;
};

class InputLayer final : public Module {
 public:
  explicit InputLayer(float scale) : scale_(scale) {}

  std::span<const ParamSpec> params() const override { return {}; }

  Result<Plan> MakePlan(std::span<const TensorSpec> in) const override {
    TROOP_RETURN_IF_ERROR(CheckInput(in, 0, "input"));
    if (in[0].dtype != DType::kU8 && in[0].dtype != DType::kF32 && in[0].dtype != DType::kBF16)
      return InvalidArgument("networks take observations of u8 or f32, not {}", in[0].ToString());
    return Plan{.out = {{DType::kF32, in[0].shape}}};
  }

  std::unique_ptr<Packed> MakePacked(Precision) const override {
    return std::make_unique<NothingPacked>();
  }
  void Pack(std::span<const float>, Packed*) const override {}

  void Forward(const StepContext&, std::span<const ConstTensor> in, std::span<const Tensor> out,
               Cache) const override {
    ConvertScaled(in[0].elements(), in[0].bytes().data(), in[0].dtype(), scale_,
                  out[0].bytes().data(), out[0].dtype());
  }

  void Backward(const StepContext&, std::span<const ConstTensor>, std::span<const ConstTensor>,
                Cache, std::span<const Tensor> din) const override {
    TROOP_CHECK(din.empty() || din[0].empty(), "observations have no gradient");
  }

 private:
  const float scale_;
};

}  // namespace

std::unique_ptr<Module> MakeActivation(Activation activation) {
  TROOP_CHECK(activation != Activation::kNone, "an activation layer that does nothing");
  return std::make_unique<ActivationLayer>(activation);
}

std::unique_ptr<Module> MakeInput(float scale) { return std::make_unique<InputLayer>(scale); }

}  // namespace troop
