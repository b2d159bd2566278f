#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "nn/policy_library/policy_file.h"
#include "nn/policy_library/policy_program.h"

namespace troop {

// A layer of a description, as its operation is made from it.
struct PolicyLayerSource {
  const nlohmann::json& layer;
  const PolicyFile& file;
  std::vector<std::int64_t> in, out;    // shapes of one observation
  const std::vector<float>&low, &high;  // bounds of a continuous action
};
// Errors are thrown as PolicyError: an unknown kind, a missing member or tensor, shapes that do not
// fit the kind.
std::unique_ptr<PolicyOperation> MakePolicyOperation(const PolicyLayerSource& source);

// Required members of a JSON object within limits; `low` <= value <= `high`. Throws PolicyError.
std::int64_t PolicyInteger(const nlohmann::json& object, const char* key, std::int64_t low,
                           std::int64_t high);
double PolicyNumber(const nlohmann::json& object, const char* key, double otherwise);
std::string PolicyString(const nlohmann::json& object, const char* key);
std::vector<std::int64_t> PolicyShape(const nlohmann::json& object, const char* key);
// Product of a shape. Throws PolicyError beyond 2^26.
std::int64_t PolicyElements(const std::vector<std::int64_t>& shape);

}  // namespace troop
