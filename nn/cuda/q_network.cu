// Implements the passes of a Q-network on a GPU.
#include "nn/cuda/q_network.h"

#include <algorithm>

#include "kernels/cuda/loss/dueling.h"
#include "kernels/cuda/ops/activation.h"

namespace troop::cuda {

QNetwork::QNetwork(Device& device, MatMulPlans& plans, const QNetworkSpec& spec,
                   Precision precision, std::int64_t rows, std::int64_t backward_rows)
    : plans_(plans), spec_(spec), precision_(precision) {
  // Scratch of the convolutions' weight gradients; shared, because they run one after the other.
  std::int64_t scratch = 16;
  for (const QLayer& layer : spec.layers) {
    if (layer.convolution)
      scratch = std::max(scratch, ConvBackwardWeightScratch(layer.conv, backward_rows));
  }
  const auto elements = [&](std::int64_t n) {
    return Bytes(device, n * ElementBytes(ElementType(precision)), "activations");
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
  kept_ = make(rows);
  passing_ = make(rows);
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
void QNetwork::ForwardLayer(Stream& stream, const QWeights& weights, const QLayer& layer,
                            std::int64_t rows, const ConvInput& input, void* y, DType y_dtype) {
  const float* const bias = weights.value + layer.bias;
  if (layer.convolution) {
    ConvForward(stream, {.precision = precision_,
                         .shape = layer.conv,
                         .activation = layer.activation,
                         .batch = rows,
                         .input = input,
                         .weight = Weight(weights, layer),
                         .bias = bias,
                         .y = y});
    return;
  }
  // Biases are f32, except in linear layers with bf16 output.
  const bool bf16 = y_dtype == DType::kBF16;
  LinearForward(stream, plans_,
                {.precision = precision_,
                 .shape = layer.linear,
                 .activation = layer.activation,
                 .batch = rows,
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
void QNetwork::Compute(Stream& stream, const QWeights& weights, std::int64_t rows,
                       const void* observation, const Kept& kept, float* advantage) {
  const DType element = ElementType(precision_);
  if (!TakesBytes()) {
    ConvertScaled(stream, {.n = rows * spec_.input_elements,
                           .from = observation,
                           .from_dtype = spec_.input,
                           .scale = spec_.input_scale,
                           .to = kept.input.data(),
                           .to_dtype = element});
  }
  ConvInput x = InputOf(kept, observation);
  for (std::size_t i = 0; i < spec_.layers.size(); ++i) {
    ForwardLayer(stream, weights, spec_.layers[i], rows, x, kept.out[i].data(), element);
    x = {kept.out[i].data(), element, 1};
  }
  // The head: hidden layers of both streams, then their outputs.
  ConvInput of_value = x, of_advantage = x;
  if (spec_.hidden()) {
    ForwardLayer(stream, weights, spec_.value_hidden, rows, x, kept.value_hidden.data(), element);
    ForwardLayer(stream, weights, spec_.advantage_hidden, rows, x, kept.advantage_hidden.data(),
                 element);
    of_value.x = kept.value_hidden.data();
    of_advantage.x = kept.advantage_hidden.data();
  }
  if (spec_.dueling)
    ForwardLayer(stream, weights, spec_.value, rows, of_value, kept.value.data(), DType::kF32);
  ForwardLayer(stream, weights, spec_.advantage, rows, of_advantage, advantage, DType::kF32);
}

void QNetwork::Forward(Stream& stream, const QWeights& weights, std::int64_t rows,
                       const void* observation, bool keep, float* q) {
  if (!spec_.dueling)
    return Compute(stream, weights, rows, observation, keep ? kept_ : passing_, q);
  const QHeads heads = ForwardHeads(stream, weights, rows, observation, keep);
  CombineDueling(stream, {.rows = rows,
                          .actions = spec_.actions,
                          .numbers = spec_.numbers,
                          .value = heads.value,
                          .advantage = heads.advantage,
                          .q = q});
}

QHeads QNetwork::ForwardHeads(Stream& stream, const QWeights& weights, std::int64_t rows,
                              const void* observation, bool keep) {
  const Kept& kept = keep ? kept_ : passing_;
  Compute(stream, weights, rows, observation, kept, kept.advantage.data());
  return {kept.value.data(), kept.advantage.data()};
}

QHeadGradients QNetwork::head_gradients() const { return {dvalue_.data(), dadvantage_.data()}; }

// Forks the second stream at the current point of `stream`; Backward joins it at its end.
template <class Work>
void QNetwork::Beside(Stream& stream, bool beside, const Work& work) {
  if (!beside) return work(stream, plans_);
  aside_->forked.Record(stream);
  aside_->stream.Wait(aside_->forked);
  work(aside_->stream, aside_->plans);
}

// Parameter gradients do not feed into later work, so they may run on the second stream.
void QNetwork::BackwardWeights(Stream& stream, bool beside, const QLayer& layer, std::int64_t rows,
                               const ConvInput& input, const void* dz, float* gradient) {
  float* dweight = gradient + layer.weight;
  float* dbias = gradient + layer.bias;
  Beside(stream, beside, [&](Stream& on, MatMulPlans& plans) {
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
void QNetwork::BackwardInto(Stream& stream, const QWeights& weights, const QLayer& layer,
                            std::int64_t rows, const void* dz, const QLayer& below,
                            const void* below_out, void* dx) {
  const void* relu_of = below.activation == Activation::kRelu ? below_out : nullptr;
  if (layer.convolution) {
    ConvBackwardData(stream, {.precision = precision_,
                              .shape = layer.conv,
                              .batch = rows,
                              .weight = Weight(weights, layer),
                              .dz = dz,
                              .relu_of = relu_of,
                              .dx = dx});
  } else {
    LinearBackwardData(stream, plans_,
                       {.precision = precision_,
                        .shape = layer.linear,
                        .batch = rows,
                        .weight = Weight(weights, layer),
                        .dz = dz,
                        .relu_of = relu_of,
                        .dx = dx});
  }
  // relu is fused into the kernels, tanh is a separate one.
  if (below.activation == Activation::kTanh) {
    ActivationBackward(stream, {.activation = Activation::kTanh,
                                .dtype = ElementType(precision_),
                                .n = rows * below.out(),
                                .y = below_out,
                                .dy = dx,
                                .dz = dx});
  }
}

// Computes the gradients of the head's parameters, and that of the trunk's last pre-activations
// into the last gradient_.
void QNetwork::BackwardHead(Stream& stream, bool beside, const QWeights& weights, std::int64_t rows,
                            float* gradient) {
  const DType element = ElementType(precision_);
  const QLayer& last = spec_.layers.back();
  const ConvInput x{kept_.out.back().data(), element, 1};
  if (!spec_.dueling) {
    BackwardWeights(stream, beside, spec_.advantage, rows, x, dadvantage_.data(), gradient);
    return BackwardInto(stream, weights, spec_.advantage, rows, dadvantage_.data(), last, x.x,
                        gradient_.back().data());
  }
  // Dueling: output layers of both streams, then their hidden layers.
  const QLayer *first = &spec_.value, *second = &spec_.advantage;
  const void *dfirst = dvalue_.data(), *dsecond = dadvantage_.data();
  ConvInput of_first = x, of_second = x;
  if (spec_.hidden()) {
    of_first.x = kept_.value_hidden.data();
    of_second.x = kept_.advantage_hidden.data();
  }
  BackwardWeights(stream, beside, *first, rows, of_first, dfirst, gradient);
  BackwardWeights(stream, beside, *second, rows, of_second, dsecond, gradient);
  if (spec_.hidden()) {
    BackwardInto(stream, weights, *first, rows, dfirst, spec_.value_hidden, of_first.x,
                 hidden_gradient_[0].data());
    BackwardInto(stream, weights, *second, rows, dsecond, spec_.advantage_hidden, of_second.x,
                 hidden_gradient_[1].data());
    first = &spec_.value_hidden, second = &spec_.advantage_hidden;
    dfirst = hidden_gradient_[0].data(), dsecond = hidden_gradient_[1].data();
    BackwardWeights(stream, beside, *first, rows, x, dfirst, gradient);
    BackwardWeights(stream, beside, *second, rows, x, dsecond, gradient);
  }
  // The trunk feeds both streams: sum their gradients before its activation's derivative.
  for (const auto& [layer, dz] : {std::pair(first, dfirst), std::pair(second, dsecond)}) {
    // The second product accumulates (beta = 1).
    MatMulArgs args;
    args.shape = {.m = rows, .n = layer->linear.in, .k = layer->linear.out};
    args.precision = precision_;
    args.a = dz;
    args.b = Weight(weights, *layer);
    args.c = gradient_.back().data();
    args.c_dtype = element;
    args.beta = layer == second ? 1 : 0;
    MatMul(stream, plans_, args);
  }
  // Then through the activation of the trunk's last layer.
  if (last.activation != Activation::kNone) {
    ActivationBackward(stream, {.activation = last.activation,
                                .dtype = element,
                                .n = rows * last.out(),
                                .y = x.x,
                                .dy = gradient_.back().data(),
                                .dz = gradient_.back().data()});
  }
}

// From the head down; the input of the first layer needs no gradient.
void QNetwork::Backward(Stream& stream, const QWeights& weights, std::int64_t rows,
                        const void* observation, float* gradient, const Ready& ready) {
  // Ready ranges must follow the stream's order, so a second stream is used only without `ready`.
  const bool beside = !ready;
  // The loss has written the heads' gradients.
  BackwardHead(stream, beside, weights, rows, gradient);
  const DType element = ElementType(precision_);
  for (std::size_t i = spec_.layers.size(); i-- > 0;) {
    const QLayer& layer = spec_.layers[i];
    const void* dz = gradient_[i].data();
    const ConvInput x =
        i == 0 ? InputOf(kept_, observation) : ConvInput{kept_.out[i - 1].data(), element, 1};
    BackwardWeights(stream, beside, layer, rows, x, dz, gradient);
    // Parameters are in layer order, the head's last.
    if (ready) ready(i == 0 ? 0 : std::min(layer.weight, layer.bias));
    if (i == 0) break;
    BackwardInto(stream, weights, layer, rows, dz, spec_.layers[i - 1], x.x,
                 gradient_[i - 1].data());
  }
  if (!beside) return;
  // Later work on `stream` must see all gradients.
  aside_->joined.Record(aside_->stream);
  stream.Wait(aside_->joined);
}

}  // namespace troop::cuda
