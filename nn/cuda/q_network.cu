// Implements the passes of a Q-network on a GPU.
#include "nn/cuda/q_network.h"

#include <algorithm>

#include "kernels/cuda/loss/dueling.h"
#include "kernels/cuda/ops/activation.h"

namespace troop::cuda {

QNetwork::QNetwork(Device& device, MatMulPlans& plans, const QNetworkSpec& spec,
                   const QNetworkOptions& options)
    : plans_(plans), spec_(spec), precision_(options.precision) {
  const std::int64_t backward_rows = options.backward_rows;
  // Scratch of the convolutions' weight gradients; shared, because they run one after the other.
  std::int64_t scratch = 16;
  for (const QLayer& layer : spec.layers) {
    if (layer.convolution)
      scratch = std::max(scratch, ConvBackwardWeightScratch(layer.conv, backward_rows));
  }
  const auto elements = [&](std::int64_t n) {
    return Bytes(device, n * ElementBytes(ElementType(precision_)), "activations");
  };
  // Activations of a forward pass of n rows.
  const auto make = [&](std::int64_t n) {
    Kept kept;
    if (!TakesBytes()) kept.input = elements(n * spec.input_elements);
    for (const QLayer& layer : spec.layers) kept.out.push_back(elements(n * layer.out()));
    if (spec.dueling) {
      if (spec.hidden()) {
        kept.value_hidden = elements(n * spec.value_hidden.linear.out);
        kept.advantage_hidden = elements(n * spec.advantage_hidden.linear.out);
      }
      kept.value = DeviceArray<float>(device, n * spec.numbers, "values");
    }
    kept.advantage = DeviceArray<float>(device, n * spec.outputs(), "advantages");
    return kept;
  };
  // Two sets: one kept for Backward, one for passes in between (the target network).
  kept_ = make(options.rows);
  passing_ = make(options.rows);
  for (const QLayer& layer : spec.layers)
    gradient_.push_back(elements(backward_rows * layer.out()));
  if (backward_rows > 0) aside_ = std::make_unique<Aside>(device);
  if (spec.hidden()) {
    for (Bytes& gradient : hidden_gradient_)
      gradient = elements(backward_rows * spec.value_hidden.linear.out);
  }
  if (spec.dueling) dvalue_ = elements(backward_rows * spec.numbers);
  dadvantage_ = elements(backward_rows * spec.outputs());
  scratch_ = Bytes(device, scratch, "partial sums of convolutions' gradients");
}

// The first convolution scales bytes itself; otherwise they are converted first.
bool QNetwork::TakesBytes() const {
  return spec_.input == DType::kU8 && spec_.layers[0].convolution;
}

const void* QNetwork::Weight(const QWeights& weights, const QLayer& layer) const {
  if (precision_ == Precision::kBF16) return weights.bf16 + layer.weight;
  return weights.value + layer.weight;
}

// One fused call per layer: product, bias and activation.
void QNetwork::ForwardLayer(const Step& step, const QLayer& layer, const ConvInput& input, void* y,
                            DType y_dtype) {
  const QWeights& weights = step.pass.weights;
  const float* const bias = weights.value + layer.bias;
  if (layer.convolution) {
    ConvForward(step.stream, {.precision = precision_,
                              .shape = layer.conv,
                              .activation = layer.activation,
                              .batch = step.pass.rows,
                              .input = input,
                              .weight = Weight(weights, layer),
                              .bias = bias,
                              .y = y});
    return;
  }
  // Biases are f32, except in linear layers with bf16 output.
  const bool bf16 = y_dtype == DType::kBF16;
  LinearForward(step.stream, plans_,
                {.precision = precision_,
                 .shape = layer.linear,
                 .activation = layer.activation,
                 .batch = step.pass.rows,
                 .x = input.x,
                 .weight = Weight(weights, layer),
                 .bias = bf16 ? static_cast<const void*>(weights.bf16 + layer.bias) : bias,
                 .y = y,
                 .y_dtype = y_dtype});
}

ConvInput QNetwork::InputOf(const Kept& kept, const void* observation) const {
  if (TakesBytes()) return {observation, DType::kU8, spec_.input_scale};
  return {kept.input.data(), ElementType(precision_), 1};
}

// `advantage` receives that head's output, or q itself; all other outputs go into `kept`.
void QNetwork::Compute(const Step& step, const Kept& kept, float* advantage) {
  const DType element = ElementType(precision_);
  if (!TakesBytes()) {
    ConvertScaled(step.stream, {.n = step.pass.rows * spec_.input_elements,
                                .from = step.pass.observation,
                                .from_dtype = spec_.input,
                                .scale = spec_.input_scale,
                                .to = kept.input.data(),
                                .to_dtype = element});
  }
  ConvInput x = InputOf(kept, step.pass.observation);
  for (std::size_t i = 0; i < spec_.layers.size(); ++i) {
    ForwardLayer(step, spec_.layers[i], x, kept.out[i].data(), element);
    x = {kept.out[i].data(), element, 1};
  }
  // The head: hidden layers of both streams, then their outputs.
  ConvInput of_value = x, of_advantage = x;
  if (spec_.hidden()) {
    ForwardLayer(step, spec_.value_hidden, x, kept.value_hidden.data(), element);
    ForwardLayer(step, spec_.advantage_hidden, x, kept.advantage_hidden.data(), element);
    of_value.x = kept.value_hidden.data();
    of_advantage.x = kept.advantage_hidden.data();
  }
  if (spec_.dueling) ForwardLayer(step, spec_.value, of_value, kept.value.data(), DType::kF32);
  ForwardLayer(step, spec_.advantage, of_advantage, advantage, DType::kF32);
}

void QNetwork::Forward(Stream& stream, const QPass& pass, bool keep, float* q) {
  if (!spec_.dueling) return Compute({stream, pass}, keep ? kept_ : passing_, q);
  const QHeads heads = ForwardHeads(stream, pass, keep);
  CombineDueling(stream, {.rows = pass.rows,
                          .actions = spec_.actions,
                          .numbers = spec_.numbers,
                          .value = heads.value,
                          .advantage = heads.advantage,
                          .q = q});
}

QHeads QNetwork::ForwardHeads(Stream& stream, const QPass& pass, bool keep) {
  const Kept& kept = keep ? kept_ : passing_;
  Compute({stream, pass}, kept, kept.advantage.data());
  return {kept.value.data(), kept.advantage.data()};
}

QHeadGradients QNetwork::head_gradients() const { return {dvalue_.data(), dadvantage_.data()}; }

// Forks the second stream at the current point of the step's; Backward joins it at its end.
template <class Work>
void QNetwork::Beside(const Step& step, const Work& work) {
  if (!step.beside) return work(step.stream, plans_);
  aside_->forked.Record(step.stream);
  aside_->stream.Wait(aside_->forked);
  work(aside_->stream, aside_->plans);
}

// Parameter gradients do not feed into later work, so they may run on the second stream.
void QNetwork::BackwardWeights(const Step& step, const QLayer& layer, const ConvInput& input,
                               const void* dz) {
  const std::int64_t rows = step.pass.rows;
  float* dweight = step.gradient + layer.weight;
  float* dbias = step.gradient + layer.bias;
  Beside(step, [&](Stream& on, MatMulPlans& plans) {
    if (layer.convolution) {
      ConvBackwardWeight(on, {.precision = precision_,
                              .shape = layer.conv,
                              .batch = rows,
                              .input = input,
                              .dz = dz,
                              .dweight = dweight,
                              .dbias = dbias,
                              .scratch = scratch_.data()});
    } else {
      LinearBackwardWeight(on, plans,
                           {.precision = precision_,
                            .shape = layer.linear,
                            .batch = rows,
                            .x = input.x,
                            .dz = dz,
                            .dweight = dweight,
                            .dbias = dbias});
    }
  });
}

// dx = dz W, the gradient of the layer below, before its activation.
void QNetwork::BackwardInto(const Step& step, const QLayer& layer, const void* dz,
                            const Below& below) {
  const QWeights& weights = step.pass.weights;
  const std::int64_t rows = step.pass.rows;
  const void* relu_of = below.layer.activation == Activation::kRelu ? below.out : nullptr;
  if (layer.convolution) {
    ConvBackwardData(step.stream, {.precision = precision_,
                                   .shape = layer.conv,
                                   .batch = rows,
                                   .weight = Weight(weights, layer),
                                   .dz = dz,
                                   .relu_of = relu_of,
                                   .dx = below.dx});
  } else {
    LinearBackwardData(step.stream, plans_,
                       {.precision = precision_,
                        .shape = layer.linear,
                        .batch = rows,
                        .weight = Weight(weights, layer),
                        .dz = dz,
                        .relu_of = relu_of,
                        .dx = below.dx});
  }
  // relu is fused into the kernels, tanh is a separate one.
  if (below.layer.activation == Activation::kTanh) {
    ActivationBackward(step.stream, {.activation = Activation::kTanh,
                                     .dtype = ElementType(precision_),
                                     .n = rows * below.layer.out(),
                                     .y = below.out,
                                     .dy = below.dx,
                                     .dz = below.dx});
  }
}

// Computes the gradients of the head's parameters, and that of the trunk's last pre-activations
// into the last gradient_.
void QNetwork::BackwardHead(const Step& step) {
  const DType element = ElementType(precision_);
  const QLayer& last = spec_.layers.back();
  const ConvInput x{kept_.out.back().data(), element, 1};
  if (!spec_.dueling) {
    BackwardWeights(step, spec_.advantage, x, dadvantage_.data());
    return BackwardInto(step, spec_.advantage, dadvantage_.data(),
                        {.layer = last, .out = x.x, .dx = gradient_.back().data()});
  }
  // Dueling: output layers of both streams, then their hidden layers.
  const QLayer *first = &spec_.value, *second = &spec_.advantage;
  const void *dfirst = dvalue_.data(), *dsecond = dadvantage_.data();
  ConvInput of_first = x, of_second = x;
  if (spec_.hidden()) {
    of_first.x = kept_.value_hidden.data();
    of_second.x = kept_.advantage_hidden.data();
  }
  BackwardWeights(step, *first, of_first, dfirst);
  BackwardWeights(step, *second, of_second, dsecond);
  if (spec_.hidden()) {
    BackwardInto(
        step, *first, dfirst,
        {.layer = spec_.value_hidden, .out = of_first.x, .dx = hidden_gradient_[0].data()});
    BackwardInto(
        step, *second, dsecond,
        {.layer = spec_.advantage_hidden, .out = of_second.x, .dx = hidden_gradient_[1].data()});
    first = &spec_.value_hidden, second = &spec_.advantage_hidden;
    dfirst = hidden_gradient_[0].data(), dsecond = hidden_gradient_[1].data();
    BackwardWeights(step, *first, x, dfirst);
    BackwardWeights(step, *second, x, dsecond);
  }
  // The trunk feeds both streams: sum their gradients before its activation's derivative.
  for (const auto& [layer, dz] : {std::pair(first, dfirst), std::pair(second, dsecond)}) {
    // The second product accumulates (beta = 1).
    MatMulArgs args;
    args.shape = {.m = step.pass.rows, .n = layer->linear.in, .k = layer->linear.out};
    args.precision = precision_;
    args.a = dz;
    args.b = Weight(step.pass.weights, *layer);
    args.c = gradient_.back().data();
    args.c_dtype = element;
    args.beta = layer == second ? 1 : 0;
    MatMul(step.stream, plans_, args);
  }
  // Then through the activation of the trunk's last layer.
  if (last.activation != Activation::kNone) {
    ActivationBackward(step.stream, {.activation = last.activation,
                                     .dtype = element,
                                     .n = step.pass.rows * last.out(),
                                     .y = x.x,
                                     .dy = gradient_.back().data(),
                                     .dz = gradient_.back().data()});
  }
}

// From the head down; the input of the first layer needs no gradient.
void QNetwork::Backward(Stream& stream, const QPass& pass, float* gradient, const Ready& ready) {
  // Ready ranges must follow the stream's order, so a second stream is used only without `ready`.
  const Step step{.stream = stream, .pass = pass, .gradient = gradient, .beside = !ready};
  // The loss has written the heads' gradients.
  BackwardHead(step);
  const DType element = ElementType(precision_);
  for (std::size_t i = spec_.layers.size(); i-- > 0;) {
    const QLayer& layer = spec_.layers[i];
    const void* dz = gradient_[i].data();
    const ConvInput x =
        i == 0 ? InputOf(kept_, pass.observation) : ConvInput{kept_.out[i - 1].data(), element, 1};
    BackwardWeights(step, layer, x, dz);
    // Parameters are in layer order, the head's last.
    if (ready) ready(i == 0 ? 0 : std::min(layer.weight, layer.bias));
    if (i == 0) break;
    BackwardInto(step, layer, dz,
                 {.layer = spec_.layers[i - 1], .out = x.x, .dx = gradient_[i - 1].data()});
  }
  if (!step.beside) return;
  // Later work on `stream` must see all gradients.
  aside_->joined.Record(aside_->stream);
  stream.Wait(aside_->joined);
}

}  // namespace troop::cuda
