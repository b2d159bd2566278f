// Implements the reader of safetensors files.
#include "nn/policy_library/policy_file.h"

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>

#include "nn/policy_library/troop_policy.h"

namespace troop {
namespace {

using Json = nlohmann::json;

constexpr char kPolicyKey[] = "troop_policy";
constexpr std::uint64_t kHeaderBytesMax = 64 << 20, kFileBytesMax = std::uint64_t{4} << 30;

[[noreturn]] void Damaged(const std::string& what) {
  throw PolicyError(TROOP_POLICY_DATA_LOSS, what);
}

// A member of an object; null if it has none.
const Json& At(const Json& object, const char* key) {
  static const Json null;
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found == object.end() ? null : *found;
}

// Values of one tensor: `data` are the bytes that follow the header.
PolicyTensor ReadTensor(const std::string& name, const Json& entry, const char* data,
                        std::size_t size) {
  const Json &shape = At(entry, "shape"), &offsets = At(entry, "data_offsets");
  if (!shape.is_array() || shape.size() > TROOP_POLICY_RANK_MAX || !offsets.is_array() ||
      offsets.size() != 2 || !offsets[0].is_number_unsigned() || !offsets[1].is_number_unsigned())
    Damaged("tensor " + name + " has no valid shape and data_offsets");
  PolicyTensor tensor;
  std::uint64_t elements = 1;
  for (const Json& dim : shape) {
    if (!dim.is_number_unsigned() || dim.get<std::uint64_t>() > size)
      Damaged("tensor " + name + " has an invalid shape");
    tensor.shape.push_back(std::int64_t(dim.get<std::uint64_t>()));
    // Bounded by the file's size, so that the product cannot overflow.
    elements *= dim.get<std::uint64_t>();
    if (elements > size) Damaged("tensor " + name + " is larger than the file");
  }
  const std::uint64_t from = offsets[0], to = offsets[1];
  if (from > to || to > size || to - from != elements * sizeof(float))
    Damaged("tensor " + name + " lies outside of the file");
  tensor.values.resize(std::size_t(elements));
  std::memcpy(tensor.values.data(), data + from, std::size_t(to - from));
  for (const float value : tensor.values) {
    if (!std::isfinite(value)) Damaged("tensor " + name + " has a value that is not finite");
  }
  return tensor;
}

}  // namespace

// u64 header length, JSON header, raw little-endian data.
PolicyFile ParsePolicyFile(const void* bytes, std::size_t size) {
  const char* const begin = static_cast<const char*>(bytes);
  std::uint64_t header = 0;
  if (size < sizeof header) Damaged("not a safetensors file: too short");
  std::memcpy(&header, begin, sizeof header);
  if (header > kHeaderBytesMax || header > size - sizeof header)
    Damaged("not a safetensors file: its header is longer than the file");
  const char* const text = begin + sizeof header;
  const char* const data = text + header;
  const std::size_t data_bytes = size - sizeof header - std::size_t(header);
  const Json json = Json::parse(text, data, nullptr, false);
  if (!json.is_object()) Damaged("not a safetensors file: its header is not JSON");
  const Json& described = At(At(json, "__metadata__"), kPolicyKey);
  if (!described.is_string())
    Damaged("the file describes no policy; make one with `troop export RUN --format safetensors`");
  PolicyFile file{.description = Json::parse(described.get<std::string>(), nullptr, false)};
  if (!file.description.is_object()) Damaged("the description of the policy is not JSON");
  for (const auto& [name, entry] : json.items()) {
    if (At(entry, "dtype") == "F32") file.tensors[name] = ReadTensor(name, entry, data, data_bytes);
  }
  return file;
}

// The size is taken from the open file, so that a replaced file cannot change it in between.
PolicyFile ReadPolicyFile(const char* path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = in ? std::streamoff(in.tellg()) : -1;
  if (size < 0) throw PolicyError(TROOP_POLICY_NOT_FOUND, std::string(path) + ": cannot be opened");
  if (std::uint64_t(size) > kFileBytesMax) Damaged(std::string(path) + " exceeds 4 GiB");
  std::vector<char> bytes(static_cast<std::size_t>(size));
  in.seekg(0);
  if (!in.read(bytes.data(), size)) Damaged(std::string(path) + ": cannot be read");
  // Errors of the content are given the path, which the parser does not have.
  try {
    return ParsePolicyFile(bytes.data(), bytes.size());
  } catch (const PolicyError& error) {
    throw PolicyError(error.code(), std::string(path) + ": " + error.what());
  }
}

}  // namespace troop
