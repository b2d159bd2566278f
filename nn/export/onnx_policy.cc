// Implements the translation of a policy's layers to operators of ONNX.
#include "nn/export/onnx_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <utility>
#include <vector>

#include "core/base/version.h"
#include "core/storage/protobuf_writer.h"

namespace troop {
namespace {

constexpr std::int64_t kIrVersion = 8, kOpset = 17;
// TensorProto.DataType.
enum ElementType : std::int64_t { kFloat = 1, kUint8 = 2, kInt32 = 6, kInt64 = 7 };
// AttributeProto.AttributeType.
enum AttributeType : std::int64_t { kFloatType = 1, kIntType = 2, kIntsType = 7 };

// Product of the dimensions; 1 for a scalar.
std::int64_t Elements(const std::vector<std::int64_t>& shape) {
  std::int64_t elements = 1;
  for (const std::int64_t dim : shape) elements *= dim;
  return elements;
}

// One attribute of a node.
ProtobufWriter IntAttribute(std::string_view name, std::int64_t value) {
  return ProtobufWriter().Bytes(1, name).Integer(3, value).Integer(20, kIntType);
}
ProtobufWriter IntsAttribute(std::string_view name, const std::vector<std::int64_t>& values) {
  ProtobufWriter out;
  out.Bytes(1, name);
  for (const std::int64_t value : values) out.Integer(8, value);
  return out.Integer(20, kIntsType);
}

// A graph under construction: nodes in order, and constants.
class OnnxGraph {
 public:
  // Adds a node with one output, whose name it returns.
  std::string Add(std::string_view op, const std::vector<std::string>& inputs,
                  const std::vector<ProtobufWriter>& attributes = {}, std::string out = "") {
    if (out.empty()) out = fmt::format("{}_{}", op, count_);
    // NodeProto: inputs, output, name, operator, attributes.
    ProtobufWriter node;
    for (const std::string& input : inputs) node.Bytes(1, input);
    node.Bytes(2, out).Bytes(3, fmt::format("node_{}", count_++)).Bytes(4, op);
    for (const ProtobufWriter& attribute : attributes) node.Message(5, attribute);
    graph_.Message(1, node);
    return out;
  }
  std::string Floats(const std::vector<std::int64_t>& shape, const std::vector<float>& values) {
    return Constant(shape, kFloat, values.data(), values.size() * sizeof(float));
  }
  std::string Integers(const std::vector<std::int64_t>& values) {
    return Constant({std::int64_t(values.size())}, kInt64, values.data(),
                    values.size() * sizeof(std::int64_t));
  }
  std::string Scalar(float value) { return Floats({}, {value}); }

  // An input (field 11) or output (field 12) with a free first dimension.
  void Declare(int field, std::string_view name, ElementType type, const Shape& shape) {
    // ValueInfoProto of a tensor type.
    ProtobufWriter dims;
    dims.Message(1, ProtobufWriter().Bytes(2, "batch"));
    for (int i = 0; i < shape.rank(); ++i) dims.Message(1, ProtobufWriter().Integer(1, shape[i]));
    const ProtobufWriter tensor = ProtobufWriter().Integer(1, type).Message(2, dims);
    const ProtobufWriter kind = ProtobufWriter().Message(1, tensor);
    graph_.Message(field, ProtobufWriter().Bytes(1, name).Message(2, kind));
  }
  const ProtobufWriter& proto() const { return graph_; }
  void Name(std::string_view name) { graph_.Bytes(2, name); }

 private:
  std::string Constant(const std::vector<std::int64_t>& shape, ElementType type, const void* data,
                       std::size_t bytes) {
    std::string name = fmt::format("constant_{}", count_++);
    // TensorProto with raw little-endian data.
    ProtobufWriter tensor;
    for (const std::int64_t dim : shape) tensor.Integer(1, dim);
    tensor.Integer(2, type).Bytes(8, name);
    tensor.Bytes(9, {static_cast<const char*>(data), bytes});
    graph_.Message(5, tensor);
    return name;
  }

  ProtobufWriter graph_;
  int count_ = 0;
};

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
    const ElementType type = dtype == DType::kU8 ? kUint8 : dtype == DType::kI32 ? kInt32 : kFloat;
    graph_.Name("policy");
    graph_.Declare(11, "observation", type, policy_.layers[0].in);
    x_ = "observation";
    if (type != kFloat) x_ = graph_.Add("Cast", {x_}, {IntAttribute("to", kFloat)});
  }

