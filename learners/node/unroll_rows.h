#pragma once

#include <cstdint>
#include <span>

#include "replay/codec/sample_batch.h"

namespace troop {

// Copies row `row` of a batch of unrolls into a batch of one.
SampleBatch UnrollAt(const SampleBatch& batch, std::int64_t row);

// Copies batches of one unroll each into one batch, in their order. REQUIRES: at least one, all of
// the same table.
SampleBatch JoinUnrolls(std::span<const SampleBatch* const> unrolls);

}  // namespace troop
