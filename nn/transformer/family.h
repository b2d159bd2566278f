#pragma once

#include <cstdint>
#include <string>

#include "kernels/elementwise/activation.h"
#include "nn/transformer/transformer.h"

namespace troop {

// Parameter names of one encoder layer, after its prefix.
struct LayerNames {
  const char *query, *key, *value, *attention_out, *norm1, *ffn, *ffn_out, *norm2;
};

// Differences between the families: parameter names of the Python package transformers, and where
// each drops and which activations its heads have. "Prefix" is the family's name and a dot.
struct FamilyForm {
  const char* name;     // model_type of config.json
  const char* package;  // start of the package's class names
  const char* layers;   // of the layers, after the prefix; a number follows unless `shared`
  LayerNames layer;
  bool shared = false;     // one layer is applied `layers` times
  const char* map = "";    // linear map from embedding to hidden, after the prefix
  bool always_map = true;  // false: none if both sizes are equal; without a name: never
  bool types = true;       // token types have embeddings
  // The position of the first token is `padding` + 1; a token with that id, which the package takes
  // for padding, has position `padding`. -1: positions start at 0 and no id is special.
  std::int64_t padding = -1;
  bool drops_attention = true, drops_ffn = true;  // dropout after both halves of a layer

  // The pooled head, whole names: activation(linear(first token)), then the classifier.
  const char* pooler;
  bool pools = true;         // the encoder alone has it (kPooled); otherwise it is the classifier's
  bool drops_first = false;  // dropout before that linear layer, too
  enum class Head : std::uint8_t { kTanh, kRelu, kGelu } activation = Head::kTanh;
  const char* classifier = "classifier";

  // The masked-LM head, whole names.
  const char *transform, *transform_norm, *word_bias;
  const char* decoder;       // weight of the tied decoder, a copy of the word embeddings
  bool exact_words = false;  // GELU is exact there, whatever the layers have
  float fixed_epsilon = 0;   // of every norm; 0: any
};
const FamilyForm& FormOf(TransformerConfig::Family family);

// True if embeddings are mapped linearly to `hidden`.
bool HasMap(const TransformerConfig& config);
// GELU of the masked-LM head.
GeluForm WordGelu(const TransformerConfig& config);

}  // namespace troop