  void End() {
    if (!policy_.action.discrete()) {
      graph_.Add("Identity", {x_}, {}, "action");
      graph_.Declare(12, "action", kFloat, policy_.layers.back().out);
      return;
    }
    graph_.Add("Identity", {x_}, {}, "q");
    // The first of equal values, as Troop chooses.
    graph_.Add("ArgMax", {"q"}, {IntAttribute("axis", 1), IntAttribute("keepdims", 0)}, "action");
    graph_.Declare(12, "action", kInt64, {});
    graph_.Declare(12, "q", kFloat, policy_.layers.back().out);
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
      case PolicyLayerKind::kDueling:
        return Dueling(layer);
      case PolicyLayerKind::kCategoricalMean:
        return CategoricalMean(layer);
      case PolicyLayerKind::kQuantileMean:
        Reshape({-1, layer.out[0], layer.in[0] / layer.out[0]});
        x_ = graph_.Add("ReduceMean", {x_},
                        {IntsAttribute("axes", {2}), IntAttribute("keepdims", 0)});
        return;
      case PolicyLayerKind::kActionBounds:
        return ActionBounds();
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
    x_ = graph_.Add("Transpose", {x_}, {IntsAttribute("perm", order)});
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
        {IntAttribute("transB", 1)});
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
    x_ = graph_.Add("Cast", {x_}, {IntAttribute("to", kFloat)});
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

  void Conv2d(const PolicyLayer& layer) {
    if (!channels_first_) Transpose({0, 3, 1, 2});
    channels_first_ = true;
    const std::int64_t k = layer.kernel, channels = layer.in[2], filters = layer.out[2];
    // [filters, k, k, channels] → [filters, channels, k, k].
    const std::vector<float> from = Values(layer.tensors + ".weight", filters * k * k * channels);
    std::vector<float> weight;
    for (std::int64_t f = 0; f < filters; ++f) {
      for (std::int64_t c = 0; c < channels; ++c) {
        for (std::int64_t at = 0; at < k * k; ++at)
          weight.push_back(from[std::size_t((f * k * k + at) * channels + c)]);
      }
    }
    x_ = graph_.Add("Conv",
                    {x_, graph_.Floats({filters, channels, k, k}, weight),
                     Parameter(layer.tensors + ".bias", {filters})},
                    {IntsAttribute("kernel_shape", {k, k}),
                     IntsAttribute("strides", {layer.stride, layer.stride})});
    Activate(layer.activation);
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
    const std::string mean = graph_.Add("ReduceMean", {advantage}, {IntsAttribute("axes", {1})});
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
    x_ = graph_.Add("Softmax", {x_}, {IntAttribute("axis", -1)});
    x_ = graph_.Add("MatMul", {x_, graph_.Floats({atoms, 1}, atom)});
    Reshape({-1, actions});
  }

  // low + (high - low) · (1 + tanh x) / 2; rounding must not leave the bounds.
  void ActionBounds() {
    const std::vector<float>&low = policy_.action.low, &high = policy_.action.high;
    const std::vector<std::int64_t> shape{std::int64_t(low.size())};
    std::vector<float> half(low.size());
    for (std::size_t i = 0; i < half.size(); ++i) half[i] = (high[i] - low[i]) / 2;
    x_ = graph_.Add("Add", {graph_.Add("Tanh", {x_}), graph_.Scalar(1)});
    x_ = graph_.Add("Mul", {x_, graph_.Floats(shape, half)});
    x_ = graph_.Add("Add", {x_, graph_.Floats(shape, low)});
    x_ = graph_.Add("Min", {x_, graph_.Floats(shape, high)});
    x_ = graph_.Add("Max", {x_, graph_.Floats(shape, low)});
  }

  const PolicyDescription& policy_;
  const TensorFile& file_;
  OnnxGraph graph_;
  std::string x_;                // the output of the last layer
  bool channels_first_ = false;  // x_ is [batch, channels, h, w] instead of channels last
  Status error_;
};

}  // namespace

// Field numbers of ModelProto (onnx.proto).
Result<Buffer> EncodeOnnxPolicy(const PolicyDescription& policy, const TensorFile& file) {
  TROOP_ASSIGN_OR_RETURN(const OnnxGraph graph, PolicyTranslator(policy, file).Translate());
  ProtobufWriter model;
  model.Integer(1, kIrVersion).Bytes(2, "troop").Bytes(3, kTroopVersion);
  model.Message(7, graph.proto());
  model.Message(8, ProtobufWriter().Bytes(1, "").Integer(2, kOpset));
  std::map<std::string, std::string> metadata = file.metadata;
  metadata[kPolicyKey] = EncodePolicy(policy);
  for (const auto& [key, value] : metadata)
    model.Message(14, ProtobufWriter().Bytes(1, key).Bytes(2, value));
  return Buffer::Copy(std::as_bytes(std::span(model.str())));
}

}  // namespace troop
