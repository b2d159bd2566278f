#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "nn/policy_library/policy_file.h"
#include "nn/policy_library/policy_kernels.h"

namespace troop {

// Throws PolicyError: the description of the policy is invalid.
[[noreturn]] void InvalidPolicy(const std::string& what);
// Throws it unless the condition holds.
void RequirePolicy(bool condition, const char* what);

// Required members of a JSON object within limits; `low` <= value <= `high`. Throws PolicyError.
std::int64_t PolicyInteger(const nlohmann::json& object, const char* key, std::int64_t low,
                           std::int64_t high);
double PolicyNumber(const nlohmann::json& object, const char* key, double otherwise);
std::string PolicyString(const nlohmann::json& object, const char* key);
std::vector<std::int64_t> PolicyShape(const nlohmann::json& object, const char* key);
// Product of a shape. Throws PolicyError beyond 2^26.
std::int64_t PolicyElements(const std::vector<std::int64_t>& shape);

// Data that all layers of a policy share.
struct PolicyContext {
  const PolicyFile& file;
  const std::vector<float>&low, &high;  // bounds of a continuous action
};
// A layer of a description, as its operation is made from it.
struct PolicyLayerSource {
  const nlohmann::json& layer;
  const PolicyContext& context;
  std::vector<std::int64_t> in, out;  // shapes of one observation
};

// Reads a layer's members and tensors. Throws PolicyError: a missing or invalid one.
class PolicyLayerReader {
 public:
  explicit PolicyLayerReader(const PolicyLayerSource& source);

  // Elements of the shapes.
  std::int64_t in() const { return PolicyElements(source_.in); }
  std::int64_t out() const { return PolicyElements(source_.out); }
  const std::vector<std::int64_t>& in_shape() const { return source_.in; }
  const std::vector<std::int64_t>& out_shape() const { return source_.out; }
  // Members of the layer.
  std::int64_t Integer(const char* key, std::int64_t low = 1) const;
  std::int64_t IntegerOr(const char* key, std::int64_t otherwise) const {
    return source_.layer.contains(key) ? Integer(key) : otherwise;
  }
  float Number(const char* key, double otherwise) const {
    return float(PolicyNumber(source_.layer, key, otherwise));
  }
  PolicyActivation Activation() const;
  // The values of a tensor with this number of elements.
  const std::vector<float>& Tensor(const std::string& name, std::int64_t elements) const;
  // Weights [columns, depth] and their biases; `name` is empty or ends with a dot.
  PackedWeights Weights(const std::string& name, std::int64_t columns, std::int64_t depth) const {
    return {Tensor(name + "weight", columns * depth).data(), Tensor(name + "bias", columns).data(),
            columns, depth};
  }
  // The layer itself, and what it shares with others.
  const nlohmann::json& layer() const { return source_.layer; }
  const PolicyContext& context() const { return source_.context; }
  // Bounds of a continuous action.
  const std::vector<float>& low() const { return source_.context.low; }
  const std::vector<float>& high() const { return source_.context.high; }

 private:
  const PolicyLayerSource& source_;
  std::string prefix_;
};

}  // namespace troop
