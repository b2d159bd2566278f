// A regression problem: targets are products of inputs, so that the gradients are not linear.
#include "apps/selfcheck/toy_model.h"

#include <utility>

#include "core/base/check.h"
#include "core/base/philox.h"
#include "nn/layers/layers.h"
#include "nn/models/model.h"

namespace troop {
namespace {

// tanh layers and a linear output: large enough for several shards, small enough for fp64 loops.
std::unique_ptr<Module> MakeThreeLayers() {
  std::vector<SequentialPart> parts;
  const auto add = [&](const char* name, std::int64_t in, std::int64_t out, Activation f) {
    parts.push_back({name, MakeLinear(in, out, f)});
  };
  add("first", ToyModel::kIn, ToyModel::kWide, Activation::kTanh);
  add("second", ToyModel::kWide, ToyModel::kNarrow, Activation::kTanh);
  add("third", ToyModel::kNarrow, ToyModel::kOut, Activation::kNone);
  return MakeSequential(std::move(parts));
}

}  // namespace

// Cache and workspace are allocated once, for the fixed batch size.
ToyModel::ToyModel(std::uint64_t seed)
    : seed_(seed),
      module_(MakeThreeLayers()),
      packed_(module_->MakePacked(Precision::kF32)),
      parameters_(ParameterCount(*module_)),
      in_(DType::kF32, {kBatch, kIn}),
      out_(DType::kF32, {kBatch, kOut}),
      dout_(DType::kF32, {kBatch, kOut}) {
  const auto plan = module_->MakePlan(std::span(&in_.spec(), 1));
  TROOP_CHECK(plan.ok(), "{}", plan.status().ToString());
  cache_ = MutableBuffer::Zeros(plan->cache_bytes);
  workspace_ = MutableBuffer::Zeros(plan->workspace_bytes);
}

// The product's initialization; the reference starts from the same f32 values.
std::vector<float> ToyModel::FirstValue() const {
  std::vector<float> value(static_cast<std::size_t>(parameters_));
  InitParameters(*module_, seed_, value);
  return value;
}

// Biases are the tensors of rank 1. Optimizers do not decay them.
std::vector<ParamRange> ToyModel::Biases() const {
  std::vector<ParamRange> ranges;
  for (const ParamSpec& spec : params()) {
    if (spec.shape.rank() != 1) continue;
    ranges.push_back({spec.offset, spec.offset + spec.shape.elements()});
  }
  return ranges;
}

// Alternating groups of weights (decayed) and biases (not decayed) that cover all parameters.
std::vector<Optimizer::Group> ToyModel::Groups(float learning_rate) const {
  std::vector<Optimizer::Group> groups;
  std::int64_t at = 0;
  const auto add = [&](std::int64_t end, bool decays) {
    groups.push_back({end - at, learning_rate, decays});
    at = end;
  };
  for (const ParamRange& bias : Biases()) add(bias.begin, true), add(bias.end, false);
  add(parameters_, true);
  return groups;
}

// Counter-based random numbers: the generator is keyed by the index, so no state is shared.
ToyModel::Sample ToyModel::Draw(std::uint64_t sample) const {
  Rng rng({.run_seed = seed_, .purpose = Purpose::kSynthetic, .index = sample});
  Sample drawn{};
  for (float& x : drawn.in) x = float(rng.Uniform(-1, 1));
  for (std::size_t i = 0; i < drawn.target.size(); ++i) {
    drawn.target[i] = drawn.in[i] * drawn.in[i + 1] - 0.5f * drawn.in[i + 3];
  }
  return drawn;
}

// Loss: half the squared error, averaged over the batch. The backward pass starts from its
// derivative by the outputs.
float ToyModel::Gradient(std::span<const float> value, std::uint64_t batch,
                         std::span<float> gradient) {
  std::array<Sample, kBatch> samples;
  for (int b = 0; b < kBatch; ++b) {
    samples[std::size_t(b)] = Draw(batch * kBatch + std::uint64_t(b));
    std::ranges::copy(samples[std::size_t(b)].in, in_.data<float>() + b * kIn);
  }
  // Packing and Forward/Backward are the product's code, which the reference does not use.
  module_->Pack(value, packed_.get());
  const StepContext context{.value = value,
                            .packed = packed_.get(),
                            .gradient = gradient,
                            .workspace = workspace_.bytes(),
                            .accumulate = false};
  const ConstTensor in = in_, dout = dout_;
  const Tensor din;
  std::ranges::fill(gradient, 0.0f);
  module_->Forward(context, {&in, 1}, {&out_, 1}, cache_.bytes());
  float loss = 0;
  for (std::size_t i = 0; i < std::size_t(out_.elements()); ++i) {
    const float error = out_.data<float>()[i] - samples[i / kOut].target[i % kOut];
    dout_.data<float>()[i] = error / kBatch;
    loss += error * error / (2 * kBatch);
  }
  module_->Backward(context, {&in, 1}, {&dout, 1}, cache_.bytes(), {&din, 1});
  return loss;
}

}  // namespace troop
