// Implements the dueling head. Both streams run as joint layers, so that each pass needs two
// products instead of four.
#include <algorithm>
#include <string>

#include "nn/arena.h"
#include "nn/layers/layers.h"
#include "nn/models/dueling_streams.h"
#include "nn/models/joint_layer.h"
#include "nn/with_packed.h"

namespace troop {
namespace {

// The hidden layers are stacked to [2H, in]; the output layers form a block matrix [K + A K, 2H].
struct DuelingPacked final : Packed {
  DType compute = DType::kF32;
  std::unique_ptr<JointLayer> hidden;  // nullptr: no hidden units
  std::unique_ptr<JointLayer> output;
};

// Module of both streams.
class DuelingHead final : public Module {
 public:
  DuelingHead(std::int64_t in, std::int64_t units, std::int64_t actions, std::int64_t numbers)
      : in_(in), units_(units), streams_{actions, numbers}, features_(units > 0 ? 2 * units : in) {
    // Offsets: value.hidden and advantage.hidden weights, their biases, then both output layers.
    const std::int64_t width = units > 0 ? units : in;
    std::int64_t end = 0;
    if (units > 0) {  // adjacent, so that they form one joint layer in place
      value_hidden_ = {0, AlignParams(units * in) + AlignParams(units * in), 0, units, 0, in};
      advantage_hidden_ = {
          AlignParams(units * in), value_hidden_.bias + AlignParams(units), units, units, 0, in};
      end = advantage_hidden_.bias + AlignParams(units);
    }
    const std::int64_t rows = actions * numbers;
    value_ = {end, end + AlignParams(numbers * width), 0, numbers, 0, width};
    end = value_.bias + AlignParams(numbers);
    advantage_ = {end,  end + AlignParams(rows * width), numbers,
                  rows, units > 0 ? units : 0,           width};
    if (units > 0) Add("value.hidden", value_hidden_);
    Add("value", value_);
    if (units > 0) Add("advantage.hidden", advantage_hidden_);
    Add("advantage", advantage_);
  }

  std::span<const ParamSpec> params() const override { return params_; }

  // Cache: the hidden activations. Workspace: the streams, and two gradients of the hidden layers.
  Result<Plan> MakePlan(std::span<const TensorSpec> in) const override {
    TROOP_RETURN_IF_ERROR(CheckInput(in, in_, "dueling head"));
    const std::int64_t batch = in[0].shape[0];
    const std::size_t hidden = HiddenBytes(batch), outputs = OutputBytes(batch);
    return Plan{.out = {{DType::kF32, {batch, streams_.actions * streams_.numbers}}},
                .cache_bytes = hidden,
                .workspace_bytes = outputs + 2 * hidden};
  }

  // Without hidden units the output layer takes the input directly.
  std::unique_ptr<Packed> MakePacked(Precision precision) const override {
    auto packed = std::make_unique<DuelingPacked>();
    packed->compute = ActivationDType(AvailablePrecision(precision));
    if (units_ > 0)
      packed->hidden = std::make_unique<JointLayer>(
          in_, features_, std::vector{value_hidden_, advantage_hidden_},
          KernelOptions{packed->compute, Activation::kRelu});
    packed->output =
        std::make_unique<JointLayer>(features_, streams_.outputs(), std::vector{value_, advantage_},
                                     KernelOptions{packed->compute});
    return packed;
  }

  void Pack(std::span<const float> value, Packed* packed) const override {
    auto& mine = static_cast<DuelingPacked&>(*packed);
    if (mine.hidden) mine.hidden->Pack(value);
    mine.output->Pack(value);
  }

  // Without Packed the weights are packed for this call only.
  void Forward(const StepContext& context, std::span<const ConstTensor> in,
               std::span<const Tensor> out, Cache cache) const override {
    if (context.packed == nullptr)
      return WithPacked(*this, context,
                        [&](const StepContext& with) { Forward(with, in, out, cache); });
    const auto& packed = static_cast<const DuelingPacked&>(*context.packed);
    TROOP_CHECK(in[0].dtype() == packed.compute, "dueling head: {} input",
                DTypeName(in[0].dtype()));
    const std::int64_t batch = in[0].dim(0);
    Arena arena(context.workspace);
    auto* const streams = reinterpret_cast<float*>(arena.Take(OutputBytes(batch)).data());
    const void* x = in[0].bytes().data();
    if (packed.hidden) {
      std::byte* const h = cache.empty() ? arena.Take(HiddenBytes(batch)).data() : cache.data();
      packed.hidden->kernel().Forward(batch, packed.hidden->Weights(context.value), x, h,
                                      packed.compute);
      x = h;
    }
    packed.output->kernel().Forward(batch, packed.output->Weights(context.value), x, streams,
                                    DType::kF32);
    streams_.Combine(batch, streams, out[0].as<float>().data());
  }

