#pragma once

#include <cstdint>
#include <vector>

// Arithmetic of libtroop_policy: one matrix product serves linear layers and convolutions.
namespace troop {

// Instructions that the kernels use.
enum class PolicyIsa : std::uint8_t { kPlain, kAvx2, kAvx512 };
// The best that this processor has.
PolicyIsa BestPolicyIsa();

enum class PolicyActivation : std::uint8_t { kNone, kRelu, kTanh };

// A weight matrix [columns, depth] in panels of 16 columns: [panel][depth][16], zero-padded.
struct PackedWeights {
  static constexpr std::int64_t kPanel = 16;
  PackedWeights() = default;
  PackedWeights(const float* weight, const float* bias, std::int64_t columns, std::int64_t depth);

  std::int64_t columns = 0, depth = 0;
  std::vector<float> panels;
  std::vector<float> bias;  // [columns], zero-padded to whole panels
};

// out[r, c] = activation(bias[c] + Σ_s Σ_l in[r · row_step + s · segment_step + l] ·
// weight[c, s · length + l]). A linear layer has one segment; a pixel of a convolution's output is
// a row with one segment for each row of the kernel. REQUIRES: segments · length = weights.depth.
struct PolicyProduct {
  const PackedWeights* weights = nullptr;
  PolicyActivation activation = PolicyActivation::kNone;
  std::int64_t rows = 0, row_step = 0;
  const std::int64_t* row_offsets = nullptr;  // [rows]: in place of r · row_step
  std::int64_t segments = 1, segment_step = 0, length = 0;
  const float* in = nullptr;
  float* out = nullptr;  // [rows, columns]
};
void Multiply(PolicyIsa isa, const PolicyProduct& product);

// out[i] = factor · in[i].
void ScaleToFloat(PolicyIsa isa, const float* in, std::int64_t n, float factor, float* out);
void ScaleToFloat(PolicyIsa isa, const std::uint8_t* in, std::int64_t n, float factor, float* out);

// tanh with a relative error below 4e-7, without calls.
float PolicyTanh(float x);
// The activation of one value; NaN stays NaN.
float PolicyActivated(PolicyActivation activation, float x);

}  // namespace troop
