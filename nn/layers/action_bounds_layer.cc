// Implements the output layer that maps a policy's outputs into the action bounds by a scaled tanh.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/elementwise/cast.h"
#include "nn/arena.h"
#include "nn/layers/layers.h"

namespace troop {
namespace {

struct NothingPacked final : Packed {};

// The cache holds tanh x, [B, A] f32.
class ActionBounds final : public Module {
 public:
  ActionBounds(std::span<const float> low, std::span<const float> high)
      : low_(low.begin(), low.end()), high_(high.begin(), high.end()) {
    TROOP_CHECK(low.size() == high.size() && !low.empty(), "{} and {} bounds", low.size(),
                high.size());
    for (std::size_t k = 0; k < low_.size(); ++k) {
      middle_.push_back(0.5f * low_[k] + 0.5f * high_[k]);
      half_.push_back(0.5f * high_[k] - 0.5f * low_[k]);  // the difference could overflow
    }
  }

  std::span<const ParamSpec> params() const override { return {}; }

  // The workspace holds the scaled gradient of Backward.
  Result<Plan> MakePlan(std::span<const TensorSpec> in) const override {
    TROOP_RETURN_IF_ERROR(CheckInput(in, std::int64_t(low_.size()), "action bounds"));
    const TensorSpec out{DType::kF32, {in[0].shape[0], std::int64_t(low_.size())}};
    return Plan{.out = {out},
                .cache_bytes = AlignBytes(out.bytes()),
                .workspace_bytes = AlignBytes(out.bytes())};
  }

  // Nothing to pack: there are no parameters.
  std::unique_ptr<Packed> MakePacked(Precision) const override {
    return std::make_unique<NothingPacked>();
  }
  void Pack(std::span<const float>, Packed*) const override {}

  void Forward(const StepContext&, std::span<const ConstTensor> in, std::span<const Tensor> out,
               Cache cache) const override {
    // y = tanh x in f32, whatever the input's type; it is kept before scaling.
    const std::span<float> y = out[0].as<float>();
    ConvertScaled({.n = in[0].elements(),
                   .x = in[0].bytes().data(),
                   .x_dtype = in[0].dtype(),
                   .y = y.data()});
    ActivationForward(Activation::kTanh, std::int64_t(y.size()), y.data(), y.data(), DType::kF32);
    if (!cache.empty()) std::ranges::copy(std::as_bytes(y), cache.begin());
    for (std::size_t i = 0; i < y.size(); ++i) {
      const std::size_t k = i % low_.size();
      y[i] =
          std::clamp(middle_[k] + half_[k] * y[i], low_[k], high_[k]);  // rounding may exceed them
    }
  }

  // The derivative of the scaled tanh: half the range times dy, then the tanh's own derivative.
  void Backward(const StepContext& context, std::span<const ConstTensor>,
                std::span<const ConstTensor> dout, Cache cache,
                std::span<const Tensor> din) const override {
    if (din.empty() || din[0].empty()) return;
    const std::span<const float> dy = dout[0].as<float>();
    auto* const scaled = reinterpret_cast<float*>(context.workspace.data());
    for (std::size_t i = 0; i < dy.size(); ++i) scaled[i] = half_[i % low_.size()] * dy[i];
    ActivationBackward({.activation = Activation::kTanh,
                        .n = std::int64_t(dy.size()),
                        .y = cache.data(),
                        .dy = scaled,
                        .dz = din[0].bytes().data(),
                        .dz_dtype = din[0].dtype()});
  }

 private:
  const std::vector<float> low_, high_;
  std::vector<float> middle_, half_;  // [actions]: centre and half width of each interval
};

}  // namespace

std::unique_ptr<Module> MakeActionBounds(std::span<const float> low, std::span<const float> high) {
  return std::make_unique<ActionBounds>(low, high);
}

}  // namespace troop
