#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/buffer.h"
#include "core/base/status.h"
#include "core/storage/protobuf_writer.h"
#include "core/tensor/tensor.h"

namespace troop {

// Element type of a value: TensorProto.DataType.
enum class OnnxType : std::uint8_t { kFloat = 1, kUint8 = 2, kInt32 = 6, kInt64 = 7, kBool = 9 };

// An attribute of a node.
ProtobufWriter OnnxInt(std::string_view name, std::int64_t value);
ProtobufWriter OnnxInts(std::string_view name, const std::vector<std::int64_t>& values);
ProtobufWriter OnnxFloat(std::string_view name, float value);
ProtobufWriter OnnxText(std::string_view name, std::string_view value);
// The attribute `to` of Cast.
ProtobufWriter OnnxCastTo(OnnxType type);

// A graph of opset 17 under construction: nodes in the order of their calls, and constants. Values
// are identified by names.
class OnnxGraph {
 public:
  explicit OnnxGraph(std::string_view name) { graph_.Bytes(2, name); }

  // Adds a node with one output, whose name it returns: `out`, or one that is made.
  std::string Add(std::string_view op, const std::vector<std::string>& inputs,
                  const std::vector<ProtobufWriter>& attributes = {}, std::string out = "");
  // Add constants, and return their names.
  std::string Floats(const std::vector<std::int64_t>& shape, std::span<const float> values);
  std::string Integers(const std::vector<std::int64_t>& values);
  std::string Scalar(float value) { return Floats({}, {&value, 1}); }
  std::string Index(std::int64_t value);  // an i64 without dimensions

  // A value of the interface: its dimensions are the names in `free`, then the shape.
  struct Value {
    std::string_view name;
    OnnxType type = OnnxType::kFloat;
    std::vector<std::string_view> free;
    Shape shape;
  };
  void Input(const Value& value) { Declare(11, value); }
  void Output(const Value& value) { Declare(12, value); }
  // An i64 input that a caller may leave out: it is then 0 in shape [1, .., 1], so its uses must
  // broadcast. In ONNX this is an input that is also an initializer.
  void OptionalInput(const Value& value);

  // The file. Errors: kInvalidArgument: more than 2 GiB, the limit of protocol buffers.
  Result<Buffer> Encode(const std::map<std::string, std::string>& metadata) const;

 private:
  void Declare(int field, const Value& value);
  std::string Constant(const std::vector<std::int64_t>& shape, OnnxType type, const void* data,
                       std::size_t bytes);
  // Adds a constant of that name.
  void Initialize(std::string_view name, const std::vector<std::int64_t>& shape, OnnxType type,
                  std::string_view bytes);

  ProtobufWriter graph_;
  int count_ = 0;  // of names that were made
};

}  // namespace troop
