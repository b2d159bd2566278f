// Implements the translation of a policy's layers to operators of ONNX.
#include "nn/export/onnx_policy.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "nn/export/onnx_graph.h"
#include "nn/layers/layers.h"

namespace troop {
namespace {

// Product of the dimensions; 1 for a scalar.
std::int64_t Elements(const std::vector<std::int64_t>& shape) {
  std::int64_t elements = 1;
  for (const std::int64_t dim : shape) elements *= dim;
  return elements;
}

// Translates the layers one after the other.
class PolicyTranslator {
 public:
  PolicyTranslator(const PolicyDescription& policy, const TensorFile& file)
      : policy_(policy), file_(file) {}

  // Errors of parameters are recorded, and end the translation after the layer.
  Result<OnnxGraph> Translate() {
    Begin();
    for (const PolicyLayer& layer : policy_.layers) {
      Translate(layer);
      if (!error_.ok()) return error_;
    }
    End();
    return std::move(graph_);
  }

 private:
  // The observation as f32.
  void Begin() {
    const DType dtype = policy_.observation.dtype;
    const OnnxType type = dtype == DType::kU8    ? OnnxType::kUint8
                          : dtype == DType::kI32 ? OnnxType::kInt32
                                                 : OnnxType::kFloat;
    graph_.Input({"observation", type, {"batch"}, policy_.layers[0].in});
    if (const std::int64_t state = policy_.state_size(); state > 0)
      graph_.Input({"state", OnnxType::kFloat, {"batch"}, {state}});
    x_ = "observation";
    if (type != OnnxType::kFloat) x_ = graph_.Add("Cast", {x_}, {OnnxCastTo(OnnxType::kFloat)});
  }

  void End() {
    if (!states_.empty()) {
      graph_.Add("Concat", states_, {OnnxInt("axis", 1)}, "next_state");
      graph_.Output({"next_state", OnnxType::kFloat, {"batch"}, {policy_.state_size()}});
    }
    if (!policy_.action.discrete()) {
      graph_.Add("Identity", {x_}, {}, "action");
      graph_.Output({"action", OnnxType::kFloat, {"batch"}, policy_.layers.back().out});
      return;
    }
    graph_.Add("Identity", {x_}, {}, "q");
    // The first of equal values, as Troop chooses.
    graph_.Add("ArgMax", {"q"}, {OnnxInt("axis", 1), OnnxInt("keepdims", 0)}, "action");
    graph_.Output({"action", OnnxType::kInt64, {"batch"}, {}});
    graph_.Output({"q", OnnxType::kFloat, {"batch"}, policy_.layers.back().out});
  }

  void Translate(const PolicyLayer& layer) {
    switch (layer.kind) {
      case PolicyLayerKind::kClip:
        x_ = graph_.Add("Clip", {x_, graph_.Scalar(layer.low), graph_.Scalar(layer.high)});
        return;
      case PolicyLayerKind::kScale:
        return Scale(layer.factor);
      case PolicyLayerKind::kNormalize:
        return Normalize(layer);
      case PolicyLayerKind::kOneHot:
        return OneHot(layer);
      case PolicyLayerKind::kImages:
        return Images(layer);
      case PolicyLayerKind::kConv2d:
        return Conv2d(layer);
      case PolicyLayerKind::kLinear:
        Flatten(layer.in);
        x_ = Gemm(x_, layer.tensors, layer.out[0], layer.in.elements());
        return Activate(layer.activation);
      case PolicyLayerKind::kLayerNorm:
        LayerNorm(layer);
        return Activate(layer.activation);
      case PolicyLayerKind::kDueling:
        return Dueling(layer);
      case PolicyLayerKind::kCategoricalMean:
        return CategoricalMean(layer);
      case PolicyLayerKind::kQuantileMean:
        Reshape({-1, layer.out[0], layer.in[0] / layer.out[0]});
        x_ = graph_.Add("ReduceMean", {x_}, {OnnxInts("axes", {2}), OnnxInt("keepdims", 0)});
        return;
      case PolicyLayerKind::kActionBounds:
        return ActionBounds(graph_.Add("Tanh", {x_}));
      case PolicyLayerKind::kClippedBounds:
        return ActionBounds(
            graph_.Add("Max", {graph_.Add("Min", {x_, graph_.Scalar(1)}), graph_.Scalar(-1)}));
      case PolicyLayerKind::kPadding:
        ChannelsFirst();
        x_ = graph_.Add("Pad", {x_, graph_.Integers(Pads({0, 0, layer.padding, layer.padding}))});
        return;
      case PolicyLayerKind::kMaxPool:
        ChannelsFirst();
        x_ = graph_.Add("MaxPool", {x_},
                        {OnnxInts("kernel_shape", {layer.kernel, layer.kernel}),
                         OnnxInts("strides", {layer.stride, layer.stride}),
                         OnnxInts("pads", Pads({layer.padding, layer.padding}))});
        return;
      case PolicyLayerKind::kResidual:
        return Residual(layer);
      case PolicyLayerKind::kPart:
        return Part(layer);
      case PolicyLayerKind::kParts:
        return Parts(layer);
      case PolicyLayerKind::kActionMask:
        return ActionMask(layer);
      case PolicyLayerKind::kLstm:
        return Lstm(layer);
      case PolicyLayerKind::kGru:
        return Gru(layer);
    }
  }

