#pragma once

#include <cstdint>
#include <string>

namespace troop {

class ConfigVisitor;

// The model of a supervised run ([model]); names as in Hugging Face's configs.
struct ModelConfig {
  std::string architecture = "bert";  // "bert" | "albert" | "lstm"
  std::string pretrained;             // folder with initial weights; empty: random
  std::int64_t vocab_size = 0;        // 0: size of data.vocabulary
  std::int64_t hidden_size = 128;
  std::int64_t embedding_size = 0;  // albert, lstm; 0: same as hidden
  std::int64_t num_hidden_layers = 2;
  std::int64_t num_attention_heads = 2;
  std::int64_t intermediate_size = 0;  // 0: 4 * hidden
  std::int64_t max_position_embeddings = 512;
  std::string position_init = "normal";  // "normal" | "sinusoids"
  double dropout = 0.1, attention_dropout = 0.1, classifier_dropout = 0.1;
  bool gradient_checkpointing = false;
  bool operator==(const ModelConfig&) const = default;
};
// Declares the keys.
void VisitKeys(ModelConfig& config, ConfigVisitor& visitor);

}  // namespace troop
