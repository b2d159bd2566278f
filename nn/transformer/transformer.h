#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/config/problem_type.h"
#include "kernels/transformer/dropout.h"
#include "kernels/transformer/layer_norm_gelu.h"
#include "nn/parallel/tensor_parallel.h"

namespace troop {

// Encoder with a layer norm after each sum (post-LN), as published.
//   kBert: Devlin et al. 2019. kAlbert: Lan et al. 2020: one layer applied `layers` times,
//   embeddings of size `embedding` mapped linearly to `hidden`, no dropout after the second half of
//   a layer.
//   kRoberta: Liu et al. 2019: positions start at 2, and the classifier has its own layer
//   instead of the pooler. kDistilBert: Sanh et al. 2019: no token types and no pooler, dropout
//   only after the second half of a layer. kElectra: Clark et al. 2020: embeddings of another size
//   than `hidden` are mapped linearly; no pooler.
// Sizes, parameter names and dropout positions are those of the Python package transformers.
struct TransformerConfig {
  enum class Family : std::uint8_t {
    kBert = 0,
    kAlbert = 1,
    kRoberta = 2,
    kDistilBert = 3,
    kElectra = 4
  } family = Family::kBert;
  std::int64_t vocabulary = 30522;
  std::int64_t hidden = 768;     // a multiple of 16 and of heads
  std::int64_t embedding = 768;  // = hidden, except kAlbert and kElectra
  std::int64_t layers = 12, heads = 12, intermediate = 3072;
  // Rows of the tables. RoBERTa uses two rows fewer than it has (LengthMax); kDistilBert: 1 type.
  std::int64_t positions = 512, token_types = 2;
  GeluForm gelu = GeluForm::kErf;
  float epsilon = 1e-12f;
  float hidden_dropout = 0.1f, attention_dropout = 0.1f, classifier_dropout = 0.1f;
  float deviation = 0.02f;  // of initial weights
  // Initialize position embeddings as sinusoids (Vaswani et al. 2017, sec. 3.5) of that size: the
  // distance of two tokens then shows in their product from the start, instead of being learned
  // position by position.
  bool sinusoids = false;
  bool operator==(const TransformerConfig&) const = default;
};
const char* NameOf(TransformerConfig::Family family);  // model_type: "bert", "albert", …
// The longest sequence in tokens.
std::int64_t LengthMax(const TransformerConfig& config);
TransformerConfig BertBase();    // bert-base-uncased: 109,482,240 parameters with pooler
TransformerConfig AlbertBase();  // albert-base-v2: 11,683,584
// Errors: kInvalidArgument, naming the value that is out of bounds.
Status CheckTransformer(const TransformerConfig& config);

// Output head.
//   kPooled: tanh(linear(first token of each sequence)), [B, hidden]. BERT and ALBERT only.
//   kClassifier: a linear layer on that, with dropout before it, [B, classes]. RoBERTa and ELECTRA
//   have dropout before the first linear layer, too; DistilBERT has ReLU, ELECTRA GELU for tanh.
//   kMaskedLm: gelu(linear), layer norm, and the transposed word embeddings as decoder, for chosen
//   tokens, [M, vocabulary]; with tensor parallelism the rank's share of the vocabulary
//   (SlicedCrossEntropy).
enum class TransformerHead : std::uint8_t { kPooled = 0, kClassifier = 1, kMaskedLm = 2 };
struct TransformerOptions {
  TransformerConfig config;
  TransformerHead head = TransformerHead::kClassifier;
  std::int64_t classes = 2;
  // Meaning of a classifier's outputs, for config.json: names by id (empty: default names), and the
  // kind of prediction.
  std::vector<std::string> labels;
  ProblemType problem_type = ProblemType::kSingleLabel;
  float output_bias = 0;  // initial bias of a classifier's outputs
  // Activation recomputation: backward repeats each layer's forward from its input, the only
  // activation that is kept (Chen et al. 2016). A third more products; of BERT-base's 16 hidden
  // sizes per token and layer, one is kept.
  bool recompute = false;
  // Tensor-parallel place: the parameters are slices, and every step needs StepContext::tensor. At
  // most as many ranks as heads. InitParameters applies to whole models: use TakeSlice of one. All
  // ranks give equal outputs (kMaskedLm: slices), which equal the whole model's within rounding,
  // and use the same dropout masks.
  TensorParallelRank tensor;
};
// Traffic of a training step of a packed batch: 4 all-reduces of [T, hidden] per layer (6 with
// recomputation), of which 3 in the last layer are [asked, hidden]; plus the embeddings and, for
// kMaskedLm, the head and SlicedCrossEntropy. asked: outputs of the last layer that the head reads:
// one per sequence, or kMaskedLm's positions. One rank: none.
TensorTraffic StepTraffic(const TransformerOptions& options, std::int64_t tokens,
                          std::int64_t asked);

// The module's inputs, in this order: a packed batch of B sequences with T tokens in total, without
// padding. There is no second axis: sequences are concatenated.
//   ids     [T] i32
//   starts  [B + 1] i32: where each sequence begins, and T (known as cu_seqlens)
//   types   [T] i32, or empty: all of type 0
//   dropout [B, 4] u32, one DropoutKey each, or empty: no dropout (inference)
//   places  [M] i32, increasing: positions of the tokens to predict; only kMaskedLm, which has five
//   inputs
struct TokenBatch {
  std::span<const std::int32_t> ids, starts, types;
  std::span<const DropoutKey> dropout;
  std::span<const std::int32_t> places;
  std::int64_t tokens() const { return std::int64_t(ids.size()); }
  std::int64_t sequences() const { return std::int64_t(starts.size()) - 1; }
};
// Upper bounds of the ids and types in a batch, and of the sequence length.
struct TokenBounds {
  std::int64_t vocabulary = 0, token_types = 0, length = 0;
};
// Checks that every value is within its bounds; Forward requires it. Errors: kInvalidArgument,
// naming the first that is not. O(T + M).
Status CheckTokens(const TokenBounds& bounds, const TokenBatch& batch);
inline TokenBounds BoundsOf(const TransformerConfig& config) {
  return {config.vocabulary, config.token_types, LengthMax(config)};
}
inline Status CheckTokens(const TransformerConfig& config, const TokenBatch& batch) {
  return CheckTokens(BoundsOf(config), batch);
}

// Creates the module. Output: see TransformerHead, f32. Precision::kBF16 rounds the operands of
// products, on any machine (MatMulBF16); everything else, sums and weights included, is f32. The
// last layer computes only the outputs that the head reads (all tokens are still keys and values
// there): this saves 7 % of BERT-base's products, 42 % with two layers. Parameters are in order of
// use, so that gradients become ready from the end. Bit-identical in every run on one machine; a
// sequence's hidden states do not depend on the rest of the batch beyond rounding. Errors:
// kInvalidArgument.
Result<std::unique_ptr<Module>> MakeTransformer(const TransformerOptions& options);

}  // namespace troop