  // A factor of 1 needs no operator.
  void Scale(float factor) {
    if (factor != 1) x_ = graph_.Add("Mul", {x_, graph_.Scalar(factor)});
  }
  // Dimensions of -1 follow from the others.
  void Reshape(const std::vector<std::int64_t>& shape) {
    x_ = graph_.Add("Reshape", {x_, graph_.Integers(shape)});
  }
  void Transpose(const std::vector<std::int64_t>& order) {
    x_ = graph_.Add("Transpose", {x_}, {OnnxInts("perm", order)});
  }
  void Activate(Activation activation) {
    if (activation == Activation::kRelu) x_ = graph_.Add("Relu", {x_});
    if (activation == Activation::kTanh) x_ = graph_.Add("Tanh", {x_});
  }
  // [batch, …] → [batch, elements], in Troop's order: channels last.
  void Flatten(const Shape& in) {
    if (channels_first_) Transpose({0, 2, 3, 1});
    channels_first_ = false;
    Reshape({-1, in.elements()});
  }

  // The values of a parameter; records an error if there is none of that size.
  std::vector<float> Values(const std::string& name, std::int64_t elements) {
    const auto found = file_.tensors.find(name);
    if (found == file_.tensors.end() || found->second.elements() != elements) {
      error_ = InvalidArgument("the network has no parameter {} of {} values", name, elements);
      return std::vector<float>(std::size_t(elements));
    }
    const auto values = found->second.as<float>();
    return {values.begin(), values.end()};
  }
  // A constant with the values of a parameter.
  std::string Parameter(const std::string& name, const std::vector<std::int64_t>& shape) {
    return graph_.Floats(shape, Values(name, Elements(shape)));
  }
  // x · weightᵀ + bias.
  std::string Gemm(const std::string& x, const std::string& tensors, std::int64_t out,
                   std::int64_t in) {
    return graph_.Add(
        "Gemm", {x, Parameter(tensors + ".weight", {out, in}), Parameter(tensors + ".bias", {out})},
        {OnnxInt("transB", 1)});
  }

  // Mean and deviation as in nn/layers/normalize_layer.cc.
  void Normalize(const PolicyLayer& layer) {
    const std::int64_t size = layer.in.elements();
    std::vector<float> inverse = Values(layer.tensors + ".variance", size);
    const bool any = Values(layer.tensors + ".count", 1)[0] > 0;
    for (float& v : inverse) v = any ? float(1 / std::sqrt(double(v) + 1e-8)) : 1;
    std::vector<std::int64_t> shape;
    for (int i = 0; i < layer.in.rank(); ++i) shape.push_back(layer.in[i]);
    x_ = graph_.Add("Sub", {x_, Parameter(layer.tensors + ".mean", shape)});
    x_ = graph_.Add("Mul", {x_, graph_.Floats(shape, inverse)});
    x_ = graph_.Add("Clip", {x_, graph_.Scalar(-10), graph_.Scalar(10)});
  }

