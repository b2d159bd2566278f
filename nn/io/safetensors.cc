// Implements the safetensors format. Decoding treats its input as untrusted.
#include "nn/io/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "core/storage/json.h"

namespace troop {
namespace {

// Limit of the header, equal to that of the Python package.
constexpr std::uint64_t kHeaderMax = 100'000'000;
constexpr std::size_t kLengthBytes = 8;

// The header as parsed, not yet checked against the data.
struct SafetensorsEntry {
  std::string name;
  std::string dtype;
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0, end = 0;  // data_offsets
};
struct SafetensorsHeader {
  std::vector<SafetensorsEntry> tensors;
  std::map<std::string, std::string> metadata;
};

constexpr std::array<std::pair<DType, std::string_view>, 8> kNames{{{DType::kF32, "F32"},
                                                                    {DType::kF64, "F64"},
                                                                    {DType::kBF16, "BF16"},
                                                                    {DType::kU8, "U8"},
                                                                    {DType::kI32, "I32"},
                                                                    {DType::kI64, "I64"},
                                                                    {DType::kU64, "U64"},
                                                                    {DType::kU32, "U32"}}};

// Half precision (IEEE 754 binary16) has no DType: it is converted.
constexpr std::string_view kHalf = "F16";

// The format's name of a type.
std::string_view NameOf(DType dtype) {
  for (const auto& [type, name] : kNames) {
    if (type == dtype) return name;
  }
  TROOP_CHECK(false, "dtype {}", int(dtype));
}

// Orders tensors by element size, widest first, so that each is aligned without gaps, which the
// format forbids; then by name.
std::vector<std::pair<std::string, ConstTensor>> Ordered(const TensorFile& file) {
  std::vector<std::pair<std::string, ConstTensor>> tensors(file.tensors.begin(),
                                                           file.tensors.end());
  std::ranges::stable_sort(tensors, std::ranges::greater{},
                           [](const auto& t) { return DTypeSize(t.second.dtype()); });
  return tensors;
}

// Writes the JSON header, padded with spaces so that the data is aligned.
std::string MakeHeader(const TensorFile& file,
                       const std::vector<std::pair<std::string, ConstTensor>>& tensors) {
  constexpr JsonStyle kCompact = JsonStyle::kCompact;
  JsonObject header(kCompact);
  if (!file.metadata.empty()) {
    JsonObject metadata(kCompact);
    for (const auto& [key, text] : file.metadata) metadata.Add(key, text);
    header.Add("__metadata__", metadata);
  }
  std::size_t at = 0;
  for (const auto& [name, tensor] : tensors) {
    JsonArray shape(kCompact), offsets(kCompact);
    for (int i = 0; i < tensor.shape().rank(); ++i) shape.Add(tensor.dim(i));
    offsets.Add(at).Add(at + tensor.bytes().size());
    header.Add(name, JsonObject(kCompact)
                         .Add("dtype", NameOf(tensor.dtype()))
                         .Add("shape", shape)
                         .Add("data_offsets", offsets));
    at += tensor.bytes().size();
  }
  std::string out = header.str();
  // The format allows trailing spaces.
  while ((kLengthBytes + out.size()) % kAlignment != 0) out += ' ';
  return out;
}

// Reads an array of non-negative integers.
Result<std::vector<std::uint64_t>> ReadNumbers(const JsonValue& entry, std::string_view key) {
  const JsonValue* array = entry.Find(key);
  if (array == nullptr || array->kind != JsonValue::Kind::kArray)
    return DataLoss("\"{}\" is not an array, or missing", key);
  std::vector<std::uint64_t> numbers;
  for (const JsonValue& number : array->array) {
    if (!number.integer || *number.integer < 0)
      return DataLoss("\"{}\" holds an element that is not a non-negative integer", key);
    numbers.push_back(std::uint64_t(*number.integer));
  }
  return numbers;
}

// Parses the header without interpreting types and offsets.
Result<SafetensorsHeader> ReadHeader(std::string_view text) {
  TROOP_ASSIGN_OR_RETURN(const JsonValue json, ParseJson(text));
  if (json.kind != JsonValue::Kind::kObject) return DataLoss("the header is not a JSON object");
  SafetensorsHeader header;
  for (const auto& [name, value] : json.object) {
    // The only key that is not a tensor.
    if (name == "__metadata__") {
      for (const auto& [key, entry] : value.object) {
        TROOP_ASSIGN_OR_RETURN(header.metadata[key], value.String(key));
      }
      continue;
    }
    SafetensorsEntry entry{.name = name};
    TROOP_ASSIGN_OR_RETURN(entry.dtype, value.String("dtype"));
    TROOP_ASSIGN_OR_RETURN(entry.shape, ReadNumbers(value, "shape"));
    TROOP_ASSIGN_OR_RETURN(const auto offsets, ReadNumbers(value, "data_offsets"));
    if (offsets.size() != 2) return DataLoss("tensor \"{}\" needs two data_offsets", name);
    entry.begin = offsets[0];
    entry.end = offsets[1];
    header.tensors.push_back(std::move(entry));
  }
  return header;
}

// Checks type, rank, size and the length of the data, with overflow checks.
Result<TensorSpec> ReadSpec(const SafetensorsEntry& entry) {
  const auto known = std::ranges::find(kNames, entry.dtype == kHalf ? "F32" : entry.dtype,
                                       [](const auto& n) { return n.second; });
  if (known == kNames.end())
    return DataLoss("tensor \"{}\" has dtype \"{}\", which is not supported", entry.name,
                    entry.dtype);
  if (entry.shape.size() > Shape::kMaxRank)
    return DataLoss("tensor \"{}\" has {} dimensions, more than {}", entry.name, entry.shape.size(),
                    Shape::kMaxRank);
  // The product of the dimensions may overflow: the header is untrusted.
  std::uint64_t bytes = entry.dtype == kHalf ? sizeof(std::uint16_t) : DTypeSize(known->first);
  std::vector<std::int64_t> dims;
  for (const std::uint64_t dim : entry.shape) {
    if (__builtin_mul_overflow(bytes, dim, &bytes) || dim > INT64_MAX)
      return DataLoss("tensor \"{}\" has a shape that overflows", entry.name);
    dims.push_back(std::int64_t(dim));
  }
  if (bytes != entry.end - entry.begin)
    return DataLoss("tensor \"{}\" needs {} bytes but has {}", entry.name, bytes,
                    entry.end - entry.begin);
  return TensorSpec{known->first, Shape(dims)};
}

// Shares the bytes if they are aligned for their type.
ConstTensor Share(const Buffer& bytes, const TensorSpec& spec) {
  const auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
  if (address % DTypeSize(spec.dtype) == 0) return ConstTensor(bytes, spec);
  return ConstTensor(Buffer::Copy(bytes.bytes()), spec);
}

// Exact: f32 has more exponents and a longer fraction.
float HalfToF32(std::uint16_t half) {
  const std::uint32_t sign = std::uint32_t(half & 0x8000u) << 16, fraction = half & 0x3ffu;
  const std::uint32_t exponent = (half >> 10) & 0x1fu;
  std::uint32_t bits = 0;
  if (exponent == 0) {  // subnormal: fraction · 2^-24
    const float value = float(fraction) * 0x1p-24f;
    std::memcpy(&bits, &value, sizeof bits);
  } else {
    const std::uint32_t bias = exponent == 0x1fu ? 0xffu - 0x1fu : 127 - 15;  // infinity, NaN stay
    bits = ((exponent + bias) << 23) | (fraction << 13);
  }
  bits |= sign;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// The data may be at any address, so each number is copied.
ConstTensor Widen(const Buffer& bytes, const TensorSpec& spec) {
  Tensor tensor(spec.dtype, spec.shape);
  for (std::size_t i = 0; i < std::size_t(tensor.elements()); ++i) {
    std::uint16_t half;
    std::memcpy(&half, bytes.data() + i * sizeof half, sizeof half);
    tensor.data<float>()[i] = HalfToF32(half);
  }
  return tensor;
}

// Checks that the tensors cover the data exactly: no overlap, no gap.
Status CheckCover(std::vector<SafetensorsEntry> entries, std::uint64_t data_bytes) {
  // In the order of the data.
  std::ranges::sort(entries, {}, [](const auto& e) { return std::pair(e.begin, e.end); });
  std::uint64_t at = 0;
  for (const auto& entry : entries) {
    if (entry.begin != at || entry.end < entry.begin)
      return DataLoss("tensor \"{}\" has data_offsets [{}, {}], expected to begin at {}",
                      entry.name, entry.begin, entry.end, at);
    at = entry.end;
  }
  if (at != data_bytes)
    return DataLoss("the header describes {} bytes of data, the file has {}", at, data_bytes);
  return Status::Ok();
}

}  // namespace

// Header length, header, then the tensors in the order of their offsets.
Buffer EncodeSafetensors(const TensorFile& file) {
  const auto tensors = Ordered(file);
  const std::string header = MakeHeader(file, tensors);
  std::size_t size = kLengthBytes + header.size();
  for (const auto& [name, tensor] : tensors) size += tensor.bytes().size();
  MutableBuffer out(size);
  const std::uint64_t length = header.size();
  std::byte* at = out.data();
  std::memcpy(at, &length, kLengthBytes);
  std::memcpy(at += kLengthBytes, header.data(), header.size());
  at += header.size();
  for (const auto& [name, tensor] : tensors) {
    const auto bytes = tensor.bytes();
    if (!bytes.empty()) std::memcpy(at, bytes.data(), bytes.size());
    at += bytes.size();
  }
  return std::move(out).Freeze();
}

// Order of checks: length, header, coverage of the data, each tensor.
Result<TensorFile> DecodeSafetensors(const Buffer& bytes) {
  if (bytes.size() < kLengthBytes)
    return DataLoss("{} bytes are too short for a safetensors file", bytes.size());
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), kLengthBytes);
  if (length > kHeaderMax || length > bytes.size() - kLengthBytes)
    return DataLoss("a header of {} bytes exceeds its file of {} bytes", length, bytes.size());
  TROOP_ASSIGN_OR_RETURN(SafetensorsHeader header,
                         ReadHeader(bytes.Slice(kLengthBytes, length).text()));
  const Buffer data = bytes.Slice(kLengthBytes + length, bytes.size() - kLengthBytes - length);
  TROOP_RETURN_IF_ERROR(CheckCover(header.tensors, data.size()));
  TensorFile file;
  file.metadata = std::move(header.metadata);
  for (const auto& entry : header.tensors) {
    TROOP_ASSIGN_OR_RETURN(const TensorSpec spec, ReadSpec(entry));
    const Buffer slice = data.Slice(entry.begin, entry.end - entry.begin);
    file.tensors.emplace(entry.name,
                         entry.dtype == kHalf ? Widen(slice, spec) : Share(slice, spec));
  }
  return file;
}

}  // namespace troop
