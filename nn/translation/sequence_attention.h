#pragma once

#include <span>

#include "nn/transformer/transformer_parts.h"

namespace troop {

// Attention of the steps of target sequences over those of their source sequences: the additive
// form of Bahdanau et al. 2015 with a normalized vector (Luong et al. 2017, "Neural machine
// translation (seq2seq) tutorial": normed_bahdanau):
//   score(q, k) = g v/|v| · tanh(Wq q + Wk k + b);  context = Σ softmax(score) k
// Immutable, so usable from any thread. Rows are in the order of the batch.
class SequenceAttention {
 public:
  SequenceAttention() = default;
  // width: of queries, keys and the context; units: of the tanh.
  SequenceAttention(std::int64_t width, std::int64_t units, ParamLayout& layout);

  // S source tokens, T target tokens, `pairs`: Σ of the products of a sequence's two lengths.
  struct Sizes {
    std::int64_t source = 0, target = 0, pairs = 0;
  };
  struct Kept {
    float *keys = nullptr, *queries = nullptr;  // [S, width], [T, width]; filled by the caller
    float *mapped_keys = nullptr, *mapped_queries = nullptr;  // [S, units], [T, units]
    float* share = nullptr;                                   // [pairs]: [T, S] of each sequence
    float* vector = nullptr;                                  // [units]: g v/|v|
  };
  Kept TakeKept(Arena& arena, const Sizes& sizes) const;
  struct Scratch {
    float *tanh = nullptr, *dtanh = nullptr;  // [rows of a block, units]
    float* dshare = nullptr;                  // [pairs]
    float *dkeys = nullptr, *dqueries = nullptr, *dvector = nullptr;
  };
  // longest: source tokens of a sequence.
  Scratch TakeScratch(Arena& arena, const Sizes& sizes, std::int64_t longest) const;

  // Arguments of one application; borrowed for a call.
  struct Use {
    const Params& params;
    std::span<const std::int32_t> source_starts, target_starts;  // [B + 1]
    const Kept& kept;
    const Scratch& scratch;
  };
  // Maps the keys and the vector, which do not change while a sentence is decoded.
  void MapKeys(const Params& params, std::int64_t tokens, const Kept& kept) const;
  // context: [T, width]. Calls MapKeys.
  void Forward(const Use& use, float* context) const;
  // Forward after MapKeys.
  void Attend(const Use& use, float* context) const;
  // use: that of the Forward call. dcontext: [T, width]; dkeys [S, width] and dqueries [T, width]
  // are overwritten. Adds to params.gradient. REQUIRES: params.gradient.
  void Backward(const Use& use, const float* dcontext, float* dkeys, float* dqueries) const;

 private:
  // Rows (t, s) of one sequence from target step `begin` to `end`.
  struct Block {
    std::int64_t source = 0, sources = 0;  // first row of the keys, and their number
    std::int64_t target = 0, targets = 0;
    std::int64_t pair = 0;  // first element of `share`
  };
  template <class F>
  void ForEachBlock(const Use& use, F f) const;
  void Tanh(const Use& use, const Block& block) const;
  void BackwardBlock(const Use& use, const Block& block) const;
  void BackwardVector(const Use& use) const;

  std::int64_t width_ = 0, units_ = 0;
  std::int64_t query_ = 0, key_ = 0, vector_ = 0, scale_ = 0, bias_ = 0;  // offsets
};

}  // namespace troop
