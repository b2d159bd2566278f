// Implements the table of transformer families. Sources: modeling_bert.py, modeling_albert.py,
// modeling_roberta.py, modeling_distilbert.py and modeling_electra.py of the package transformers.
#include "nn/transformer/family.h"

#include <array>

namespace troop {
namespace {

// Names of BERT; RoBERTa and ELECTRA have the same.
constexpr LayerNames kBertNames = {"attention.self.query",
                                   "attention.self.key",
                                   "attention.self.value",
                                   "attention.output.dense",
                                   "attention.output.LayerNorm",
                                   "intermediate.dense",
                                   "output.dense",
                                   "output.LayerNorm"};
// Names of ALBERT.
constexpr LayerNames kAlbertNames = {"attention.query", "attention.key",        "attention.value",
                                     "attention.dense", "attention.LayerNorm",  "ffn",
                                     "ffn_output",      "full_layer_layer_norm"};
// Names of DistilBERT.
constexpr LayerNames kDistilNames = {"attention.q_lin",   "attention.k_lin",  "attention.v_lin",
                                     "attention.out_lin", "sa_layer_norm",    "ffn.lin1",
                                     "ffn.lin2",          "output_layer_norm"};

// In the order of TransformerConfig::Family.
constexpr std::array<FamilyForm, 5> kForms{
    // Devlin et al. 2019.
    {{.name = "bert",
      .package = "Bert",
      .layers = "encoder.layer.",
      .layer = kBertNames,
      .pooler = "bert.pooler.dense",
      .transform = "cls.predictions.transform.dense",
      .transform_norm = "cls.predictions.transform.LayerNorm",
      .word_bias = "cls.predictions.bias",
      .decoder = "cls.predictions.decoder.weight"},
     // Lan et al. 2020: the layer is shared, and has no dropout after its second half.
     {.name = "albert",
      .package = "Albert",
      .layers = "encoder.albert_layer_groups.0.albert_layers.0.",
      .layer = kAlbertNames,
      .shared = true,
      .map = "encoder.embedding_hidden_mapping_in",
      .drops_ffn = false,
      .pooler = "albert.pooler",
      .transform = "predictions.dense",
      .transform_norm = "predictions.LayerNorm",
      .word_bias = "predictions.bias",
      .decoder = "predictions.decoder.weight"},
     // Liu et al. 2019: BERT with other positions and another classifier.
     {.name = "roberta",
      .package = "Roberta",
      .layers = "encoder.layer.",
      .layer = kBertNames,
      .padding = 1,
      .pooler = "classifier.dense",
      .pools = false,
      .drops_first = true,
      .classifier = "classifier.out_proj",
      .transform = "lm_head.dense",
      .transform_norm = "lm_head.layer_norm",
      .word_bias = "lm_head.bias",
      .decoder = "lm_head.decoder.weight",
      .exact_words = true},
     // Sanh et al. 2019: the package has no dropout after the attention.
     {.name = "distilbert",
      .package = "DistilBert",
      .layers = "transformer.layer.",
      .layer = kDistilNames,
      .types = false,
      .drops_attention = false,
      .pooler = "pre_classifier",
      .pools = false,
      .activation = FamilyForm::Head::kRelu,
      .transform = "vocab_transform",
      .transform_norm = "vocab_layer_norm",
      .word_bias = "vocab_projector.bias",
      .decoder = "vocab_projector.weight",
      .fixed_epsilon = 1e-12f},
     // Clark et al. 2020: the generator is small, so embeddings are mapped to the hidden size.
     {.name = "electra",
      .package = "Electra",
      .layers = "encoder.layer.",
      .layer = kBertNames,
      .map = "embeddings_project",
      .always_map = false,
      .pooler = "classifier.dense",
      .pools = false,
      .drops_first = true,
      .activation = FamilyForm::Head::kGelu,
      .classifier = "classifier.out_proj",
      .transform = "generator_predictions.dense",
      .transform_norm = "generator_predictions.LayerNorm",
      .word_bias = "generator_lm_head.bias",
      .decoder = "generator_lm_head.weight",
      .exact_words = true}}};

}  // namespace

// The enum numbers the rows.
const FamilyForm& FormOf(TransformerConfig::Family family) { return kForms[std::size_t(family)]; }

// ELECTRA of base size has equal sizes, and then no map.
bool HasMap(const TransformerConfig& config) {
  const FamilyForm& form = FormOf(config.family);
  return form.map[0] != '\0' && (form.always_map || config.embedding != config.hidden);
}

// RoBERTa and ELECTRA call gelu() there, not hidden_act.
GeluForm WordGelu(const TransformerConfig& config) {
  return FormOf(config.family).exact_words ? GeluForm::kErf : config.gelu;
}

const char* NameOf(TransformerConfig::Family family) { return FormOf(family).name; }

// RoBERTa's table begins with the rows of the padding and of the position before it.
std::int64_t LengthMax(const TransformerConfig& config) {
  return config.positions - (FormOf(config.family).padding + 1);
}

}  // namespace troop
