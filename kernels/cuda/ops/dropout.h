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

// Arguments of DropAdd. Arrays are dense.
struct DropAddArgs {
  PackedSequences batch;  // T tokens
  Dropout dropout;
  std::int64_t width = 0;
  DType dtype = DType::kF32;  // of x, add and y: kF32 or kBF16
  const void* x = nullptr;    // [T, width]
  const void* add = nullptr;  // [T, width]; nullptr: nothing is added
  void* y = nullptr;          // [T, width], overwritten; may be x or add
};
// y = factor x + add, where the elements of each sequence are numbered from its first token.
// O(T width), one pass.
void DropAdd(Stream& stream, const DropAddArgs& args);

// Arguments of DropAddRows. Arrays are dense.
struct DropAddRowsArgs {
  PackedSequences batch;
  Dropout dropout;
  std::int64_t rows = 0;
  const std::int32_t* token = nullptr;  // [rows], device memory: the token of each row
  std::int64_t width = 0;
  DType dtype = DType::kF32;  // of x, add and y: kF32 or kBF16
  const void* x = nullptr;    // [rows, width]
  const void* add = nullptr;  // [rows, width]; nullptr: nothing is added
  void* y = nullptr;          // [rows, width], overwritten; may be x or add
};
// DropAdd for some tokens. Each row gets the mask that DropAdd would apply to its token.
void DropAddRows(Stream& stream, const DropAddRowsArgs& args);

}  // namespace troop::cuda