  void Backward(const StepContext& context, std::span<const ConstTensor> in,
                std::span<const ConstTensor> dout, Cache cache,
                std::span<const Tensor> din) const override {
    if (context.packed == nullptr)
      return WithPacked(*this, context,
                        [&](const StepContext& with) { Backward(with, in, dout, cache, din); });
    const auto& packed = static_cast<const DuelingPacked&>(*context.packed);
    const std::int64_t batch = in[0].dim(0);
    Arena arena(context.workspace);
    // 1. The gradient of both streams from that of q.
    void* const dstreams = arena.Take(OutputBytes(batch)).data();
    streams_.Spread(batch, dout[0].as<float>().data(), packed.compute, dstreams);
    const void* const h = packed.hidden ? cache.data() : in[0].bytes().data();
    // The output layer's parameters.
    const bool wants_gradient = !context.gradient.empty();
    if (wants_gradient)
      packed.output->BackwardWeight(batch, h, dstreams, context.gradient, context.accumulate);
    const bool wants_din = !din.empty() && !din[0].empty();
    const LayerWeights output = packed.output->Weights(context.value);
    // 2. Without hidden layers, only the input's gradient is missing.
    if (!packed.hidden) {
      if (wants_din)
        packed.output->kernel().BackwardData(batch, output, dstreams, din[0].bytes().data(),
                                             din[0].dtype());
      return;
    }
    // 3. Through the hidden layers.
    void* const dh = arena.Take(HiddenBytes(batch)).data();
    void* const dz = arena.Take(HiddenBytes(batch)).data();
    packed.output->kernel().BackwardData(batch, output, dstreams, dh, packed.compute);
    ActivationBackward({.activation = Activation::kRelu,
                        .n = batch * features_,
                        .y = h,
                        .dy = dh,
                        .dtype = packed.compute,
                        .dz = dz,
                        .dz_dtype = packed.compute});
    if (wants_gradient)
      packed.hidden->BackwardWeight(batch, in[0].bytes().data(), dz, context.gradient,
                                    context.accumulate);
    if (wants_din)
      packed.hidden->kernel().BackwardData(batch, packed.hidden->Weights(context.value), dz,
                                           din[0].bytes().data(), din[0].dtype());
  }

 private:
  // Adds the parameters of one layer; initialization as in PyTorch.
  void Add(const std::string& name, const JointBlock& block) {
    const auto init = ParamSpec::Init::kUniformFanIn;
    params_.push_back(
        {name + ".weight", {block.rows, block.columns}, block.weight, init, block.columns});
    params_.push_back({name + ".bias", {block.rows}, block.bias, init, block.columns});
  }

  std::size_t HiddenBytes(std::int64_t batch) const {
    return units_ > 0 ? AlignBytes(std::size_t(batch * features_) * sizeof(float)) : 0;
  }
  std::size_t OutputBytes(std::int64_t batch) const {
    return AlignBytes(std::size_t(batch * streams_.outputs()) * sizeof(float));
  }

  const std::int64_t in_, units_;
  const DuelingStreams streams_;
  const std::int64_t features_;  // inputs of the joint output layer
  JointBlock value_hidden_, advantage_hidden_, value_, advantage_;
  std::vector<ParamSpec> params_;
};

}  // namespace

std::unique_ptr<Module> MakeDuelingHead(std::int64_t in, std::int64_t units, std::int64_t actions,
                                        std::int64_t numbers) {
  TROOP_CHECK(in > 0 && units >= 0 && actions > 0 && numbers > 0,
              "dueling head {} -> {} -> {} x {}", in, units, actions, numbers);
  return std::make_unique<DuelingHead>(in, units, actions, numbers);
}

}  // namespace troop
