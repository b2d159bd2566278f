#include "nn/io/hugging_face.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "core/storage/storage.h"
#include "tests/nn/transformer_bench.h"

namespace troop {
namespace {

using test::kFamilies;
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
  // Those of the other families are smaller.
  for (const auto family :
       {TransformerConfig::Family::kRoberta, TransformerConfig::Family::kDistilBert,
        TransformerConfig::Family::kElectra}) {
    const auto read =
        ParseTransformerConfig(ReadFixture(std::string(NameOf(family)) + "/config.json"));
    ASSERT_TRUE(read.ok()) << read.status().ToString();
    const bool distil = family == TransformerConfig::Family::kDistilBert;
    const bool roberta = family == TransformerConfig::Family::kRoberta;
    expected = TinyTransformer(family, 0.1f);
    expected.hidden = 16, expected.intermediate = 24, expected.deviation = 0.02f;
    expected.embedding = family == TransformerConfig::Family::kElectra ? 24 : 16;
    if (distil) expected.classifier_dropout = 0.2f;
    if (roberta) expected.epsilon = 1e-5f;
    expected.gelu = distil ? GeluForm::kErf : GeluForm::kTanh;
    EXPECT_EQ(read->config, expected) << NameOf(family);
    EXPECT_EQ(read->head, TransformerHead::kClassifier);
    EXPECT_EQ(read->classes, 3);
    EXPECT_EQ(LengthMax(read->config), 20);
  }
}

TEST(HuggingFaceTest, RoundTripsConfig) {
  for (const TransformerConfig::Family family : kFamilies) {
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

TEST(HuggingFaceTest, RoundTripsLabelsAndProblemType) {
  TransformerOptions options{TinyTransformer(TransformerConfig::Family::kBert, 0.3f),
                             TransformerHead::kClassifier, 3};
  options.labels = {"anger", "joy \"\\", "Ärger"};
  for (const ProblemType problem : {ProblemType::kSingleLabel, ProblemType::kMultiLabel}) {
    options.problem_type = problem;
    const auto read = ParseTransformerConfig(TransformerConfigJson(options));
    ASSERT_TRUE(read.ok()) << read.status().ToString();
    EXPECT_EQ(read->labels, options.labels);
    EXPECT_EQ(read->problem_type, problem);
  }
  // One output without the key is a regression, as in transformers.
  options = {options.config, TransformerHead::kClassifier, 1};
  options.problem_type = ProblemType::kRegression;
  std::string json = TransformerConfigJson(options);
  EXPECT_THAT(json, HasSubstr("\"problem_type\": \"regression\""));
  json.erase(json.find(", \"problem_type\""),
             std::string(", \"problem_type\": \"regression\"").size());
  EXPECT_EQ(ParseTransformerConfig(json)->problem_type, ProblemType::kRegression);
  EXPECT_EQ(ParseTransformerConfig(json)->classes, 1);
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
  EXPECT_THAT(error(Replaced(bert, "\"bert\"", "\"gpt2\"")),
              HasSubstr("only bert, albert, roberta, distilbert and electra"));
  EXPECT_THAT(error(Replaced(bert, "\"gelu\"", "\"relu\"")), HasSubstr("\"relu\""));
  const std::string roberta = ReadFixture("roberta/config.json"),
                    distil = ReadFixture("distilbert/config.json"),
                    electra = ReadFixture("electra/config.json");
  EXPECT_THAT(error(Replaced(distil, "\"gelu\"", "\"relu\"")),
              HasSubstr("\"activation\" is \"relu"));
  EXPECT_THAT(error(Replaced(distil, "\"dim\": 16", "\"dim\": 24")), HasSubstr("= 24"));
  EXPECT_THAT(error(Replaced(roberta, "\"pad_token_id\": 1", "\"pad_token_id\": 0")),
              HasSubstr("\"pad_token_id\" is 0: only 1"));
  EXPECT_THAT(
      error(Replaced(roberta, "\"max_position_embeddings\": 22", "\"max_position_embeddings\": 2")),
      HasSubstr("Roberta's number of positions = 2: needs at least 3"));
  EXPECT_THAT(error(Replaced(electra, "\"embedding_size\"", "\"size\"")),
              HasSubstr("embedding_size"));
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
  EXPECT_THAT(error(Tensor(DType::kI32, {48, 32})), HasSubstr("i32: only f32, f16 and bf16"));
  Tensor bad(DType::kF32, {48, 32});
  bad.data<float>()[77] = std::numeric_limits<float>::infinity();
  EXPECT_THAT(error(bad), HasSubstr("data_loss"));
  EXPECT_EQ(error(Tensor(DType::kF32, {48, 32})), "ok");
}

// Tensors that are written equal those of transformers, byte for byte.
TEST(HuggingFaceTest, WritesTensorsOfTransformersUnchanged) {
  for (const TransformerConfig::Family family : kFamilies) {
    const std::string folder = NameOf(family);
    const auto options = ParseTransformerConfig(ReadFixture(folder + "/config.json"));
    ASSERT_TRUE(options.ok()) << options.status().ToString();
    TransformerBench bench(*options);
    const TensorFile file = ReadTensors(folder + "/model.safetensors");
    const auto loaded = LoadWeights(*bench.module, file, bench.value);
    ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
    EXPECT_THAT(loaded->fresh, IsEmpty());
    EXPECT_THAT(loaded->unused, IsEmpty());
    const auto storage = MakeMemoryStorage();
    ASSERT_TRUE(WritePretrained(storage.get(), "", *options, *bench.module, bench.value).ok());
    const auto read = ReadPretrained(storage.get(), "");
    ASSERT_TRUE(read.ok()) << read.status().ToString();
    EXPECT_EQ(read->options.config, options->config);
    ASSERT_EQ(read->weights.tensors.size(), file.tensors.size());
    for (const auto& [name, tensor] : read->weights.tensors) {
      const ConstTensor& original = file.tensors.at(name);
      ASSERT_EQ(original.dtype(), DType::kBF16);
      const auto written = tensor.as<float>();
      const auto* const halves = reinterpret_cast<const std::uint16_t*>(original.bytes().data());
      for (std::size_t i = 0; i < written.size(); ++i)
        ASSERT_EQ(std::bit_cast<std::uint32_t>(written[i]), std::uint32_t(halves[i]) << 16) << name;
    }
  }
}

// The encoders of the other families without their prefix, with gamma and beta.
TEST(HuggingFaceTest, ReadsOldNamesOfEveryFamily) {
  for (const TransformerConfig::Family family : kFamilies) {
    const std::string folder = NameOf(family), prefix = folder + ".";
    const auto options = ParseTransformerConfig(ReadFixture(folder + "/config.json"));
    TransformerBench usual(*options), old(*options);
    const TensorFile file = ReadTensors(folder + "/model.safetensors");
    TensorFile renamed;
    for (const auto& [name, tensor] : file.tensors) {
      std::string then = name.starts_with(prefix) ? name.substr(prefix.size()) : name;
      if (then.ends_with("orm.weight")) then = then.substr(0, then.size() - 6) + "gamma";
      if (then.ends_with("orm.bias")) then = then.substr(0, then.size() - 4) + "beta";
      renamed.tensors[then] = tensor;
    }
    ASSERT_TRUE(LoadWeights(*usual.module, file, usual.value).ok());
    const auto loaded = LoadWeights(*old.module, renamed, old.value);
    ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
    EXPECT_THAT(loaded->fresh, IsEmpty()) << folder;
    EXPECT_EQ(usual.value, old.value) << folder;
  }
}

TEST(HuggingFaceTest, NamesUnusedLayersOfEveryFamily) {
  for (const TransformerConfig::Family family : kFamilies) {
    const std::string folder = NameOf(family);
    auto options = ParseTransformerConfig(ReadFixture(folder + "/config.json"));
    if (family == TransformerConfig::Family::kAlbert) continue;  // has one layer
    options->config.layers = 1;
    TransformerBench bench(*options);
    const auto loaded =
        LoadWeights(*bench.module, ReadTensors(folder + "/model.safetensors"), bench.value);
    ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
    EXPECT_THAT(DescribeUnused(*loaded), HasSubstr("16 tensors of the encoder")) << folder;
  }
}

// A copy of the decoder is read only if it changes nothing.
TEST(HuggingFaceTest, RejectsDecodersThatAreNotTied) {
  for (const TransformerConfig::Family family : kFamilies) {
    const std::string folder = NameOf(family);
    const TransformerOptions options{TinyTransformer(family), TransformerHead::kMaskedLm};
    TransformerBench bench(options);
    const std::string words = folder + ".embeddings.word_embeddings.weight";
    const char* const decoders[] = {"cls.predictions.decoder.weight", "predictions.decoder.weight",
                                    "lm_head.decoder.weight", "vocab_projector.weight",
                                    "generator_lm_head.weight"};
    const std::string decoder = decoders[int(family)];
    TensorFile file = SaveWeights(*bench.module, bench.value);
    file.tensors[decoder] = file.tensors.at(words);
    const auto loaded = LoadWeights(*bench.module, file, bench.value);
    ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
    EXPECT_THAT(loaded->unused, IsEmpty());
    const auto storage = MakeMemoryStorage();
    const auto write = [&] {
      ASSERT_TRUE(storage->WriteAtomic("model.safetensors", EncodeSafetensors(file).bytes()).ok());
      const std::string config =
          Replaced(TransformerConfigJson(options), "{", "{\"tie_word_embeddings\": false, ");
      ASSERT_TRUE(storage->WriteAtomic("config.json", config).ok());
    };
    write();
    EXPECT_TRUE(ReadPretrained(storage.get(), "").ok());
    file.tensors[decoder] = Tensor(DType::kF32, file.tensors.at(words).shape());
    EXPECT_THAT(LoadWeights(*bench.module, file, bench.value).status().message(),
                HasSubstr(decoder + "\" differs from \"" + words));
    file.tensors.erase(decoder);
    write();
    EXPECT_THAT(ReadPretrained(storage.get(), "").status().message(),
                HasSubstr("the file has no tensor \"" + decoder));
  }
}

}  // namespace
}  // namespace troop
