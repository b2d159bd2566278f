#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

// Reading of policy files by libtroop_policy, which has no other dependencies.
namespace troop {

// A failure of loading: a result code of troop_policy.h, and the reason.
class PolicyError : public std::runtime_error {
 public:
  PolicyError(int code, const std::string& message) : std::runtime_error(message), code_(code) {}
  int code() const { return code_; }

 private:
  const int code_;
};

// One tensor of f32 values.
struct PolicyTensor {
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};

// A safetensors file with the description of a policy in its metadata
// (nn/export/policy_description.h). Only tensors of f32 are read.
struct PolicyFile {
  nlohmann::json description;
  std::map<std::string, PolicyTensor> tensors;
};
// Decodes untrusted bytes: all lengths and offsets are checked before use, and all values must be
// finite. Throws PolicyError.
PolicyFile ParsePolicyFile(const void* bytes, std::size_t size);
// Reads and decodes a file. Throws PolicyError.
PolicyFile ReadPolicyFile(const char* path);

}  // namespace troop
