#pragma once

#include <span>
#include <string>

#include "nn/module.h"
#include "replay/codec/sample_batch.h"

namespace troop {

// Searches for NaN or infinite values, with human-readable results; empty: none found. Called only
// after an update has failed.

// Searches all tensors of a batch. Example:
// "reward[1] of item 3 (slot 7, generation 2 of shard 0; made with the weights of update 120) is
// nan"
std::string FindNonFiniteInBatch(const SampleBatch& batch);
// values: [P]. Example: "layers.0.weight[17] is inf", with the names of weights.safetensors.
std::string FindNonFiniteParameter(const Module& module, std::span<const float> values);
// priority: [B], |TD error|. Example: "the TD error of item 3 (…) is inf"
std::string FindNonFiniteItem(const SampleBatch& batch, std::span<const float> priority);
// The largest magnitude among the inputs of item i (infinity if one is not finite), with its
// location: "reward[0] of item 3 (…) is 2e+37".
struct LargestNumber {
  float value = 0;
  std::string where;  // empty: all values are 0
};
LargestNumber FindLargest(const SampleBatch& batch, std::size_t item);
// Likely cause of a non-finite result of a finite batch; never empty. Example: "the largest input
// is 1e+38, observation[2] of item 3 (…)"
std::string DescribeLargest(const SampleBatch& batch);

}  // namespace troop
