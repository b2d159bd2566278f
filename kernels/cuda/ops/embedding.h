#pragma once

#include <cstdint>

#include "core/tensor/dtype.h"
#include "kernels/cuda/ops/dropout.h"
#include "kernels/cuda/runtime/device.h"

// What a transformer does with tables of rows. Arrays are dense device memory; ids and tokens are
// within their bounds: whoever made the batch has seen to it.
namespace troop::cuda {

// Tables of f32. Of a model in parts, whose rows the parts' sums are: `word` has some words' rows
// alone, and one part adds the others.
struct EmbeddingTables {
  const float *word = nullptr, *position = nullptr, *type = nullptr;
  std::int32_t first_word = 0, words = INT32_MAX;  // of which `word` has rows; of others, 0
  bool places = true;                              // position and type are added
};
// out [T, width] (kF32 or kBF16) = word[id] + position[place in its sequence] + type[0].
void EmbedTokens(Stream& stream, const PackedSequences& batch, std::int64_t width,
                 const std::int32_t* id, const EmbeddingTables& tables, DType dtype, void* out);

// Which tokens have which word, for sums in one order: of each of `words` different words its row,
// and its tokens, order[first[i]] … order[first[i + 1] - 1]. On the device.
struct WordTokens {
  std::int64_t words = 0;
  const std::int32_t *word = nullptr, *first = nullptr, *order = nullptr;
};
// dword[w], dposition[p], dtype0 += Σ of dout [T, width] over their tokens, by orders that depend
// on the batch alone. f32 but dout. workspace: SumRowsWorkspace(T, width) floats.
struct EmbeddingGradients {
  float *word, *position, *type;
};
void EmbedTokensBackward(Stream& stream, const PackedSequences& batch, std::int64_t width,
                         const WordTokens& tokens, DType dtype, const void* dout,
                         const EmbeddingGradients& to, float* workspace);

// to [rows, width] = from[row[r]]; and to[row[r]] = from [rows, width], of rows that differ.
void GatherRows(Stream& stream, std::int64_t rows, std::int64_t width, const std::int32_t* row,
                DType dtype, const void* from, void* to);
void ScatterRows(Stream& stream, std::int64_t rows, std::int64_t width, const std::int32_t* row,
                 DType dtype, const void* from, void* to);

}  // namespace troop::cuda