  // Compares each element with each class, which gives zeros for other values.
  void OneHot(const PolicyLayer& layer) {
    std::vector<float> classes;
    for (std::int64_t c = 0; c < layer.classes; ++c) classes.push_back(float(c));
    Reshape({-1, layer.in.elements(), 1});
    x_ = graph_.Add("Equal", {x_, graph_.Floats({layer.classes}, classes)});
    x_ = graph_.Add("Cast", {x_}, {OnnxCastTo(OnnxType::kFloat)});
    Reshape({-1, layer.out.elements()});
  }

  // [batch, stack, h, w, c] → [batch, stack · c, h, w].
  void Images(const PolicyLayer& layer) {
    const std::int64_t height = layer.out[0], width = layer.out[1], all = layer.out[2];
    Reshape({-1, layer.stack, height, width, all / layer.stack});
    Transpose({0, 1, 4, 2, 3});
    Reshape({-1, all, height, width});
    Scale(layer.factor);
    channels_first_ = true;
  }

  // Elements [begin, end) of an axis.
  struct Range {
    std::int64_t begin, end;
  };
  std::string Slice(const std::string& x, std::int64_t axis, Range range) {
    return graph_.Add("Slice", {x, graph_.Integers({range.begin}), graph_.Integers({range.end}),
                                graph_.Integers({axis})});
  }
  // The elements are those of the last axis, also in a stack of frames.
  void Part(const PolicyLayer& layer) {
    const std::int64_t size = layer.out.elements() / layer.stack;
    x_ = Slice(x_, -1, {layer.first, layer.first + size});
    if (layer.out.rank() == 3) return Images(layer);
    Reshape({-1, layer.out.elements()});
    Scale(layer.factor);
  }
  // Every branch begins with the input of this layer.
  void Parts(const PolicyLayer& layer) {
    const std::string input = x_;
    std::vector<std::string> outputs;
    for (const std::vector<PolicyLayer>& branch : layer.branches) {
      x_ = input;
      channels_first_ = false;
      for (const PolicyLayer& next : branch) Translate(next);
      Flatten(branch.back().out);
      outputs.push_back(x_);
    }
    x_ = graph_.Add("Concat", outputs, {OnnxInt("axis", 1)});
  }
  // An action is hidden if its element is less than the largest one, of elements that are 0 or 1
  // after the conversion.
  void ActionMask(const PolicyLayer& layer) {
    const std::int64_t actions = layer.out[0], stack = policy_.frame_stack;
    std::string mask = Slice("observation", -1, {layer.first, layer.first + actions});
    if (stack > 1) mask = Slice(mask, 1, {stack - 1, stack});
    mask = graph_.Add("Reshape", {mask, graph_.Integers({-1, actions})});
    mask = graph_.Add("Cast", {mask}, {OnnxCastTo(OnnxType::kBool)});
    mask = graph_.Add("Cast", {mask}, {OnnxCastTo(OnnxType::kFloat)});
    const std::string any = graph_.Add("ReduceMax", {mask}, {OnnxInts("axes", {1})});
    const std::string hidden = graph_.Add("Less", {mask, any});
    x_ = graph_.Add("Where", {hidden, graph_.Scalar(kMaskedOutput), x_});
  }

