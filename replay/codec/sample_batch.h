#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/tensor/tensor.h"
#include "core/tensor/trajectory.h"

namespace troop {

struct DecodedDelta;

// B sampled items, decoded. Shapes stay constant during a run. S = view.steps() of the table:
// n_step for transitions, burn_in + length_max for sequences; `stack` frames per observation.
//
// A sequence's row of observations is its whole window of W = view.frames_max() frames: frame
// first + t is at column lead_max + t, earlier frames directly precede it, and columns before an
// episode's start or after the item's end are zeros. Step t is column burn_in + t of action,
// reward and discount; its observation is the `stack` columns of the window that end at lead_max +
// t.
struct SampleBatch {
  std::vector<ItemKey> key;          // [B]
  std::vector<double> probability;   // [B] P(i) = p_i^α / Σ p^α over the whole replay
  std::vector<float> weight;         // [B] importance weight (N·P(i))^-β, divided by the largest
                                     // (BatchDecoder::Options::weight_by_table)
  double beta = 0;                   // the β used; with GPU replay, the β to use
  Tensor observation;                // [B, ...obs] frame first; [B, stack, ...obs] where stack > 1,
                                     // oldest first, zeros before an episode's start; sequences:
                                     // [B, W, ...obs]
  Tensor next_observation;           // likewise at frame first + length; empty for sequences
  Tensor action;                     // [B, ...action] at frame first; sequences: [B, S, ...action]
  Tensor reward;                     // [B, S] f32 raw; 0 past the item's length
  Tensor discount;                   // [B, S] f32 raw (0 or 1); 1 past the item's length
  Tensor state;                      // [B, ...state] before the burn-in; empty if none
  std::vector<std::int32_t> length;  // [B] 1 … S - burn_in
  std::vector<std::int32_t> burn_in;          // [B] burn-in steps present: 0 … view.burn_in
  std::vector<std::uint64_t> policy_version;  // [B]
  // With GPU replay (MakeDeltaSampler): the table deltas since the previous batch. The batch then
  // has no other data than B empty keys, or no keys if no update may be made yet.
  std::vector<std::shared_ptr<const DecodedDelta>> experience;
  std::int64_t size() const { return std::int64_t(key.size()); }
};

}  // namespace troop
