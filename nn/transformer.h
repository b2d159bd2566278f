#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/dropout.h"
#include "kernels/transformer.h"
#include "nn/tensor_parallel.h"

namespace troop {

// An encoder with layer norm behind each sum (post-LN), as published.
//   kBert: Devlin et al. 2019. kAlbert: Lan et al. 2020: one layer used `layers` times, embeddings
//   of `embedding` numbers brought to `hidden` by a linear map, nothing dropped behind the second
//   half of a layer.
// Numbers, names of parameters and places of dropout are those of the Python package transformers.
struct TransformerConfig {
  enum class Family : std::uint8_t { kBert = 0, kAlbert = 1 } family = Family::kBert;
  std::int64_t vocabulary = 30522;
  std::int64_t hidden = 768;     // a multiple of 16 and of heads
  std::int64_t embedding = 768;  // kBert: = hidden
  std::int64_t layers = 12, heads = 12, intermediate = 3072;
  std::int64_t positions = 512, token_types = 2;
  GeluForm gelu = GeluForm::kErf;
  float epsilon = 1e-12f;
  float hidden_dropout = 0.1f, attention_dropout = 0.1f, classifier_dropout = 0.1f;
  float deviation = 0.02f;  // of initial weights
  // Position embeddings begin as sinusoids (Vaswani et al. 2017, sec. 3.5) of that size: how far
  // two tokens lie apart is in their product at once, instead of being learned place by place.
  bool sinusoids = false;
  bool operator==(const TransformerConfig&) const = default;
};
const char* NameOf(TransformerConfig::Family family);  // "bert", "albert"
TransformerConfig BertBase();    // bert-base-uncased: 109,482,240 parameters with pooler
TransformerConfig AlbertBase();  // albert-base-v2: 11,683,584
// Errors: kInvalidArgument, with the number that is out of bounds.
Status CheckTransformer(const TransformerConfig& config);

// What the encoder ends with.
//   kPooled: tanh(linear(first token of each sequence)), [B, hidden].
//   kClassifier: a linear layer on that, with dropout before it, [B, classes].
//   kMaskedLm: gelu(linear), layer norm, and the word embeddings' transpose as decoder, for chosen
//   tokens, [M, vocabulary]: of a rank, its share of the vocabulary (SlicedCrossEntropy).
enum class TransformerHead : std::uint8_t { kPooled = 0, kClassifier = 1, kMaskedLm = 2 };
struct TransformerOptions {
  TransformerConfig config;
  TransformerHead head = TransformerHead::kClassifier;
  std::int64_t classes = 2;
  // Backward computes each layer's forward again from its input, which alone is kept (Chen et al.
  // 2016): a third more products, and of BERT-base's 16 hidden sizes a token and layer one is kept.
  bool recompute = false;
  // Which part of the model: its parameters are slices, and every step needs StepContext::tensor.
  // At most as many ranks as heads. InitParameters is for whole models: TakeSlice of one. All ranks
  // give equal outputs (of kMaskedLm: slices), within rounding those of the whole model, and drop
  // the same elements.
  TensorPlace tensor;
};
// What a training step of a packed batch exchanges with the group: 4 all-reduces of [T, hidden] a
// layer (6 where it is computed again), of which 3 of the last layer's are [asked, hidden]; the
// embeddings and, of kMaskedLm, the head and SlicedCrossEntropy. asked: outputs of the last layer
// that the head reads: the sequences, or kMaskedLm's places. Of one rank: nothing.
TensorTraffic StepTraffic(const TransformerOptions& options, std::int64_t tokens,
                          std::int64_t asked);

// The module's inputs, in this order: a packed batch of B sequences, T tokens in all, without
// padding. Its second axis is no image's: sequences lie one behind the other.
//   ids     [T] i32
//   starts  [B + 1] i32: where each sequence begins, and T (the field's cu_seqlens)
//   types   [T] i32, or empty: all of type 0
//   dropout [B, 4] u32, a DropoutKey each, or empty: nothing is dropped (inference)
//   places  [M] i32, rising, tokens whose words are asked for: kMaskedLm alone, which has five
//           inputs
struct TokenBatch {
  std::span<const std::int32_t> ids, starts, types;
  std::span<const DropoutKey> dropout;
  std::span<const std::int32_t> places;
  std::int64_t tokens() const { return std::int64_t(ids.size()); }
  std::int64_t sequences() const { return std::int64_t(starts.size()) - 1; }
};
// How many there may be of what a batch's numbers name, and the longest sequence.
struct TokenBounds {
  std::int64_t vocabulary = 0, token_types = 0, length = 0;
};
// Whether every number is within its bounds; Forward insists on it. Errors: kInvalidArgument, with
// the first that is not. O(T + M).
Status CheckTokens(const TokenBounds& bounds, const TokenBatch& batch);
inline Status CheckTokens(const TransformerConfig& config, const TokenBatch& batch) {
  return CheckTokens({config.vocabulary, config.token_types, config.positions}, batch);
}

// Output: see TransformerHead, f32. Precision::kBF16 rounds the operands of products, on any
// machine (MatMulBF16); all else, sums and weights are f32. Of the last layer only those outputs
// are made that the head reads (all tokens are keys and values there): of BERT-base's products that
// saves 7 %, of two layers' 42 %. Parameters lie in the order of use, so that gradients are ready
// from the end on. The same bytes at every run on one machine; a sequence's hidden states don't
// depend on what it is packed with beyond rounding. Errors: kInvalidArgument.
Result<std::unique_ptr<Module>> MakeTransformer(const TransformerOptions& options);

}  // namespace troop
