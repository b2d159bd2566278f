#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace troop {

// Writes one message in the wire format of protocol buffers. Fields are in the order of the calls;
// nested messages are written first and added as bytes. The files that Troop writes in this format
// (TensorBoard's events, ONNX models) have few fields, so no compiler of message types is needed.
class ProtobufWriter {
 public:
  ProtobufWriter& Integer(int field, std::int64_t value) {
    Key(field, kVarint);
    Varint(std::uint64_t(value));
    return *this;
  }
  ProtobufWriter& Float(int field, float value) {
    Key(field, kFixed32);
    Fixed(std::bit_cast<std::uint32_t>(value));
    return *this;
  }
  // A string, bytes, or a nested message.
  ProtobufWriter& Bytes(int field, std::string_view bytes) {
    Key(field, kLength);
    Varint(bytes.size());
    text_ += bytes;
    return *this;
  }
  ProtobufWriter& Message(int field, const ProtobufWriter& message) {
    return Bytes(field, message.text_);
  }
  const std::string& str() const { return text_; }

 private:
  enum WireType : std::uint8_t { kVarint = 0, kLength = 2, kFixed32 = 5 };

  void Key(int field, WireType type) { Varint(std::uint64_t(field) << 3 | type); }
  // Seven bits per byte, least significant first; the top bit marks that more follow.
  void Varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) text_ += char(value | 0x80);
    text_ += char(value);
  }
  void Fixed(std::uint32_t value) {
    char bytes[sizeof value];
    std::memcpy(bytes, &value, sizeof value);
    text_.append(bytes, sizeof bytes);
  }

  std::string text_;
};

}  // namespace troop
