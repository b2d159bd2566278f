#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "nn/policy_library/policy_operations.h"

namespace troop {

// Layers that are computed one after the other, and the shape after the last one.
class PolicyChain {
 public:
  explicit PolicyChain(std::vector<std::int64_t> shape) : shape_(std::move(shape)) {}

  // Appends a layer of a description. Throws PolicyError: those of MakePolicyOperation; its input
  // is not the output of the layer before.
  void Add(const nlohmann::json& layer, const PolicyContext& context);
  const std::vector<std::int64_t>& shape() const { return shape_; }
  // Elements per row of each buffer of Run.
  std::int64_t width() const { return width_; }
  // Elements of the recurrent state of a row, of all layers in their order.
  std::int64_t state() const { return state_; }
  // Two buffers, which the outputs of the layers alternate between.
  struct Buffers {
    float *first, *second;
  };
  // Computes rows from `in`, which may be the second buffer. Returns the outputs, which are in one
  // of the buffers. states: become those after the call. REQUIRES: at least one layer.
  float* Run(PolicyIsa isa, std::int64_t rows, const float* in, Buffers buffers,
             PolicyStates states) const;

 private:
  std::vector<std::unique_ptr<PolicyOperation>> operations_;
  std::vector<std::int64_t> shape_;
  std::int64_t width_ = 0, state_ = 0;
};

}  // namespace troop
