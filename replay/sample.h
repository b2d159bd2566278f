#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/tensor.h"
#include "core/trajectory.h"

namespace troop {

struct Experience;

// B drawn items, decoded. The shapes of a run never change. S = view.steps() of the table: n_step
// for transitions, burn_in + length_max for sequences; `stack` frames per observation.
//
// A sequence's row of observations is its whole window of W = view.frames_max() frames: frame
// first + t is at column lead_max + t, the frames before it are right in front of it, and what an
// episode's start or the item's end leaves open is zeros. Step t of it is column burn_in + t of
// action, reward and discount; its observation is the `stack` columns of the window that end in
// lead_max + t.
struct SampleBatch {
  std::vector<ItemKey> key;          // [B]
  std::vector<double> probability;   // [B] P(i) = p_i^α / Σ p^α over the whole replay
  std::vector<float> weight;         // [B] importance weight (N·P(i))^-β / max over the batch
  double beta = 0;                   // that β; of a batch that the learner draws, the one to take
  Tensor observation;                // [B, ...obs] frame first; [B, stack, ...obs] where stack > 1,
                                     // oldest first, zeros before an episode's start; sequences:
                                     // [B, W, ...obs]
  Tensor next_observation;           // the same of frame first + length; empty for sequences
  Tensor action;                     // [B, ...action] of frame first; sequences: [B, S, ...action]
  Tensor reward;                     // [B, S] f32 raw; 0 past the item's length
  Tensor discount;                   // [B, S] f32 raw (0 or 1); 1 past the item's length
  Tensor state;                      // [B, ...state] before the burn-in; empty if none
  std::vector<std::int32_t> length;  // [B] 1 … S - burn_in
  std::vector<std::int32_t> burn_in;  // [B] steps before the item that are there: 0 … view.burn_in
  std::vector<std::uint64_t> policy_version;  // [B]
  // Where the learner draws (MakeReplayMirror): what came since the batch before, and nothing else
  // but B keys of nothing, or none: then no update is to be made by now.
  std::vector<std::shared_ptr<const Experience>> experience;
  std::int64_t size() const { return std::int64_t(key.size()); }
};

}  // namespace troop
