#pragma once

#include <cstdint>

#include "core/tensor/dtype.h"
#include "kernels/cuda/runtime/device.h"
#include "kernels/transformer/dropout.h"

namespace troop::cuda {

// Packed batch, without padding: sequence s is the tokens starts[s] … starts[s + 1] - 1 of T.
struct PackedSequences {
  const std::int32_t* starts = nullptr;  // device memory, [sequences + 1], ascending from 0 to T
  std::int64_t sequences = 0;
  std::int64_t tokens = 0;   // T
  std::int64_t longest = 0;  // tokens; at least the length of the longest sequence
};
// A batch whose rows are one sequence each: dropout numbers the elements of each row from 0.
inline PackedSequences EachRow(std::int64_t rows) { return {nullptr, rows, rows, 1}; }

// Dropout mask of one layer. The bits are those of DropoutFactors (kernels/transformer/dropout.h).
struct Dropout {
  const DropoutKey* keys = nullptr;  // device memory, [sequences]; nullptr: no dropout
  std::uint32_t site = 0;
  float rate = 0;  // 0 <= rate < 1
  bool drops() const { return keys != nullptr && rate > 0; }
};

// y = factor x + add, where the elements of each sequence are numbered from its first token. x,
// add, y: [T, width], dense, all kF32 or all kBF16; add may be nullptr; y may be x or add. O(T
// width), one pass.
void DropAdd(Stream& stream, const PackedSequences& batch, const Dropout& dropout,
             std::int64_t width, DType dtype, const void* x, const void* add, void* y);

// DropAdd for some tokens: x, add, y [rows, width] are the rows of token[0] …, which is device
// memory. Each row gets the mask that DropAdd would apply to it.
void DropAddRows(Stream& stream, const PackedSequences& batch, const Dropout& dropout,
                 std::int64_t rows, const std::int32_t* token, std::int64_t width, DType dtype,
                 const void* x, const void* add, void* y);

}  // namespace troop::cuda
