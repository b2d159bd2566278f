// Implements the checked reading of descriptions.
#include "nn/policy_library/policy_layer_reader.h"

#include <cmath>

#include "nn/policy_library/troop_policy.h"

namespace troop {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kElementsMax = std::int64_t{1} << 26;

}  // namespace

void InvalidPolicy(const std::string& what) {
  throw PolicyError(TROOP_POLICY_DATA_LOSS, "the description of the policy is invalid: " + what);
}
void RequirePolicy(bool condition, const char* what) {
  if (!condition) InvalidPolicy(what);
}

// Later versions may add members, so unknown ones are ignored.
std::int64_t PolicyInteger(const Json& object, const char* key, std::int64_t low,
                           std::int64_t high) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_integer())
    InvalidPolicy(std::string(key) + " is missing or no integer");
  const auto value = found->get<std::int64_t>();
  if (value < low || value > high)
    InvalidPolicy(std::string(key) + " is " + std::to_string(value) + ", must be from " +
                  std::to_string(low) + " to " + std::to_string(high));
  return value;
}

// A double that overflows f32 is as invalid as infinity itself.
double PolicyNumber(const Json& object, const char* key, double otherwise) {
  const auto found = object.find(key);
  if (found == object.end()) return otherwise;
  if (!found->is_number()) InvalidPolicy(std::string(key) + " is not a number");
  const auto value = found->get<double>();
  if (!std::isfinite(float(value))) InvalidPolicy(std::string(key) + " is not finite");
  return value;
}

// Names and kinds; their content is checked where it is used.
std::string PolicyString(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string())
    InvalidPolicy(std::string(key) + " is missing or no string");
  return found->get<std::string>();
}

// Every dimension is bounded before the product is computed, which therefore cannot overflow.
std::vector<std::int64_t> PolicyShape(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_array() || found->size() > TROOP_POLICY_RANK_MAX)
    InvalidPolicy(std::string(key) + " is missing or no shape");
  std::vector<std::int64_t> shape;
  for (const Json& dim : *found) {
    if (!dim.is_number_integer() || dim.get<std::int64_t>() < 1 ||
        dim.get<std::int64_t>() > kElementsMax)
      InvalidPolicy(std::string(key) + " has an invalid dimension");
    shape.push_back(dim.get<std::int64_t>());
  }
  PolicyElements(shape);
  return shape;
}

// The bound keeps a small file from asking for gigabytes of buffers.
std::int64_t PolicyElements(const std::vector<std::int64_t>& shape) {
  std::int64_t elements = 1;
  for (const std::int64_t dim : shape) {
    elements *= dim;
    if (elements > kElementsMax) InvalidPolicy("a shape of more than 2^26 elements");
  }
  return elements;
}

// A layer without parameters has no prefix.
PolicyLayerReader::PolicyLayerReader(const PolicyLayerSource& source) : source_(source) {
  const auto prefix = source.layer.find("tensors");
  if (prefix != source.layer.end()) prefix_ = PolicyString(source.layer, "tensors") + ".";
}

// The upper limit is that of shapes, so that products of two members do not overflow.
std::int64_t PolicyLayerReader::Integer(const char* key, std::int64_t low) const {
  return PolicyInteger(source_.layer, key, low, kElementsMax);
}

// An unknown activation needs a later library; the file itself is valid.
PolicyActivation PolicyLayerReader::Activation() const {
  if (!source_.layer.contains("activation")) return PolicyActivation::kNone;
  const std::string name = PolicyString(source_.layer, "activation");
  if (name == "relu") return PolicyActivation::kRelu;
  if (name == "tanh") return PolicyActivation::kTanh;
  throw PolicyError(TROOP_POLICY_UNSUPPORTED,
                    "activation " + name + " needs a later version of libtroop_policy");
}

// Names are those of the parameters of the modules.
const std::vector<float>& PolicyLayerReader::Tensor(const std::string& name,
                                                    std::int64_t elements) const {
  const auto found = source_.context.file.tensors.find(prefix_ + name);
  if (found == source_.context.file.tensors.end()) InvalidPolicy("no tensor " + prefix_ + name);
  if (std::int64_t(found->second.values.size()) != elements)
    InvalidPolicy("tensor " + prefix_ + name + " has " +
                  std::to_string(found->second.values.size()) + " values, but the layer needs " +
                  std::to_string(elements));
  return found->second.values;
}

}  // namespace troop
