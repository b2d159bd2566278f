#pragma once

#include <string>

#include "nn/transformer/transformer_parts.h"

// The parts of a transformer before and after its layers. They are immutable: several threads may
// use one part at the same time, each with separate memory. drop_scratch of their methods:
// [max(kDropScratch, 2 embedding)].
namespace troop {

// Word, position and type embeddings, their layer norm and, in some families, a linear map to
// `hidden`.
// With tensor parallelism a rank holds its share of the vocabulary.
class EmbeddingPart {
 public:
  EmbeddingPart() = default;
  EmbeddingPart(const TransformerOptions& options, ParamLayout& layout);

  struct Kept {
    NormPart::Kept sum;         // [T, embedding]
    float* embedded = nullptr;  // [T, embedding]
    float* out = nullptr;       // [T, hidden]; without a map: `embedded`
  };
  Kept TakeKept(Arena& arena, std::int64_t tokens) const;
  // Arguments of one application to a batch of T tokens; borrowed for a call.
  struct Use {
    const Params& params;
    const TokenBatch& batch;
    const Kept& kept;
    float* drop_scratch = nullptr;  // [max(kDropScratch, 2 embedding)]
  };
  // Computes kept.out.
  void Forward(const Use& use) const;
  // use: that of the Forward call. dy: [T, hidden], the gradient of kept.out; scratch: [T,
  // embedding]. Both are overwritten. Adds to params.gradient, if it is set.
  void Backward(const Use& use, float* dy, float* scratch) const;
  std::int64_t words() const { return words_; }  // offset of [share of vocabulary, embedding]

 private:
  template <class F>
  void ForEachRun(const TokenBatch& batch, const F& use) const;
  // Dropout of x [T, embedding], the embeddings or their gradient.
  DropRowsArgs Dropout(float* x, float* scratch) const;

  TransformerConfig config_;
  Extent vocabulary_;
  std::int64_t words_ = 0, positions_ = 0, types_ = 0;
  NormPart norm_;
  LinearPart map_;
};

// The pooled head, with or without a classifier, or the masked-LM head, whose decoder produces the
// rank's share of the vocabulary.
class HeadPart {
 public:
  HeadPart() = default;
  // words: EmbeddingPart::words(), for the tied decoder.
  HeadPart(const TransformerOptions& options, std::int64_t words, ParamLayout& layout);

  std::int64_t rows(std::int64_t sequences, std::int64_t places) const {
    return masked() ? places : sequences;
  }
  std::int64_t outputs() const;  // per row
  struct Kept {
    float* mid = nullptr;      // pooled [rows, hidden], or pre-activations [rows, embedding]
    float* top = nullptr;      // input of the last product
    float* dropped = nullptr;  // input of the first product [rows, hidden], if it has dropout
    NormPart::Kept sum;        // masked: of the activations
  };
  Kept TakeKept(Arena& arena, std::int64_t rows) const;
  // Tokens whose last-layer outputs the head reads, increasing.
  std::span<const std::int32_t> Asked(const TokenBatch& batch) const {
    return masked() ? batch.places : batch.starts.first(batch.starts.size() - 1);
  }
  // Arguments of one application; borrowed for a call.
  struct Use {
    const Params& params;
    const TokenBatch& batch;
    const float* x = nullptr;  // [rows, hidden], of the requested tokens
    const Kept& kept;
    float* drop_scratch = nullptr;  // [max(kDropScratch, 2 embedding)]
  };
  // out: [rows, outputs()].
  void Forward(const Use& use, float* out) const;
  // use: that of the Forward call. dout: [rows, outputs()]; dx [rows, hidden] is overwritten;
  // scratch: [rows, max(hidden, embedding)]. Adds to params.gradient, if it is set.
  void Backward(const Use& use, const float* dout, float* dx, float* scratch) const;
  std::int64_t scratch(std::int64_t rows) const { return rows * wide_; }

 private:
  bool masked() const { return options_.head == TransformerHead::kMaskedLm; }
  bool classifies() const { return options_.head == TransformerHead::kClassifier; }
  // Dropout of x [rows, hidden], the input of a layer of the pooled head or its gradient.
  DropRowsArgs Dropout(std::uint32_t site, float* x, float* scratch) const;
  void Activate(std::int64_t n, const float* z, float* y) const;
  void ActivateBackward(std::int64_t n, const float* kept, float* dy) const;
  const float* Dropped(const Use& use) const;
  void ForwardPooled(const Use& use, float* out) const;
  void ForwardMasked(const Use& use, float* out) const;
  void BackwardPooled(const Use& use, const float* dout, float* dx, float* scratch) const;
  void BackwardMasked(const Use& use, const float* dout, float* dx, float* scratch) const;

  TransformerOptions options_;
  Extent vocabulary_;
  std::int64_t wide_ = 0;
  LinearPart first_;       // the pooled head's, or the masked-LM head's transform
  LinearPart classifier_;  // of kClassifier
  NormPart norm_;          // of kMaskedLm, as are:
  std::int64_t words_ = 0, bias_ = 0;
};

}  // namespace troop
