// Text models as ONNX models: equal to Troop's modules, whatever the padding is.
#include "nn/export/onnx_text_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "core/storage/json.h"
#include "core/storage/read_file.h"
#include "nn/io/hugging_face.h"
#include "nn/models/text_model.h"
#include "tests/core/temp_folder.h"
#include "tests/nn/transformer_bench.h"

namespace troop {
namespace {

using testing::HasSubstr;

struct TextCase {
  std::string name;
  ModelSetup setup;
};

// Sizes that differ from each other, so that a confusion of two of them fails.
std::vector<TextCase> TextCases() {
  std::vector<TextCase> cases;
  const auto add = [&](const std::string& name, ModelArchitecture architecture,
                       const auto& change) {
    ModelSetup setup;
    setup.algorithm = AlgorithmKind::kClassifier;
    setup.model.architecture = architecture;
    setup.model.vocab_size = 40;
    setup.model.hidden_size = 32;
    setup.model.num_attention_heads = 4;
    setup.model.max_position_embeddings = 16;
    change(&setup.model);
    cases.push_back({name, setup});
  };
  add("bert", ModelArchitecture::kBert, [](ModelConfig* m) { m->intermediate_size = 24; });
  add("bert_one_layer", ModelArchitecture::kBert, [](ModelConfig* m) {
    m->num_hidden_layers = 1;
    m->num_attention_heads = 1;
  });
  add("albert", ModelArchitecture::kAlbert, [](ModelConfig* m) {
    m->num_hidden_layers = 3;
    m->embedding_size = 16;
  });
  add("bert_four_classes", ModelArchitecture::kBert, [](ModelConfig* m) {
    m->labels = {"a", "b", "c", "d"};
  });
  add("albert_labels", ModelArchitecture::kAlbert, [](ModelConfig* m) {
    m->problem_type = ProblemType::kMultiLabel;
    m->labels = {"a", "b", "c"};
  });
  add("lstm_number", ModelArchitecture::kLstm, [](ModelConfig* m) {
    m->problem_type = ProblemType::kRegression;
    m->hidden_size = 8;
  });
  for (const ModelArchitecture family :
       {ModelArchitecture::kRoberta, ModelArchitecture::kDistilBert, ModelArchitecture::kElectra}) {
    // RoBERTa's table has two rows that are not the position of a first token; ELECTRA's embeddings
    // are mapped only if their size differs.
    const auto change = [family](ModelConfig* m) {
      m->intermediate_size = 24;
      if (family == ModelArchitecture::kRoberta) m->max_position_embeddings = 18;
      if (family == ModelArchitecture::kElectra) m->embedding_size = 16;
    };
    const std::string name(EnumName(family));
    add(name, family, change);
    // The heads of words have the exact GELU, whatever the layers have.
    add(name + "_masked", family, [&](ModelConfig* m) {
      change(m);
      m->hidden_act = HiddenActivation::kGeluNew;
    });
    cases.back().setup.algorithm = AlgorithmKind::kMaskedLm;
  }
  add("electra_small_head", ModelArchitecture::kElectra, [](ModelConfig* m) {
    m->problem_type = ProblemType::kMultiLabel;
    m->labels = {"a", "b", "c"};
  });
  add("bert_masked", ModelArchitecture::kBert, [](ModelConfig* m) { m->intermediate_size = 24; });
  cases.back().setup.algorithm = AlgorithmKind::kMaskedLm;
  add("albert_masked", ModelArchitecture::kAlbert, [](ModelConfig* m) {
    m->num_hidden_layers = 3;
    m->embedding_size = 16;
  });
  cases.back().setup.algorithm = AlgorithmKind::kMaskedLm;
  add("lstm", ModelArchitecture::kLstm, [](ModelConfig* m) {
    m->num_hidden_layers = 1;
    m->hidden_size = 10;
  });
  add("lstm_two_layers", ModelArchitecture::kLstm, [](ModelConfig* m) {
    m->hidden_size = 9;
    m->embedding_size = 14;
  });
  return cases;
}

// True if the model has embeddings of segments.
bool HasSegments(const ModelSetup& setup) {
  if (setup.model.architecture == ModelArchitecture::kLstm) return false;
  return TextModelOptions(setup)->config.token_types > 1;
}

bool IsMasked(const ModelSetup& setup) { return setup.algorithm == AlgorithmKind::kMaskedLm; }

// A model with drawn parameters.
struct DrawnModel {
  explicit DrawnModel(const ModelSetup& setup) : bench(*MakeTextModel(setup), IsMasked(setup)) {
    Rng rng({.run_seed = 6});
    for (float& x : bench.value) x += float(0.1 * rng.Normal());
    file = SaveWeights(*bench.module, bench.value);
    // An LSTM has no limit.
    const bool limited = setup.model.architecture != ModelArchitecture::kLstm;
    file.metadata = {{kTextModelKey, JsonObject()
                                         .Add("version", 1)
                                         .Add("model_max_length", limited ? 16 : 0)
                                         .Add("problem_type", EnumName(setup.model.problem_type))
                                         .str()}};
  }
  test::TokenBench bench;
  TensorFile file;
};

// Four reviews, padded to two tokens more than the longest. Padding consists of other words.
constexpr std::int64_t kTokens = 14;
const std::vector<std::int32_t> kLengths = {7, 1, 12, 4};

// Ids, mask and segments. The padding is of segment 1; without segments all are 0.
std::vector<std::int64_t> PaddedInput(const test::TokensByChance& batch, bool segments) {
  const std::size_t rows = kLengths.size(), all = rows * std::size_t(kTokens);
  std::vector<std::int64_t> out(3 * all);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t t = 0; t < std::size_t(kTokens); ++t) {
      const bool token = t < std::size_t(kLengths[r]);
      const std::size_t at = r * std::size_t(kTokens) + t;
      const std::size_t from = std::size_t(batch.starts[r]) + t;
      out[at] = token ? batch.ids[from] : std::int64_t(3 + 5 * t) % 40;
      out[all + at] = token ? 1 : 0;
      if (segments) out[2 * all + at] = token ? batch.types[from] : 1;
    }
  }
  return out;
}

