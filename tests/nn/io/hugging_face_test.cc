#include "nn/io/hugging_face.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "core/storage/storage.h"
#include "tests/nn/transformer_bench.h"

namespace troop {
namespace {

using test::ReadFixture;
using test::ReadTensors;
using test::TinyTransformer;
using test::TransformerBench;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, text.npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(HuggingFaceTest, ReadsTransformersConfigs) {
  const auto bert = ParseTransformerConfig(ReadFixture("bert/config.json"));
  ASSERT_TRUE(bert.ok()) << bert.status().ToString();
  TransformerConfig expected = TinyTransformer(TransformerConfig::Family::kBert, 0.1f);
  expected.deviation = 0.02f;
  EXPECT_EQ(bert->config, expected);
  EXPECT_EQ(bert->classes, 3);
  const auto albert = ParseTransformerConfig(ReadFixture("albert/config.json"));
  ASSERT_TRUE(albert.ok()) << albert.status().ToString();
  expected = TinyTransformer(TransformerConfig::Family::kAlbert, 0);
  expected.classifier_dropout = 0.1f;
  expected.deviation = 0.02f;
  EXPECT_EQ(albert->config, expected);
}

TEST(HuggingFaceTest, RoundTripsConfig) {
  for (const TransformerConfig::Family family :
       {TransformerConfig::Family::kBert, TransformerConfig::Family::kAlbert}) {
    for (const auto head :
         {TransformerHead::kPooled, TransformerHead::kClassifier, TransformerHead::kMaskedLm}) {
      const TransformerOptions options{TinyTransformer(family, 0.3f), head, 7};
      const auto read = ParseTransformerConfig(TransformerConfigJson(options));
      ASSERT_TRUE(read.ok()) << read.status().ToString();
      EXPECT_EQ(read->config, options.config);
      EXPECT_EQ(read->head, head);
      EXPECT_EQ(read->classes, 7);
    }
  }
}

TEST(HuggingFaceTest, RejectsUnsupportedConfigs) {
  const std::string bert = ReadFixture("bert/config.json"),
                    albert = ReadFixture("albert/config.json");
  const auto error = [](const std::string& text) {
    const auto read = ParseTransformerConfig(text);
    return read.ok() ? std::string("ok") : read.status().ToString();
  };
  EXPECT_THAT(error("{"), HasSubstr("data_loss"));
  EXPECT_THAT(error("[]"), HasSubstr("data_loss"));
  EXPECT_THAT(error(Replaced(bert, "\"bert\"", "\"gpt2\"")), HasSubstr("only bert and albert"));
  EXPECT_THAT(error(Replaced(bert, "\"gelu\"", "\"relu\"")), HasSubstr("\"relu\""));
  EXPECT_THAT(error(Replaced(bert, "\"hidden_size\": 32", "\"hidden_size\": -32")),
              HasSubstr("hidden size = -32"));
  EXPECT_THAT(error(Replaced(bert, "\"hidden_size\"", "\"size\"")), HasSubstr("hidden_size"));
  EXPECT_THAT(error(Replaced(bert, "\"vocab_size\": 40", "\"vocab_size\": 1e300")),
              HasSubstr("vocab_size"));
  EXPECT_THAT(error(Replaced(bert, "\"layer_norm_eps\": 1e-12", "\"layer_norm_eps\": \"x\"")),
              HasSubstr("layer_norm_eps"));
  EXPECT_THAT(error(Replaced(albert, "\"num_hidden_groups\": 1", "\"num_hidden_groups\": 2")),
              HasSubstr("num_hidden_groups"));
  EXPECT_THAT(error(Replaced(bert, "\"is_decoder\"",
                             "\"position_embedding_type\": "
                             "\"relative_key\", \"is_decoder\"")),
              HasSubstr("relative_key"));
  EXPECT_THAT(error(Replaced(bert, "\"is_decoder\": false", "\"is_decoder\": true")),
              HasSubstr("\"is_decoder\" is true: only encoders"));
  // Former fault: a value of another type counted as the one that is supported.
  EXPECT_THAT(error(Replaced(bert, "\"is_decoder\": false", "\"is_decoder\": 1")),
              HasSubstr("\"is_decoder\" is neither true nor false"));
  EXPECT_THAT(error(Replaced(bert, "\"id2label\"", "\"id2label\": [\"bad\"], \"labels\"")),
              HasSubstr("\"id2label\" is not an object"));
  for (const char* const more :
       {"\"pruned_heads\": {\"0\": [1]}", "\"pruned_heads\": [1]", "\"auto_map\": {\"a\": \"b\"}",
        "\"quantization_config\": {\"bits\": 4}"}) {
    EXPECT_THAT(error(Replaced(bert, "{", std::string("{") + more + ",")),
                HasSubstr("meaning of the weights"));
  }
}

TEST(HuggingFaceTest, RoundTripsFolder) {
  TransformerBench bench({.config = TinyTransformer(TransformerConfig::Family::kAlbert)});
  const auto storage = MakeMemoryStorage();
  ASSERT_TRUE(WritePretrained(storage.get(), "a/b",
                              {TinyTransformer(TransformerConfig::Family::kAlbert)}, *bench.module,
                              bench.value)
                  .ok());
  const auto read = ReadPretrained(storage.get(), "a/b");
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->options.config, TinyTransformer(TransformerConfig::Family::kAlbert));
  std::vector<float> value(bench.value.size(), 0.0f);
  const auto loaded = LoadWeights(*bench.module, read->weights, value);
  ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  EXPECT_THAT(loaded->unused, IsEmpty());
  EXPECT_EQ(value, bench.value);
  EXPECT_EQ(ReadPretrained(storage.get(), "nowhere").status().code(), Code::kNotFound);
  ASSERT_TRUE(storage->WriteAtomic("a/b/model.safetensors", "short").ok());
  EXPECT_THAT(ReadPretrained(storage.get(), "a/b").status().message(), HasSubstr("a/b/model"));
}

// A pretrained encoder under a new head, and a name of each old kind.
TEST(HuggingFaceTest, ReadsEncoderAloneAndOldNames) {
  TransformerBench bench(
      {.config = TinyTransformer(TransformerConfig::Family::kBert), .classes = 3});
  const std::vector<float> initial = bench.value;
  const TensorFile file = ReadTensors("bert/model.safetensors");
  TensorFile old;
  for (const auto& [name, tensor] : file.tensors) {
    if (name.starts_with("classifier")) continue;
    std::string then = name.substr(5);  // without "bert."
    if (then.ends_with("LayerNorm.weight")) then = then.substr(0, then.size() - 6) + "gamma";
    if (then.ends_with("LayerNorm.bias")) then = then.substr(0, then.size() - 4) + "beta";
    old.tensors[then] = tensor;
  }
  old.tensors["embeddings.position_ids"] = Tensor(DType::kI64, {1, 20});
  old.tensors["cls.seq_relationship.bias"] = Tensor(DType::kF32, {2});
  const auto loaded = LoadWeights(*bench.module, old, bench.value);
  ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  EXPECT_THAT(loaded->fresh, ElementsAre("classifier.weight", "classifier.bias"));
  EXPECT_THAT(loaded->unused, ElementsAre("cls.seq_relationship.bias"));
  EXPECT_EQ(DescribeUnused(*loaded), "") << "of another head";
  old.tensors["encoder.layer.7.output.dense.bias"] = Tensor(DType::kF32, {2});
  EXPECT_EQ(DescribeUnused(*LoadWeights(*bench.module, old, bench.value)),
            "1 tensor of the encoder has no counterpart in the model of config.json: "
            "encoder.layer.7.output.dense.bias");
  std::vector<float> usual = initial;
  ASSERT_TRUE(LoadWeights(*bench.module, file, usual).ok());
  const auto head = std::size_t(bench.module->params().end()[-2].offset);
  EXPECT_TRUE(std::equal(usual.begin(), usual.begin() + std::ptrdiff_t(head), bench.value.begin()));
  EXPECT_TRUE(std::equal(initial.begin() + std::ptrdiff_t(head), initial.end(),
                         bench.value.begin() + std::ptrdiff_t(head)));
}

TEST(HuggingFaceTest, RejectsMismatchedWeights) {
  TransformerBench bench(
      {.config = TinyTransformer(TransformerConfig::Family::kBert), .classes = 3});
  const TensorFile good = ReadTensors("bert/model.safetensors");
  const std::string name = "bert.encoder.layer.1.intermediate.dense.weight";
  const auto error = [&](const ConstTensor& tensor) {
    TensorFile file = good;
    file.tensors[name] = tensor;
    if (tensor.empty()) file.tensors.erase(name);
    return LoadWeights(*bench.module, file, bench.value).status().ToString();
  };
  EXPECT_THAT(error({}), HasSubstr("has no tensor \"" + name));
  EXPECT_THAT(error(Tensor(DType::kF32, {32, 48})), HasSubstr("is [32, 48], the model needs"));
  EXPECT_THAT(error(Tensor(DType::kI32, {48, 32})), HasSubstr("i32: only f32 and bf16"));
  Tensor bad(DType::kF32, {48, 32});
  bad.data<float>()[77] = std::numeric_limits<float>::infinity();
  EXPECT_THAT(error(bad), HasSubstr("data_loss"));
  EXPECT_EQ(error(Tensor(DType::kF32, {48, 32})), "ok");
}

}  // namespace
}  // namespace troop
