// Implements the mask of actions around a network.
#include <algorithm>
#include <cstring>
#include <utility>

#include "nn/arena.h"
#include "nn/layers/layers.h"

namespace troop {
namespace {

// Has the parameters, packed form and cache of the network inside.
class ActionMaskLayer final : public Module {
 public:
  ActionMaskLayer(std::unique_ptr<Module> network, const ActionMaskOptions& options)
      : network_(std::move(network)), options_(options) {}

  std::span<const ParamSpec> params() const override { return network_->params(); }

  // The workspace begins with the masked gradient.
  Result<Plan> MakePlan(std::span<const TensorSpec> in) const override {
    TROOP_RETURN_IF_ERROR(CheckInput(in, options_.stack * options_.width, "action mask"));
    if (in[0].dtype != DType::kU8 && in[0].dtype != DType::kF32)
      return InvalidArgument("networks take observations of u8 or f32, not {}", in[0].ToString());
    // An actor-critic has one more output, the value.
    TROOP_ASSIGN_OR_RETURN(Plan plan, network_->MakePlan(in));
    const TensorSpec& out = plan.out.at(0);
    if (out.dtype != DType::kF32 || out.shape.rank() != 2 || out.shape[1] < masked()) {
      return InvalidArgument("action mask: {} outputs for {} actions, not {}", options_.numbers,
                             options_.actions, out.ToString());
    }
    plan.workspace_bytes += AlignBytes(out.bytes());
    return plan;
  }

  std::unique_ptr<Packed> MakePacked(Precision precision) const override {
    return network_->MakePacked(precision);
  }
  void Pack(std::span<const float> value, Packed* packed) const override {
    network_->Pack(value, packed);
  }

  // The network computes all outputs; masked ones are replaced afterwards.
  void Forward(const StepContext& context, std::span<const ConstTensor> in,
               std::span<const Tensor> out, Cache cache) const override {
    network_->Forward(Inner(context, out[0]), in, out, cache);
    Replace(in[0], out[0].as<float>(), kMaskedOutput);
  }

  // A constant output has no gradient.
  void Backward(const StepContext& context, std::span<const ConstTensor> in,
                std::span<const ConstTensor> dout, Cache cache,
                std::span<const Tensor> din) const override {
    const ConstTensor& given = dout[0];
    const Tensor masked =
        Tensor::View(nullptr, context.workspace.first(given.bytes().size()), given.spec());
    std::ranges::copy(given.bytes(), masked.bytes().begin());
    Replace(in[0], masked.as<float>(), 0);
    const ConstTensor inner(masked);
    network_->Backward(Inner(context, given), in, {&inner, 1}, cache, din);
  }

  // The mask has no statistics.
  void UpdateStatistics(ConstTensor in, std::span<float> value) const override {
    network_->UpdateStatistics(std::move(in), value);
  }

 private:
  std::int64_t masked() const { return options_.actions * options_.numbers; }

  // The context of the network, whose workspace follows the gradient of `out`.
  template <class T>
  static StepContext Inner(StepContext context, const T& out) {
    context.workspace = context.workspace.subspan(AlignBytes(out.bytes().size()));
    return context;
  }

  // Dispatches on the element type of the observations.
  void Replace(const ConstTensor& in, std::span<float> rows, float by) const {
    if (in.dtype() == DType::kU8) {
      ReplaceRows(in.as<std::uint8_t>(), in.dim(0), rows, by);
    } else {
      ReplaceRows(in.as<float>(), in.dim(0), rows, by);
    }
  }

  // Writes `by` over the outputs of each row's forbidden actions.
  template <class T>
  void ReplaceRows(std::span<const T> in, std::int64_t batch, std::span<float> rows,
                   float by) const {
    if (batch == 0) return;
    const std::size_t columns = rows.size() / std::size_t(batch);
    const auto numbers = std::size_t(options_.numbers);
    for (std::int64_t b = 0; b < batch; ++b) {
      // The newest frame is the last of the stack.
      const std::int64_t frame = (b + 1) * options_.stack - 1;
      const std::span<const T> mask = in.subspan(
          std::size_t(frame * options_.width + options_.first), std::size_t(options_.actions));
      // Without any allowed action there is none to choose: the episode is over.
      if (std::ranges::all_of(mask, [](T allowed) { return allowed == T(0); })) continue;
      const std::span<float> row = rows.subspan(std::size_t(b) * columns, columns);
      for (std::size_t a = 0; a < mask.size(); ++a) {
        if (mask[a] == T(0)) std::ranges::fill(row.subspan(a * numbers, numbers), by);
      }
    }
  }

  const std::unique_ptr<Module> network_;
  const ActionMaskOptions options_;
};

}  // namespace

std::unique_ptr<Module> MakeActionMask(std::unique_ptr<Module> network,
                                       const ActionMaskOptions& options) {
  TROOP_CHECK(network != nullptr && options.stack > 0 && options.actions > 0 &&
                  options.numbers > 0 && options.first >= 0 &&
                  options.first + options.actions <= options.width,
              "action mask [{}, {} + {}) of {}", options.first, options.first, options.actions,
              options.width);
  return std::make_unique<ActionMaskLayer>(std::move(network), options);
}

}  // namespace troop
