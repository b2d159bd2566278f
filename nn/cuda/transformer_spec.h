#pragma once

#include <cstdint>
#include <vector>

#include "kernels/transformer/layer_norm_gelu.h"
#include "nn/parallel/shard_placement.h"

namespace troop::cuda {

// Description of the model, and its parameter layout.
struct TransformerSpec {
  // Sizes as in TransformerConfig (nn/transformer/transformer.h).
  std::int64_t vocabulary = 0, hidden = 0, embedding = 0, layers = 0, heads = 0, intermediate = 0;
  std::int64_t positions = 0, token_types = 2;  // rows of the tables; 0 types: no table
  GeluForm gelu = GeluForm::kErf;
  float epsilon = 1e-12f;
  float hidden_dropout = 0, attention_dropout = 0, classifier_dropout = 0;
  std::int64_t classes = 2;  // of the classifier head; 0: the masked-LM head
  bool masked() const { return classes == 0; }
  // Structure of the family, as in FamilyForm (nn/transformer/family.h); the defaults are BERT's.
  bool shared = false;   // one layer is applied `layers` times
  bool has_map = false;  // embeddings are mapped linearly to `hidden`
  // The first token has position padding + 1, and tokens with the id `padding` have that position.
  // -1: positions start at 0, and no id is special.
  std::int64_t padding = -1;
  std::int64_t length_max() const { return positions - (padding + 1); }
  bool drops_attention = true, drops_ffn = true;  // dropout after both halves of a layer
  // The classifier: dropout before its first layer, too, and the activation after it.
  bool drops_first = false;
  enum class Pooler : std::uint8_t { kTanh, kRelu, kGelu } pooler = Pooler::kTanh;
  GeluForm word_gelu = GeluForm::kErf;  // of the masked-LM head
  // Keep only the input of each layer in training; backward recomputes the rest.
  bool recompute = false;

  // Tensor-parallel place, and this rank's share of heads, intermediate size and vocabulary.
  TensorParallelRank place;
  bool cut() const { return place.ranks > 1; }
  Share head_share() const { return ShareOf(heads, place); }
  Share wide_share() const { return ShareOf(intermediate, place); }
  Share word_share() const { return ShareOf(vocabulary, place); }
  std::int64_t width() const { return hidden / heads; }  // of a head
  std::int64_t heads_wide() const { return head_share().count * width(); }

  // Parameter offsets, computed by LayOut. A linear layer has all inputs and outputs, or the rank's
  // share of the outputs ("column parallel"), or of the inputs: then its result is the sum over the
  // ranks, and the bias is whole.
  struct Linear {
    std::int64_t in = 0, out = 0, weight = 0, bias = 0;
    enum class Cut { kNone, kOut, kIn } cut = Cut::kNone;
  };
  struct Norm {
    std::int64_t n = 0, gamma = 0, beta = 0;
  };
  struct Layer {
    Linear qkv, attention_out, ffn, ffn_out;
    Norm norm1, norm2;
    std::int64_t begin = 0;
  };
  std::int64_t word_table = 0, position_table = 0, type_table = 0;
  Norm embedding_norm;
  Linear map;                // has_map: embedding to hidden
  std::vector<Layer> layer;  // shared: one for all
  std::int64_t head_begin = 0;
  Linear first, classifier;     // first: the pooler, or the masked-LM head's transform
  Norm head_norm;               // of the masked-LM head, as is:
  std::int64_t word_bias = 0;   // [share of the vocabulary]
  std::int64_t parameters = 0;  // P
  // Flags per kParameterBlock parameters. spared: 1 if excluded from weight decay (biases, norms
  // and padding). whole: 1 if all ranks hold the same parameters.
  std::vector<std::uint8_t> spared, whole;
};
// Computes the offsets, in the order and with the padding of nn/transformer/transformer_parts.h.
void LayOut(TransformerSpec* spec);

}  // namespace troop::cuda
