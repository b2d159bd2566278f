#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "nn/policy_library/policy_chain.h"
#include "nn/policy_library/policy_file.h"
#include "nn/policy_library/policy_kernels.h"

namespace troop {

// The computation of a policy, checked and prepared from its file. Immutable; any number of threads
// may run it, each with its own buffers.
class PolicyProgram {
 public:
  enum class DType : std::uint8_t { kU8 = 1, kI32 = 2, kF32 = 3 };  // as in troop_policy.h

  // Throws PolicyError: the description is invalid, or lacks a tensor.
  explicit PolicyProgram(const PolicyFile& file);

  // The observation: one frame, [shape].
  const std::string& observation_name() const { return observation_name_; }
  DType dtype() const { return dtype_; }
  const std::vector<std::int64_t>& shape() const { return shape_; }
  std::int64_t frame_elements() const { return frame_elements_; }
  std::int64_t frame_bytes() const { return frame_elements_ * (dtype_ == DType::kU8 ? 1 : 4); }
  std::int64_t stack() const { return stack_; }
  // The action: `count` of discrete actions, or of elements.
  const std::string& action_name() const { return action_name_; }
  bool discrete() const { return discrete_; }
  std::int64_t count() const { return count_; }
  const std::vector<float>& low() const { return low_; }
  const std::vector<float>& high() const { return high_; }
  // True if the mask in a frame and that of a caller, [count], forbid every action together. False
  // without a mask in frames, and for one that allows nothing, which hides nothing.
  bool Forbids(const void* frame, const unsigned char* mask) const;

  // Rows that one Run computes at most: more for a small network, whose buffers stay in the cache.
  std::int64_t rows_max() const { return width() <= 256 ? 64 : 16; }
  // Elements of each of the two buffers of Run.
  std::int64_t buffer_elements() const { return rows_max() * width(); }
  // Elements of the recurrent state of a stream; 0: the policy has none.
  std::int64_t state() const { return chain_.state(); }
  // The two buffers of Run, [buffer_elements()] each.
  struct Buffers {
    std::span<float> first, second;
  };
  // Computes rows [1, rows_max()] of outputs from observations [rows, stack, ...shape] in the
  // dtype. Returns the outputs [rows, count], which are in one of the buffers. states: [rows,
  // state()], replaced by those after the step; zeros at the start of an episode.
  const float* Run(std::int64_t rows, const void* observations, const Buffers& buffers,
                   float* states) const;

 private:
  void ReadObservation(const nlohmann::json& observation);
  void ReadAction(const nlohmann::json& action);
  void AddLayer(const nlohmann::json& layer, const PolicyFile& file);
  // The largest activation, with scratch, and the observation.
  std::int64_t width() const { return std::max(chain_.width(), stack_ * frame_elements_); }
  // True if element i of a frame, in the dtype, is not 0.
  bool IsSet(const unsigned char* frame, std::int64_t i) const;
  bool AllowsAny(const unsigned char* frame) const;
  void HideForbidden(std::int64_t rows, const void* observations, float* q) const;

  PolicyIsa isa_ = BestPolicyIsa();
  std::string observation_name_, action_name_;
  DType dtype_ = DType::kF32;
  std::vector<std::int64_t> shape_;
  std::int64_t frame_elements_ = 0, stack_ = 1;
  bool discrete_ = true;
  std::int64_t count_ = 0;
  std::vector<float> low_, high_;
  PolicyChain chain_{{}};
  std::int64_t mask_ = -1;  // where the action mask begins in a frame; -1: there is none
};

}  // namespace troop
