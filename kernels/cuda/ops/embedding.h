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
  const float* word = nullptr;                     // [words, width]
  const float* position = nullptr;                 // [positions, width]
  const float* type = nullptr;                     // [token types, width]; nullptr: none
  std::int32_t first_word = 0, words = INT32_MAX;  // ids whose rows `word` has; others give 0
  bool places = true;                              // adds position and type
};
// Arguments of EmbedTokens.
struct EmbedTokensArgs {
  PackedSequences batch;  // T tokens
  std::int64_t width = 0;
  const std::int32_t* id = nullptr;     // [T]
  const std::int32_t* type = nullptr;   // [T]; nullptr: all 0
  const std::int32_t* place = nullptr;  // [T] rows of `position`; nullptr: index in the sequence
  EmbeddingTables tables;
  DType dtype = DType::kF32;  // of out: kF32 or kBF16
  void* out = nullptr;        // [T, width], overwritten
};
// out = word[id] + type[type] + position[place].
void EmbedTokens(Stream& stream, const EmbedTokensArgs& args);

// Tokens of a batch grouped by token id (or another row number), so that gradients are summed in a
// fixed order. Group i is
// row word[i] of the table and the tokens order[first[i]] … order[first[i + 1] - 1]; there are
// `words` different ids. Device memory.
struct WordTokens {
  std::int64_t words = 0;
  const std::int32_t* word = nullptr;   // [words]
  const std::int32_t* first = nullptr;  // [words + 1]
  const std::int32_t* order = nullptr;  // [first[words]]
};
// Gradients of the tables, f32, which are added to; the shapes are those of EmbeddingTables.
struct EmbeddingGradients {
  float *word = nullptr, *position = nullptr, *type = nullptr;  // type nullptr: no table
};
// Arguments of EmbedTokensBackward.
struct EmbedTokensBackwardArgs {
  PackedSequences batch;  // T tokens
  std::int64_t width = 0;
  WordTokens words;
  WordTokens places;  // the tokens grouped by rows of `position`; empty: by index in the sequence
  const std::int32_t* type = nullptr;  // [T], all below `types`; nullptr: all 0
  std::int64_t types = 1;
  DType dtype = DType::kF32;   // of dout: kF32 or kBF16
  const void* dout = nullptr;  // [T, width]
  EmbeddingGradients gradient;
  float* workspace = nullptr;  // SumRowsWorkspace(T, width) floats, overwritten
};
// dword[w], dposition[p], dtype[t] += Σ of dout over their tokens, in orders that depend only on
// the batch. One pass over dout per token type.
void EmbedTokensBackward(Stream& stream, const EmbedTokensBackwardArgs& args);

// Arguments of GatherRows.
struct GatherRowsArgs {
  std::int64_t rows = 0, width = 0;
  const std::int32_t* row = nullptr;  // [rows], row numbers in `from`
  DType dtype = DType::kF32;          // of both arrays: kF32 or kBF16
  const void* from = nullptr;         // [any, width]
  void* to = nullptr;                 // [rows, width], overwritten
};
// to[r] = from[row[r]].
void GatherRows(Stream& stream, const GatherRowsArgs& args);

// Arguments of ScatterRows. REQUIRES: the row numbers differ.
struct ScatterRowsArgs {
  std::int64_t rows = 0, width = 0;
  const std::int32_t* row = nullptr;  // [rows], row numbers in `to`
  DType dtype = DType::kF32;          // of both arrays: kF32 or kBF16
  const void* from = nullptr;         // [rows, width]
  void* to = nullptr;                 // [any, width]; other rows are unchanged
};
// to[row[r]] = from[r].
void ScatterRows(Stream& stream, const ScatterRowsArgs& args);

}  // namespace troop::cuda
