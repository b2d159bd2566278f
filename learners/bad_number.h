#pragma once

#include <span>
#include <string>

#include "nn/module.h"
#include "replay/sample.h"

namespace troop {

// Where a number is NaN or infinite, in words for people; empty: nowhere. Only asked once something
// has gone wrong.

// "reward[1] of item 3 (slot 7, generation 2 of shard 0; made with the weights of update 120) is
// nan"
std::string FindBadInBatch(const SampleBatch& batch);
// values: [P]. "layers.0.weight[17] is inf", with the names of weights.safetensors.
std::string FindBadParameter(const Module& module, std::span<const float> values);
// priority: [B], |TD error|. "the TD error of item 3 (…) is inf"
std::string FindBadItem(const SampleBatch& batch, std::span<const float> priority);
// The largest number of item i that went into an update, without its sign (infinity: it is not
// finite), and in words: "reward[0] of item 3 (…) is 2e+37".
struct LargestNumber {
  float value = 0;
  std::string where;  // empty: there is none above 0
};
LargestNumber FindLargest(const SampleBatch& batch, std::size_t item);
// Never empty: what may have made all of a finite batch go bad. "the largest number that went in is
// 1e+38, observation[2] of item 3 (…)"
std::string DescribeLargest(const SampleBatch& batch);

}  // namespace troop
