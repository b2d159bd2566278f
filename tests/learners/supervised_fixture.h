#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "core/storage/json.h"
#include "learners/training_config.h"

// Output of tools/make_supervised_fixtures.py: models, reviews, and PyTorch's results on them.
namespace troop::test {

inline std::string SupervisedFixture(const std::string& name) {
  return TROOP_SOURCE_DIR "/tests/fixtures/supervised/" + name;
}

inline std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

inline const JsonValue& SupervisedExpected() {
  static const JsonValue* const json = [] {
    auto parsed = ParseJson(ReadText(SupervisedFixture("expected.json")));
    EXPECT_TRUE(parsed.ok()) << parsed.status().ToString();
    return new JsonValue(*std::move(parsed));
  }();
  return *json;
}

// The constants of that script, as a config; family: "bert" or "albert".
inline TrainingConfig SupervisedConfig(const std::string& family) {
  TrainingConfig config;
  config.learner.algorithm = AlgorithmKind::kClassifier;
  config.learner.batch_size = 12;
  config.run.epochs = 50;
  config.run.max_updates = 50;
  config.learner.max_grad_norm = 1;
  config.optimizer.type = OptimizerType::kAdam;
  config.optimizer.learning_rate = 2e-3;
  config.optimizer.warmup_ratio = 0.2;
  config.optimizer.final_lr_fraction = 0.1;
  config.optimizer.weight_decay = 0.5;
  config.evaluator_enabled = false;
  config.data.reviews = SupervisedFixture("reviews.csv");
  config.data.vocabulary = SupervisedFixture("vocab.txt");
  config.data.max_length = 16;
  config.data.cache = "";
  config.model.architecture = *ParseEnum<ModelArchitecture>(family);
  config.model.pretrained = SupervisedFixture(family);
  config.model.vocab_size = 47;
  config.model.hidden_size = 32;
  config.model.embedding_size = family == "albert" ? 16 : 0;
  config.model.num_hidden_layers = 2;
  config.model.num_attention_heads = 4;
  config.model.intermediate_size = 48;
  config.model.max_position_embeddings = 24;
  config.model.dropout = config.model.attention_dropout = config.model.classifier_dropout = 0;
  return config;
}

}  // namespace troop::test
