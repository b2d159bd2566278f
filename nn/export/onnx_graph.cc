// Implements the encoding of ONNX graphs; field numbers are those of onnx.proto.
#include "nn/export/onnx_graph.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "core/base/version.h"

namespace troop {
namespace {

constexpr std::int64_t kIrVersion = 8, kOpset = 17;
// AttributeProto.AttributeType.
enum AttributeType : std::int64_t {
  kFloatType = 1,
  kIntType = 2,
  kStringType = 3,
  kIntsType = 7,
};

}  // namespace

// AttributeProto: name, value in the field of its type, type.
ProtobufWriter OnnxInt(std::string_view name, std::int64_t value) {
  return ProtobufWriter().Bytes(1, name).Integer(3, value).Integer(20, kIntType);
}
ProtobufWriter OnnxInts(std::string_view name, const std::vector<std::int64_t>& values) {
  ProtobufWriter out;
  out.Bytes(1, name);
  for (const std::int64_t value : values) out.Integer(8, value);
  return out.Integer(20, kIntsType);
}
ProtobufWriter OnnxFloat(std::string_view name, float value) {
  return ProtobufWriter().Bytes(1, name).Float(2, value).Integer(20, kFloatType);
}
ProtobufWriter OnnxText(std::string_view name, std::string_view value) {
  return ProtobufWriter().Bytes(1, name).Bytes(4, value).Integer(20, kStringType);
}
ProtobufWriter OnnxCastTo(OnnxType type) { return OnnxInt("to", std::int64_t(type)); }

// NodeProto: inputs, output, name, operator, attributes.
std::string OnnxGraph::Add(std::string_view op, const std::vector<std::string>& inputs,
                           const std::vector<ProtobufWriter>& attributes, std::string out) {
  if (out.empty()) out = fmt::format("{}_{}", op, count_);
  ProtobufWriter node;
  for (const std::string& input : inputs) node.Bytes(1, input);
  node.Bytes(2, out).Bytes(3, fmt::format("node_{}", count_++)).Bytes(4, op);
  for (const ProtobufWriter& attribute : attributes) node.Message(5, attribute);
  graph_.Message(1, node);
  return out;
}

std::string OnnxGraph::Floats(const std::vector<std::int64_t>& shape,
                              std::span<const float> values) {
  return Constant(shape, OnnxType::kFloat, values.data(), values.size_bytes());
}
std::string OnnxGraph::Integers(const std::vector<std::int64_t>& values) {
  return Constant({std::int64_t(values.size())}, OnnxType::kInt64, values.data(),
                  values.size() * sizeof(std::int64_t));
}
std::string OnnxGraph::Index(std::int64_t value) {
  return Constant({}, OnnxType::kInt64, &value, sizeof value);
}

std::string OnnxGraph::Constant(const std::vector<std::int64_t>& shape, OnnxType type,
                                const void* data, std::size_t bytes) {
  std::string name = fmt::format("constant_{}", count_++);
  Initialize(name, shape, type, {static_cast<const char*>(data), bytes});
  return name;
}

// TensorProto with raw little-endian data.
void OnnxGraph::Initialize(std::string_view name, const std::vector<std::int64_t>& shape,
                           OnnxType type, std::string_view bytes) {
  ProtobufWriter tensor;
  for (const std::int64_t dim : shape) tensor.Integer(1, dim);
  tensor.Integer(2, std::int64_t(type)).Bytes(8, name).Bytes(9, bytes);
  graph_.Message(5, tensor);
}

// The rank is that of the declared value; its free dimensions allow 1.
void OnnxGraph::OptionalInput(const Value& value) {
  Declare(11, value);
  const std::int64_t zero = 0;
  const std::vector<std::int64_t> ones(value.free.size(), 1);
  Initialize(value.name, ones, value.type, {reinterpret_cast<const char*>(&zero), sizeof zero});
}

// ValueInfoProto of a tensor type.
void OnnxGraph::Declare(int field, const Value& value) {
  ProtobufWriter dims;
  for (const std::string_view name : value.free) dims.Message(1, ProtobufWriter().Bytes(2, name));
  for (int i = 0; i < value.shape.rank(); ++i)
    dims.Message(1, ProtobufWriter().Integer(1, value.shape[i]));
  const ProtobufWriter tensor =
      ProtobufWriter().Integer(1, std::int64_t(value.type)).Message(2, dims);
  const ProtobufWriter kind = ProtobufWriter().Message(1, tensor);
  graph_.Message(field, ProtobufWriter().Bytes(1, value.name).Message(2, kind));
}

// ModelProto: version of the format, producer, graph, opset, metadata.
Result<Buffer> OnnxGraph::Encode(const std::map<std::string, std::string>& metadata) const {
  ProtobufWriter model;
  model.Integer(1, kIrVersion).Bytes(2, "troop").Bytes(3, kTroopVersion);
  model.Message(7, graph_);
  model.Message(8, ProtobufWriter().Bytes(1, "").Integer(2, kOpset));
  for (const auto& [key, value] : metadata)
    model.Message(14, ProtobufWriter().Bytes(1, key).Bytes(2, value));
  // Runtimes fail to read more, with messages that do not name the size.
  constexpr auto kBytesMax = std::size_t(std::numeric_limits<std::int32_t>::max());
  if (model.str().size() > kBytesMax) {
    return InvalidArgument("the model has {} bytes, must be at most {} for an ONNX file",
                           model.str().size(), kBytesMax);
  }
  return Buffer::Copy(std::as_bytes(std::span(model.str())));
}

}  // namespace troop
