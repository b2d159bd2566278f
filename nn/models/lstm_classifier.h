#pragma once

#include <cstdint>
#include <memory>

#include "nn/module.h"

namespace troop {

// Text classifier, a small baseline for the transformers:
//   token embeddings, dropout → bidirectional LSTM layers (Hochreiter & Schmidhuber 1997; dropout
//   between them) → additive attention over each sequence (Yang et al. 2016, eq. 5-7) → dropout →
//   linear, [B, classes].
// Parameters are named as in PyTorch's Embedding, LSTM and Linear: embedding.weight,
// lstm.weight_ih_l0 [4 hidden, in], lstm.weight_hh_l0, lstm.bias_ih_l0, lstm.bias_hh_l0, then with
// the suffix _reverse, and likewise for each layer, gates in the order i, f, g, o; attention.weight
// and .bias, score.weight [1, attention], classifier.weight and .bias.
struct LstmConfig {
  std::int64_t vocabulary = 30522;
  std::int64_t embedding = 128;
  std::int64_t hidden = 128;  // per direction
  std::int64_t layers = 1;
  std::int64_t attention = 128;
  std::int64_t classes = 2;
  float embedding_dropout = 0.2f, layer_dropout = 0.2f, classifier_dropout = 0.2f;
  // Initial weights are N(0, deviation²); the LSTM's are U(±1/√hidden), as in PyTorch.
  float deviation = 0.05f;
  float output_bias = 0;  // initial classifier.bias
  bool operator==(const LstmConfig&) const = default;
};
// Errors: kInvalidArgument, naming the value that is out of bounds.
Status CheckLstmClassifier(const LstmConfig& config);

// Creates the module. Its inputs are those of a transformer classifier: TokenBatch of
// nn/transformer/transformer.h, whose types it ignores. Sequences may have any length.
// Precision::kBF16, the order of parameters and gradients, and reproducibility are as there. A time
// step is one product over all sequences that reach it, so a batch of similar lengths is fast.
// Errors: kInvalidArgument.
Result<std::unique_ptr<Module>> MakeLstmClassifier(const LstmConfig& config);

}  // namespace troop
