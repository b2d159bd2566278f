// Implements linear models as modules.

#include "nn/sparse/linear_module.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "nn/sparse/linear_outputs.h"

namespace troop {
namespace {

// Packing would copy all weights, of which a batch reads few.
struct NothingPacked final : Packed {};

// The logistic function; exp gets no argument above 0, so nothing overflows.
double Sigmoid(double x) {
  return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x));
}

// Outputs are computed again in Backward: nothing is kept.
// The module over the weights [features + 1, outputs].
class LinearModule final : public Module {
 public:
  LinearModule(const LinearForm& form, ProblemType problem) : form_(form), problem_(problem) {
    params_.push_back({.name = "weight", .shape = {form.rows(), form.outputs}});
  }

  std::span<const ParamSpec> params() const override { return params_; }
  std::unique_ptr<Packed> MakePacked(Precision) const override {
    return std::make_unique<NothingPacked>();
  }
  void Pack(std::span<const float>, Packed*) const override {}  // weights are used in place
  Result<Plan> MakePlan(std::span<const TensorSpec> in) const override;
  void Forward(const StepContext& context, std::span<const ConstTensor> in,
               std::span<const Tensor> out, Cache cache) const override;
  void Backward(const StepContext& context, std::span<const ConstTensor> in,
                std::span<const ConstTensor> dout, Cache cache,
                std::span<const Tensor> din) const override;

 private:
  // Number of logits: two classes have one output.
  std::int64_t logits() const {
    return problem_ == ProblemType::kSingleLabel ? std::max<std::int64_t>(2, form_.outputs)
                                                 : form_.outputs;
  }
  std::span<const float> WeightsOf(std::span<const float> value) const {
    return value.first(std::size_t(form_.rows() * form_.outputs));
  }
  void ToSlopes(std::span<const float> dlogits, std::span<double> outputs) const;

  const LinearForm form_;
  const ProblemType problem_;
  std::vector<ParamSpec> params_;
};

// Example i of packed inputs.
SparseRow ExampleOf(std::span<const ConstTensor> in, std::int64_t i) {
  const auto starts = in[1].as<std::int32_t>();
  const auto first = std::size_t(starts[std::size_t(i)]);
  const auto count = std::size_t(starts[std::size_t(i) + 1]) - first;
  return {in[0].as<std::int32_t>().subspan(first, count), in[2].as<float>().subspan(first, count)};
}

// The inputs are the packed rows of a batch, so T may be 0.
Result<Plan> LinearModule::MakePlan(std::span<const TensorSpec> in) const {
  const bool fits = in.size() == 3 && in[0].dtype == DType::kI32 && in[1].dtype == DType::kI32 &&
                    in[2].dtype == DType::kF32 && in[0].shape.rank() == 1 &&
                    in[1].shape.rank() == 1 && in[0].shape == in[2].shape && in[1].shape[0] > 1;
  if (!fits) return InvalidArgument("inputs must be ids i32[T], starts i32[B + 1], values f32[T]");
  return Plan{.out = {{DType::kF32, {in[1].shape[0] - 1, logits()}}}};
}

// Rows are independent. The sum of a row is in f64, whatever its number of entries.
void LinearModule::Forward(const StepContext& context, std::span<const ConstTensor> in,
                           std::span<const Tensor> out, Cache) const {
  std::vector<double> outputs(static_cast<std::size_t>(form_.outputs));
  std::vector<float> made;
  for (std::int64_t i = 0; i < out[0].dim(0); ++i) {
    LinearOutputs(form_, WeightsOf(context.value), ExampleOf(in, i), outputs);
    AppendLinearLogits(problem_, outputs, &made);
  }
  std::ranges::copy(made, out[0].as<float>().begin());
}

// Replaces the outputs z by the derivatives of Σ dlogits · logits: ln σ(z) has σ(-z).
void LinearModule::ToSlopes(std::span<const float> dlogits, std::span<double> outputs) const {
  const bool classes = problem_ == ProblemType::kSingleLabel;
  if (classes && outputs.size() == 1) {
    const double z = outputs[0];
    outputs[0] = double(dlogits[1]) * Sigmoid(-z) - double(dlogits[0]) * Sigmoid(z);
    return;
  }
  for (std::size_t k = 0; k < outputs.size(); ++k)
    outputs[k] = double(dlogits[k]) * (classes ? Sigmoid(-outputs[k]) : 1);
}

// The bias is the weight of a feature that is always 1.
void LinearModule::Backward(const StepContext& context, std::span<const ConstTensor> in,
                            std::span<const ConstTensor> dout, Cache,
                            std::span<const Tensor>) const {
  const auto width = std::size_t(form_.outputs), columns = std::size_t(logits());
  // Without a gradient there is nothing to do: inputs have none.
  if (context.gradient.empty()) return;
  const auto size = std::size_t(form_.rows()) * width;
  if (!context.accumulate) std::ranges::fill(context.gradient.first(size), 0.0f);
  std::vector<double> slopes(width);
  const auto add = [&](std::int64_t row, double x) {
    float* const to = context.gradient.data() + std::size_t(row) * width;
    for (std::size_t k = 0; k < width; ++k) to[k] += float(slopes[k] * x);
  };
  for (std::int64_t i = 0; i < dout[0].dim(0); ++i) {
    const SparseRow row = ExampleOf(in, i);
    LinearOutputs(form_, WeightsOf(context.value), row, slopes);
    ToSlopes(dout[0].as<float>().subspan(std::size_t(i) * columns, columns), slopes);
    for (std::size_t j = 0; j < row.columns.size(); ++j) add(row.columns[j], double(row.values[j]));
    add(form_.features, 1);
  }
}

}  // namespace

Result<std::unique_ptr<Module>> MakeLinearModule(const LinearForm& form, ProblemType problem) {
  // Offsets of parameters fit in 31 bits, as those of the columns.
  constexpr std::int64_t kWeightsMax = std::int64_t{1} << 31;
  if (form.features < 1 || form.outputs < 1 || form.features >= kWeightsMax / form.outputs) {
    return InvalidArgument(
        "a linear model has {} features and {} outputs, must have at least 1 of both and at most "
        "{} weights",
        form.features, form.outputs, kWeightsMax);
  }
  return std::unique_ptr<Module>(std::make_unique<LinearModule>(form, problem));
}

}  // namespace troop