  // The part of the input `state` after those of the layers before.
  std::string TakeState(std::int64_t units) {
    state_ += units;
    return Slice("state", 1, {state_ - units, state_});
  }
  // x · weightᵀ + bias for the input (side "ih") or h ("hh").
  std::string GateSums(const std::string& x, const PolicyLayer& layer, const char* side,
                       std::int64_t outputs, std::int64_t inputs) {
    const std::string weight = layer.tensors + ".weight_" + side;
    const std::string bias = layer.tensors + ".bias_" + side;
    return graph_.Add("Gemm", {x, Parameter(weight, {outputs, inputs}), Parameter(bias, {outputs})},
                      {OnnxInt("transB", 1)});
  }
  // c = σ(f) c + σ(i) tanh(g), h = σ(o) tanh(c). Primitive operators, because LSTM of ONNX has
  // another order of gates and an axis of time.
  void Lstm(const PolicyLayer& layer) {
    Flatten(layer.in);
    const std::int64_t n = layer.out[0];
    const std::string h = TakeState(n), c = TakeState(n);
    const std::string sums =
        graph_.Add("Add", {GateSums(x_, layer, "ih", 4 * n, layer.in.elements()),
                           GateSums(h, layer, "hh", 4 * n, n)});
    const auto gate = [&](std::int64_t i, const char* op) {
      return graph_.Add(op, {Slice(sums, 1, {i * n, (i + 1) * n})});
    };
    const std::string kept = graph_.Add("Mul", {gate(1, "Sigmoid"), c});
    const std::string added = graph_.Add("Mul", {gate(0, "Sigmoid"), gate(2, "Tanh")});
    const std::string next = graph_.Add("Add", {kept, added});
    x_ = graph_.Add("Mul", {gate(3, "Sigmoid"), graph_.Add("Tanh", {next})});
    states_.insert(states_.end(), {x_, next});
  }
  // h = (1 - z) n + z h = n + z (h - n), n = tanh(x + r u).
  void Gru(const PolicyLayer& layer) {
    Flatten(layer.in);
    const std::int64_t n = layer.out[0];
    const std::string h = TakeState(n);
    const std::string x = GateSums(x_, layer, "ih", 3 * n, layer.in.elements());
    const std::string u = GateSums(h, layer, "hh", 3 * n, n);
    const auto part = [&](const std::string& sums, std::int64_t i) {
      return Slice(sums, 1, {i * n, (i + 1) * n});
    };
    const auto gate = [&](std::int64_t i) {
      return graph_.Add("Sigmoid", {graph_.Add("Add", {part(x, i), part(u, i)})});
    };
    // The reset gate scales the sum of h with its bias.
    const std::string reset = graph_.Add("Mul", {gate(0), part(u, 2)});
    const std::string fresh = graph_.Add("Tanh", {graph_.Add("Add", {part(x, 2), reset})});
    const std::string change = graph_.Add("Mul", {gate(1), graph_.Add("Sub", {h, fresh})});
    x_ = graph_.Add("Add", {fresh, change});
    states_.push_back(x_);
  }

  // [batch, h, w, channels] → [batch, channels, h, w], which the operators of images need.
  void ChannelsFirst() {
    if (!channels_first_) Transpose({0, 3, 1, 2});
    channels_first_ = true;
  }
  // The attribute of a padding that is equal on both sides of each axis.
  static std::vector<std::int64_t> Pads(std::vector<std::int64_t> begin) {
    const std::vector<std::int64_t> end = begin;
    begin.insert(begin.end(), end.begin(), end.end());
    return begin;
  }

  // A convolution of images with their channels first. kernel: with `padding` on each side.
  struct Kernel {
    std::int64_t size, stride, padding;
  };
  std::string Convolve(const std::string& x, const std::string& tensors, std::int64_t channels,
                       std::int64_t filters, Kernel kernel) {
    const std::int64_t k = kernel.size;
    // [filters, k, k, channels] → [filters, channels, k, k].
    const std::vector<float> from = Values(tensors + ".weight", filters * k * k * channels);
    std::vector<float> weight;
    for (std::int64_t f = 0; f < filters; ++f) {
      for (std::int64_t c = 0; c < channels; ++c) {
        for (std::int64_t at = 0; at < k * k; ++at)
          weight.push_back(from[std::size_t((f * k * k + at) * channels + c)]);
      }
    }
    return graph_.Add(
        "Conv",
        {x, graph_.Floats({filters, channels, k, k}, weight),
         Parameter(tensors + ".bias", {filters})},
        {OnnxInts("kernel_shape", {k, k}), OnnxInts("strides", {kernel.stride, kernel.stride}),
         OnnxInts("pads", Pads({kernel.padding, kernel.padding}))});
  }
  void Conv2d(const PolicyLayer& layer) {
    ChannelsFirst();
    x_ = Convolve(x_, layer.tensors, layer.in[2], layer.out[2], {layer.kernel, layer.stride, 0});
    Activate(layer.activation);
  }

  // y = activation(x + conv1(relu(conv0(relu(x))))).
  void Residual(const PolicyLayer& layer) {
    ChannelsFirst();
    // The padding keeps height and width.
    const Kernel kernel{layer.kernel, 1, layer.kernel / 2};
    const auto convolve = [&](const std::string& x, const char* name) {
      return Convolve(graph_.Add("Relu", {x}), layer.tensors + name, layer.in[2], layer.in[2],
                      kernel);
    };
    x_ = graph_.Add("Add", {x_, convolve(convolve(x_, ".conv0"), ".conv1")});
    Activate(layer.activation);
  }

