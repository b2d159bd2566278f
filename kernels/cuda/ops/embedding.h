#pragma once

#include <cstdint>

#include "core/tensor/dtype.h"
#include "kernels/cuda/ops/dropout.h"
#include "kernels/cuda/runtime/device.h"

// Embedding tables of a transformer. Arrays are dense device memory. REQUIRES: ids and row numbers
// are within bounds, which the creator of the batch has checked.
namespace troop::cuda {

// f32 embedding tables. If tensor-parallel, `word` holds only the rows of some token ids. The
// results of the ranks are summed, and one rank adds the other tables (`places`).
struct EmbeddingTables {
  const float *word = nullptr, *position = nullptr, *type = nullptr;
  std::int32_t first_word = 0, words = INT32_MAX;  // ids whose rows `word` has; others give 0
  bool places = true;                              // adds position and type
};
// out [T, width] (kF32 or kBF16) = word[id] + position[index in its sequence] + type[0].
void EmbedTokens(Stream& stream, const PackedSequences& batch, std::int64_t width,
                 const std::int32_t* id, const EmbeddingTables& tables, DType dtype, void* out);

// Tokens of a batch grouped by token id, so that gradients are summed in a fixed order. Group i is
// row word[i] of the table and the tokens order[first[i]] … order[first[i + 1] - 1]; there are
// `words` different ids. Device memory.
struct WordTokens {
  std::int64_t words = 0;
  const std::int32_t *word = nullptr, *first = nullptr, *order = nullptr;
};
// dword[w], dposition[p], dtype0 += Σ of dout [T, width] over their tokens, in orders that depend
// only on the batch. f32, except dout. workspace: SumRowsWorkspace(T, width) floats.
struct EmbeddingGradients {
  float *word, *position, *type;
};
void EmbedTokensBackward(Stream& stream, const PackedSequences& batch, std::int64_t width,
                         const WordTokens& tokens, DType dtype, const void* dout,
                         const EmbeddingGradients& to, float* workspace);

// GatherRows: to [rows, width] = from[row[r]]. ScatterRows: to[row[r]] = from [rows, width].
// REQUIRES for ScatterRows: the rows differ.
void GatherRows(Stream& stream, std::int64_t rows, std::int64_t width, const std::int32_t* row,
                DType dtype, const void* from, void* to);
void ScatterRows(Stream& stream, std::int64_t rows, std::int64_t width, const std::int32_t* row,
                 DType dtype, const void* from, void* to);

}  // namespace troop::cuda