void Write(const std::string& path, std::span<const std::byte> bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), std::streamsize(bytes.size()));
}

// The places whose words a masked language model predicts, in a batch without padding: one at the
// begin of a review, one at an end, and two next to each other.
const std::vector<std::int32_t> kPlaces = {0, 6, 10, 11, 23};

// The logits of the padded batch [review, token, word] at these places.
std::vector<float> LogitsAt(const test::TokensByChance& batch, const std::vector<float>& all,
                            std::size_t words) {
  std::vector<float> out;
  for (const std::int32_t place : kPlaces) {
    const auto review =
        std::size_t(std::ranges::upper_bound(batch.starts, place) - batch.starts.begin() - 1);
    const std::size_t token = std::size_t(place - batch.starts[review]);
    const auto from = all.begin() + std::ptrdiff_t((review * std::size_t(kTokens) + token) * words);
    out.insert(out.end(), from, from + std::ptrdiff_t(words));
  }
  return out;
}

// onnxruntime computes all models in one process (run_onnx.py), which also compares the
// probabilities with the logits.
TEST(OnnxTextModelTest, OnnxRuntimeComputesEqualLogits) {
  const char* const python = std::getenv("TROOP_TEST_PYTHON");
  if (python == nullptr) GTEST_SKIP() << "TROOP_TEST_PYTHON names no Python with onnxruntime";
  const TempFolder folder;
  test::TokensByChance batch(kLengths);
  batch.ids[21] = 1;  // RoBERTa's padding id, which has its own position
  JsonArray models;
  for (const TextCase& c : TextCases()) {
    const auto model = EncodeOnnxTextModel(c.setup, DrawnModel(c.setup).file);
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    Write(folder.path() + "/" + c.name + ".onnx", model->bytes());
    const std::vector<std::int64_t> input = PaddedInput(batch, HasSegments(c.setup));
    Write(folder.path() + "/" + c.name + ".input", std::as_bytes(std::span(input)));
    models.Add(c.name);
  }
  const std::string command =
      fmt::format("{} {}/tests/nn/export/run_onnx.py {} '{}' {} > {}/log 2>&1", python,
                  TROOP_SOURCE_DIR, folder.path(), models.str(), kLengths.size(), folder.path());
  const int status = std::system(command.c_str());
  const std::string log = *ReadFile(folder.path() + "/log", 1 << 20);
  if (status != 0 && WEXITSTATUS(status) == 77) GTEST_SKIP() << log;
  ASSERT_EQ(status, 0) << log;
  for (const TextCase& c : TextCases()) {
    DrawnModel model(c.setup);
    const bool masked = IsMasked(c.setup);
    model.bench.SetBatch(
        {.ids = batch.ids,
         .starts = batch.starts,
         .types = HasSegments(c.setup) ? std::span(batch.types) : std::span<std::int32_t>(),
         .places = masked ? std::span(kPlaces) : std::span<const std::int32_t>()});
    model.bench.Forward();
    const auto want = model.bench.out.as<float>();
    const auto got = ReadFile(folder.path() + "/" + c.name + ".output", 1 << 20);
    ASSERT_TRUE(got.ok()) << got.status().ToString();
    std::vector<float> logits(got->size() / sizeof(float));
    std::memcpy(logits.data(), got->data(), got->size());
    const auto words = std::size_t(c.setup.model.vocab_size);
    if (masked) {
      ASSERT_EQ(logits.size(), kLengths.size() * std::size_t(kTokens) * words);
      logits = LogitsAt(batch, logits, words);
    }
    ASSERT_EQ(logits.size(), want.size()) << c.name;
    for (std::size_t i = 0; i < want.size(); ++i)
      ASSERT_NEAR(logits[i], want[i], 1e-5 * std::max(1.0f, std::abs(want[i]))) << c.name << i;
    // The reviews differ, so that a wrong row would be seen.
    EXPECT_GT(std::abs(want[0] - want[4]), 1e-3) << c.name;
  }
}

TEST(OnnxTextModelTest, OtherModelsAndMissingParametersAreRejected) {
  const TextCase c = TextCases()[0];
  DrawnModel model(c.setup);
  model.file.tensors.erase("bert.encoder.layer.1.attention.self.key.bias");
  EXPECT_THAT(EncodeOnnxTextModel(c.setup, model.file).status().message(),
              HasSubstr("bert.encoder.layer.1.attention.self.key.bias"));
  ModelSetup masked = c.setup;
  masked.algorithm = AlgorithmKind::kMaskedLm;
  EXPECT_THAT(EncodeOnnxTextModel(masked, DrawnModel(c.setup).file).status().message(),
              HasSubstr("no parameter cls.predictions.transform.dense.weight"));
  masked.model.architecture = ModelArchitecture::kLstm;
  EXPECT_THAT(EncodeOnnxTextModel(masked, model.file).status().message(), HasSubstr("masked_lm"));
  ModelSetup agent;
  EXPECT_THAT(EncodeOnnxTextModel(agent, model.file).status().message(), HasSubstr("dqn"));
}

}  // namespace
}  // namespace troop
