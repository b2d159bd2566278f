#pragma once

#include <cstdint>
#include <vector>

#include "core/tensor.h"
#include "core/trajectory.h"

namespace troop {

// B drawn items, decoded. N = n_step_max of the table: the shapes of a run never change.
struct SampleBatch {
  std::vector<ItemKey> key;          // [B]
  std::vector<double> probability;   // [B] P(i) = p_i^α / Σ p^α over the whole replay
  std::vector<float> weight;         // [B] importance weight (N·P(i))^-β / max over the batch
  Tensor observation;                // [B, ...obs] frame first
  Tensor next_observation;           // [B, ...obs] frame first + length
  Tensor action;                     // [B, ...action] of frame first
  Tensor reward;                     // [B, N] f32 raw; 0 past the item's length
  Tensor discount;                   // [B, N] f32 raw (0 or 1); 1 past the item's length
  std::vector<std::int32_t> length;  // [B] 1 … N
  std::vector<std::uint64_t> policy_version;  // [B]
  std::int64_t size() const { return std::int64_t(key.size()); }
};

}  // namespace troop
