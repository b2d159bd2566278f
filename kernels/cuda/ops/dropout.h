#pragma once

#include <cstdint>

#include "core/tensor/dtype.h"
#include "kernels/cuda/runtime/device.h"
#include "kernels/transformer/dropout.h"

namespace troop::cuda {

// Sequences one behind the other, without padding: s is the tokens starts[s] … starts[s + 1] - 1
// of T.
struct PackedSequences {
  const std::int32_t* starts = nullptr;  // on the device, [sequences + 1], rising from 0 to T
  std::int64_t sequences = 0;
  std::int64_t tokens = 0;   // T
  std::int64_t longest = 0;  // tokens, at least those of the longest
};
// Rows that are a sequence each: dropout counts its elements from each one's first.
inline PackedSequences EachRow(std::int64_t rows) { return {nullptr, rows, rows, 1}; }

// What is dropped at one place of a network: DropoutFactors (kernels/transformer/dropout.h), the
// same bits.
struct Dropout {
  const DropoutKey* keys = nullptr;  // on the device, [sequences]; nullptr: nothing is dropped
  std::uint32_t site = 0;
  float rate = 0;  // 0 <= rate < 1
  bool drops() const { return keys != nullptr && rate > 0; }
};

// y = factor x + add: each sequence's elements are counted from its first token's. x, add, y
// [T, width], dense, kF32 or kBF16 alike; add: nullptr: none. y may be x or add. O(T width), one
// pass.
void DropAdd(Stream& stream, const PackedSequences& batch, const Dropout& dropout,
             std::int64_t width, DType dtype, const void* x, const void* add, void* y);

// The same of some tokens' rows: x, add, y [rows, width] are those of token[0] …, which are on the
// device, and what is dropped of a row is what DropAdd would drop of it.
void DropAddRows(Stream& stream, const PackedSequences& batch, const Dropout& dropout,
                 std::int64_t rows, const std::int32_t* token, std::int64_t width, DType dtype,
                 const void* x, const void* add, void* y);

}  // namespace troop::cuda