  // Over the last axis, which is that of the channels.
  void LayerNorm(const PolicyLayer& layer) {
    if (channels_first_) Transpose({0, 2, 3, 1});
    channels_first_ = false;
    const std::int64_t n = layer.in[layer.in.rank() - 1];
    x_ = graph_.Add(
        "LayerNormalization",
        {x_, Parameter(layer.tensors + ".weight", {n}), Parameter(layer.tensors + ".bias", {n})},
        {OnnxInt("axis", -1), OnnxFloat("epsilon", 1e-5f)});
  }

  // q = v + a - mean(a), for each of the K outputs of an action.
  void Dueling(const PolicyLayer& layer) {
    Flatten(layer.in);
    const std::int64_t in = layer.in.elements(), k = layer.numbers, outputs = layer.out[0];
    const auto stream = [&](const std::string& name, std::int64_t out) {
      std::string x = x_;
      if (layer.units > 0) {
        x = graph_.Add("Relu", {Gemm(x, layer.tensors + "." + name + ".hidden", layer.units, in)});
      }
      x = Gemm(x, layer.tensors + "." + name, out, layer.units > 0 ? layer.units : in);
      return graph_.Add("Reshape", {x, graph_.Integers({-1, out / k, k})});
    };
    const std::string value = stream("value", k), advantage = stream("advantage", outputs);
    const std::string mean = graph_.Add("ReduceMean", {advantage}, {OnnxInts("axes", {1})});
    x_ = graph_.Add("Add", {graph_.Add("Sub", {advantage, mean}), value});
    Reshape({-1, outputs});
  }

  // The weighted mean of the atoms is a product with the column of atoms.
  void CategoricalMean(const PolicyLayer& layer) {
    const std::int64_t actions = layer.out[0], atoms = layer.in[0] / actions;
    std::vector<float> atom;
    for (std::int64_t i = 0; i < atoms; ++i) {
      const double share = double(i) / double(atoms - 1);
      atom.push_back(float(double(layer.low) + share * (double(layer.high) - double(layer.low))));
    }
    Reshape({-1, actions, atoms});
    x_ = graph_.Add("Softmax", {x_}, {OnnxInt("axis", -1)});
    x_ = graph_.Add("MatMul", {x_, graph_.Floats({atoms, 1}, atom)});
    Reshape({-1, actions});
  }

  // low + (high - low) · (1 + share) / 2, where share is a tanh or a clipped mean; rounding must
  // not leave the bounds.
  void ActionBounds(const std::string& share) {
    const std::vector<float>&low = policy_.action.low, &high = policy_.action.high;
    const std::vector<std::int64_t> shape{std::int64_t(low.size())};
    std::vector<float> half(low.size());
    for (std::size_t i = 0; i < half.size(); ++i) half[i] = (high[i] - low[i]) / 2;
    x_ = graph_.Add("Add", {share, graph_.Scalar(1)});
    x_ = graph_.Add("Mul", {x_, graph_.Floats(shape, half)});
    x_ = graph_.Add("Add", {x_, graph_.Floats(shape, low)});
    x_ = graph_.Add("Min", {x_, graph_.Floats(shape, high)});
    x_ = graph_.Add("Max", {x_, graph_.Floats(shape, low)});
  }

  const PolicyDescription& policy_;
  const TensorFile& file_;
  OnnxGraph graph_{"policy"};
  std::string x_;                    // the output of the last layer
  std::vector<std::string> states_;  // recurrent states after the step, in the order of layers
  std::int64_t state_ = 0;           // elements of the input `state` that layers have taken
  bool channels_first_ = false;      // x_ is [batch, channels, h, w] instead of channels last
  Status error_;
};

}  // namespace

Result<Buffer> EncodeOnnxPolicy(const PolicyDescription& policy, const TensorFile& file) {
  TROOP_ASSIGN_OR_RETURN(const OnnxGraph graph, PolicyTranslator(policy, file).Translate());
  std::map<std::string, std::string> metadata = file.metadata;
  metadata[kPolicyKey] = EncodePolicy(policy);
  return graph.Encode(metadata);
}

}  // namespace troop
