#pragma once

#include "kernels/fused_mlp/activation_layout.h"
#include "kernels/fused_mlp/conv_impl.h"

// Forward and backward pass of fused_network.h. Compiled once per instruction set; see
// kernels/simd/vec.h.
namespace troop {
namespace {

// One fully connected layer, with transposed weights if available. ReLU is fused into the product.
inline void Linear(const FusedLinear& l, const FusedNetForward& call, const float* x, float* y) {
  const bool relu = l.activation == Activation::kRelu;
  const float* bias = call.value + l.bias;
  if (call.transposed != nullptr && IsTransposed(l)) {
    AxpyProduct({.rows = call.batch,
                 .columns = l.out,
                 .depth = l.in,
                 .a = x,
                 .a_row = l.in,
                 .a_depth = 1,
                 .b = call.transposed + l.weight,
                 .c = y,
                 .bias = bias,
                 .relu = relu});
  } else {
    DotProduct({call.batch, l.in, l.out, x, call.value + l.weight, bias, relu, y});
  }
  if (l.activation == Activation::kTanh) TanhInPlace(call.batch * l.out, y);
}

// Calls f for each fully connected layer.
template <class F>
inline void ForEachLinear(const FusedNet& net, F f) {
  for (int i = 0; i < net.trunk_count; ++i) f(net.trunk[i]);
  for (int i = 0; i < net.stream_count; ++i) {
    if (net.dueling) f(net.value[i]);
    f(net.advantage[i]);
  }
}

// Transposes the weights of the layers that IsTransposed selects.
inline void TransposeWeights(const FusedNet& net, const float* value, float* transposed) {
  ForEachLinear(net, [&](const FusedLinear& l) {
    if (IsTransposed(l)) Transpose(l.out, l.in, value + l.weight, transposed + l.weight);
  });
}

// out = input_scale * input, as f32. The bound of the u8 loop suits the widest load, 16 bytes.
inline void ConvertInput(const FusedNet& net, std::int64_t n, const void* input, float* out) {
  // The rest is scalar; both loops round in the same way.
  const Vec scale = Set(net.input_scale);
  std::int64_t i = 0;
  if (net.input_u8) {
    const auto* bytes = static_cast<const std::uint8_t*>(input);
    for (; i + 16 <= n; i += Vec::kLanes) Store(out + i, LoadU8(bytes + i) * scale);
    for (; i < n; ++i) out[i] = float(bytes[i]) * net.input_scale;
  } else {
    const auto* floats = static_cast<const float*>(input);
    for (; i + Vec::kLanes <= n; i += Vec::kLanes) Store(out + i, Load(floats + i) * scale);
    for (; i < n; ++i) out[i] = floats[i] * net.input_scale;
  }
}

// Mean over the actions, in their order.
inline float MeanOf(const float* x, std::int64_t n) {
  float sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += x[i];
  return sum / float(n);
}

// q = v + (a - mean(a))
inline void DuelingForward(std::int64_t batch, std::int64_t actions, const float* v, const float* a,
                           float* q) {
  for (std::int64_t i = 0; i < batch; ++i, a += actions, q += actions) {
    const float mean = MeanOf(a, actions);
    for (std::int64_t j = 0; j < actions; ++j) q[j] = v[i] + (a[j] - mean);
  }
}

// dv = Σ dq, da = dq - mean(dq)
inline void DuelingBackward(std::int64_t batch, std::int64_t actions, const float* dq, float* dv,
                            float* da) {
  for (std::int64_t i = 0; i < batch; ++i, da += actions, dq += actions) {
    const float mean = MeanOf(dq, actions);
    dv[i] = mean * float(actions);
    for (std::int64_t j = 0; j < actions; ++j) da[j] = dq[j] - mean;
  }
}

// Layer after layer; `x` points to the input of the next one. The last layer writes q directly
// unless the network is dueling.
inline void Forward(const FusedNet& net, const FusedNetForward& call) {
  // Offsets of the activations; recomputed per call, which is cheap.
  const FusedNetLayout at(net, call.batch);
  const float* x = static_cast<const float*>(call.input);
  float* const acts = call.activations;
  if (at.input >= 0) {
    ConvertInput(net, call.batch * net.inputs, call.input, acts + at.input);
    x = acts + at.input;
  }
  if (net.has_conv) {
    ConvForward(net.conv, call.batch, x, call.value, call.scratch + at.total, acts + at.conv);
    x = acts + at.conv;
  }
  for (int i = 0; i < net.trunk_count; ++i) {
    Linear(net.trunk[i], call, x, acts + at.trunk[i]);
    x = acts + at.trunk[i];
  }
  const int last = net.stream_count - 1;
  for (int i = 0; i <= last; ++i) {
    // Without dueling heads the last advantage layer is the output.
    const bool to_q = i == last && !net.dueling;
    if (net.dueling) {
      Linear(net.value[i], call, i == 0 ? x : acts + at.value[i - 1], acts + at.value[i]);
    }
    Linear(net.advantage[i], call, i == 0 ? x : acts + at.advantage[i - 1],
           to_q ? call.q : acts + at.advantage[i]);
  }
  if (net.dueling) {
    DuelingForward(call.batch, net.actions(), acts + at.value[last], acts + at.advantage[last],
                   call.q);
  }
}

// Input of a layer: the result of the previous layer, and the destination for the gradient of that
// layer's sum (nullptr for the observation, which needs none).
struct SmallNode {
  const float* result;
  float* gradient;
  Activation activation;
};

// Backward pass of a layer, from dz, the gradient of its sum: the gradient of its parameters and of
// the node before it. add_in: in.gradient already holds the part of another layer. finish_in: this
// part is the last one, so the derivative of the activation is applied.
inline void LinearBackward(const FusedLinear& l, const FusedNetBackward& call, const float* dz,
                           const SmallNode& in, bool add_in, bool finish_in) {
  // dw = dzᵀ x.
  AxpyProduct({.rows = l.out,
               .columns = l.in,
               .depth = call.batch,
               .a = dz,
               .a_row = 1,
               .a_depth = l.out,
               .b = in.result,
               .c = call.gradient + l.weight,
               .add = call.accumulate});
  // db = Σ dz.
  ColumnSums(call.batch, l.out, dz, call.accumulate, call.gradient + l.bias);
  if (in.gradient == nullptr) return;
  // dx = dz w.
  AxpyProduct({.rows = call.batch,
               .columns = l.in,
               .depth = l.out,
               .a = dz,
               .a_row = l.out,
               .a_depth = 1,
               .b = call.value + l.weight,
               .c = in.gradient,
               .add = add_in,
               .derivative = finish_in ? in.activation : Activation::kNone,
               .result = in.result});
}

// Backward pass of the streams after the trunk; `features` is their input. With a dueling network
// both streams add to the gradient of the features.
inline void StreamsBackward(const FusedNet& net, const FusedNetBackward& call,
                            const FusedNetLayout& at, const SmallNode& features) {
  float* const grads = call.scratch;
  const int last = net.stream_count - 1;
  const float* dz = call.dq;
  if (net.dueling) {
    DuelingBackward(call.batch, net.actions(), call.dq, grads + at.value[last],
                    grads + at.advantage[last]);
    // Value stream, from its last layer down to the features.
    dz = grads + at.value[last];
    for (int i = last; i > 0; --i, dz = grads + at.value[i]) {
      LinearBackward(net.value[i], call, dz,
                     {call.activations + at.value[i - 1], grads + at.value[i - 1],
                      net.value[i - 1].activation},
                     false, true);
    }
    LinearBackward(net.value[0], call, dz, features, false, false);
    // Advantage stream; its first layer completes the gradient of the features.
    dz = grads + at.advantage[last];
  }
  for (int i = last; i > 0; --i, dz = grads + at.advantage[i]) {
    LinearBackward(net.advantage[i], call, dz,
                   {call.activations + at.advantage[i - 1], grads + at.advantage[i - 1],
                    net.advantage[i - 1].activation},
                   false, true);
  }
  LinearBackward(net.advantage[0], call, dz, features, net.dueling, true);
}

// Backward pass of the network. Gradients of activations are in scratch at the offsets of the
// activations.
inline void Backward(const FusedNet& net, const FusedNetBackward& call) {
  const FusedNetLayout at(net, call.batch);
  float* const grads = call.scratch;
  const float* const input =
      at.input >= 0 ? call.activations + at.input : static_cast<const float*>(call.input);
  // nodes[0] is the input of the trunk, nodes[i + 1] the result of its layer i.
  SmallNode nodes[FusedNet::kTrunkMax + 1];
  nodes[0] = {input, nullptr, Activation::kNone};
  // The convolution is the trunk's input; the observation needs no gradient.
  if (net.has_conv) nodes[0] = {call.activations + at.conv, grads + at.conv, net.conv.activation};
  for (int i = 0; i < net.trunk_count; ++i) {
    nodes[i + 1] = {call.activations + at.trunk[i], grads + at.trunk[i], net.trunk[i].activation};
  }
  // Streams, then the trunk from its last layer, then the convolution.
  StreamsBackward(net, call, at, nodes[net.trunk_count]);
  for (int i = net.trunk_count - 1; i >= 0; --i) {
    LinearBackward(net.trunk[i], call, nodes[i + 1].gradient, nodes[i], false, true);
  }
  if (net.has_conv) {
    ConvBackwardWeight(net.conv, call.batch, input, grads + at.conv, grads + at.total,
                       call.accumulate, call.gradient);
  }
}

}  // namespace

namespace TROOP_ISA {
extern const FusedNetKernels kFusedNetKernels;
const FusedNetKernels kFusedNetKernels = {TransposeWeights, Forward, Backward};
}  // namespace TROOP_ISA

}  // namespace troop
