// Files of linear models: what is written is read, and damage is named.
#include "learners/linear/model/linear_model_folder.h"

#include <gmock/gmock.h>

#include <cstring>
#include <limits>

#include "core/base/philox.h"
#include "nn/io/safetensors.h"

namespace troop {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::string_view kTexts[] = {"a good film", "a bad film\\"};

// A model of random weights over the n-grams of kTexts.
LinearModelParts ModelOf(const NgramOptions& options, std::vector<std::string> labels) {
  auto made = NgramVectorizer::Fit(options, kTexts);
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  LinearModelParts model{.labels = std::move(labels), .vectorizer = *std::move(made)};
  model.form = {.features = model.vectorizer->width(),
                .outputs = model.labels.size() == 2 ? 1 : std::ssize(model.labels),
                .loss = LinearLoss::kSquaredHinge};
  Rng rng({2, Purpose::kHoldout, 0, 0});
  for (std::int64_t i = 0; i < model.form.rows() * model.form.outputs; ++i)
    model.weights.push_back(float(rng.Uniform() - 0.5));
  return model;
}

// The bytes of a file; a missing one is a failure of the test.
std::string TextOf(Storage* storage, const std::string& path) {
  const auto bytes = storage->Read(path, 1 << 20);
  EXPECT_TRUE(bytes.ok()) << path;
  return bytes.ok() ? std::string(bytes->text()) : "";
}

// Writes to the folder "model", as a run does.
void Write(const LinearModelParts& model, Storage* storage) {
  const Status written = WriteLinearModel(model, "model", storage);
  ASSERT_TRUE(written.ok()) << written.ToString();
}

// Words, hashed characters with idf, and n-grams that contain line ends and backslashes.
TEST(LinearModelFolderTest, ModelIsReadAsItWasWritten) {
  const NgramOptions cases[] = {
      {.ngram_max = 2, .word_length_min = 1, .binary = true},
      {.analyzer = NgramAnalyzer::kChar, .ngram_max = 3, .n_features = 16, .use_idf = true},
      {.analyzer = NgramAnalyzer::kCharWb,
       .lowercase = false,
       .use_idf = true,
       .sublinear_tf = true,
       .norm = RowNorm::kL2}};
  for (const NgramOptions& options : cases) {
    for (const auto& labels : {std::vector<std::string>{"no", "yes"}, {"a", "b\"", "ü"}}) {
      const auto storage = MakeMemoryStorage();
      const LinearModelParts model = ModelOf(options, labels);
      Write(model, storage.get());
      const auto read = ReadLinearModel("model", storage.get());
      ASSERT_TRUE(read.ok()) << read.status().ToString();
      EXPECT_EQ(read->weights, model.weights);
      EXPECT_EQ(read->labels, labels);
      EXPECT_EQ(read->form.outputs, model.form.outputs);
      EXPECT_EQ(read->form.loss, LinearLoss::kSquaredHinge);
      ASSERT_TRUE(read->vectorizer.has_value());
      EXPECT_EQ(read->vectorizer->terms(), model.vectorizer->terms());
      SparseRows rows{.width = model.form.features}, same = rows;
      for (const std::string_view text : {"A good bad film", "film\\", ""}) {
        model.vectorizer->Transform(text, &rows);
        read->vectorizer->Transform(text, &same);
      }
      EXPECT_EQ(rows, same);
    }
  }
}

// A character n-gram may be a line end.
// A file of terms has one line per column.
TEST(LinearModelFolderTest, TermsWithLineEndsStayOnOneLine) {
  const std::string_view texts[] = {"a\nb", "c\rd\\"};
  const auto made = NgramVectorizer::Fit({.analyzer = NgramAnalyzer::kChar}, texts);
  ASSERT_TRUE(made.ok());
  LinearModelParts model{.labels = {"no", "yes"}, .vectorizer = *made};
  model.form.features = made->width();
  model.weights.resize(std::size_t(model.form.rows()));
  const auto storage = MakeMemoryStorage();
  Write(model, storage.get());
  EXPECT_EQ(TextOf(storage.get(), "model/terms.txt"), "\\n\n\\r\n\\\\\na\nb\nc\nd\n");
  const auto read = ReadLinearModel("model", storage.get());
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_THAT(read->vectorizer->terms(), ElementsAre("\n", "\r", "\\", "a", "b", "c", "d"));
}

// The tensors of torch.nn.Linear: weight [outputs, features] and bias [outputs].
TEST(LinearModelFolderTest, WeightsHaveTheLayoutOfTorch) {
  LinearModelParts model{.problem = ProblemType::kMultiLabel, .labels = {"x", "y"}};
  model.form = {.features = 3, .outputs = 2, .loss = LinearLoss::kLog};
  model.weights = {1, 2, 3, 4, 5, 6, 7, 8};
  const auto storage = MakeMemoryStorage();
  Write(model, storage.get());
  const auto bytes = storage->Read("model/model.safetensors", 1 << 20);
  ASSERT_TRUE(bytes.ok());
  const auto file = DecodeSafetensors(*bytes);
  ASSERT_TRUE(file.ok());
  const ConstTensor& weight = file->tensors.at("weight");
  EXPECT_EQ(weight.spec(), (TensorSpec{DType::kF32, {2, 3}}));
  EXPECT_THAT(weight.as<float>(), ElementsAre(1, 3, 5, 2, 4, 6));
  EXPECT_THAT(file->tensors.at("bias").as<float>(), ElementsAre(7, 8));
  // Features of svmlight files have no terms.
  EXPECT_FALSE(storage->Exists("model/terms.txt"));
  const auto read = ReadLinearModel("model", storage.get());
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->weights, model.weights);
  EXPECT_EQ(read->problem, ProblemType::kMultiLabel);
  EXPECT_FALSE(read->vectorizer.has_value());
}

// Replaces a part of a file, and expects a message that names file and cause.
TEST(LinearModelFolderTest, DamagedFilesAreNamed) {
  struct Case {
    const char *file, *from, *to, *message;
  };
  const Case cases[] = {
      {"config.json", "troop_linear", "bert", "config.json: \"model_type\" is not"},
      {"config.json", "{", "", "is not \"troop_linear\""},
      {"config.json", "squared_hinge", "hinge", "\"loss\" is \"hinge\", which is unknown"},
      {"config.json", "\"1\": \"yes\"", "\"2\": \"yes\"", "config.json"},
      {"config.json", ", \"1\": \"yes\"", "", "\"id2label\" has 1 labels"},
      {"config.json", "\"num_features\": 4", "\"num_features\": 0", "must be from 1 to"},
      {"config.json", "\"num_features\": 4", "\"num_features\": 5",
       "model.safetensors: \"weight\" is f32[1, 4], must be f32[1, 5]"},
      {"config.json", "\"binary\": false, ", "", "\"features\": \"binary\" is missing"},
      {"config.json", "[1, 1]", "[1]", "\"ngram_range\" is not a list of two integers"},
      {"config.json", "[1, 1]", "[2, 1]", "ngram_range is [2, 1]"},
      {"config.json", "\"n_features\": 0", "\"n_features\": 5", "5 columns, but the model has 4"},
      {"terms.txt", "bad", "z", "terms.txt: term 3 is not greater"},
      {"terms.txt", "bad", "b\\d", "terms.txt: line 2: a backslash before 'd'"},
      {"terms.txt", "good\n", "good", "line 4 has no end: the file is truncated"},
      {"terms.txt", "good\n", "", "3 columns, but the model has 4 features"}};
  for (const Case& c : cases) {
    const auto storage = MakeMemoryStorage();
    Write(ModelOf({.word_length_min = 1}, {"no", "yes"}), storage.get());
    const std::string path = std::string("model/") + c.file;
    std::string text = TextOf(storage.get(), path);
    const std::size_t at = text.find(c.from);
    ASSERT_NE(at, text.npos) << c.from << " in " << text;
    ASSERT_TRUE(storage->WriteAtomic(path, text.replace(at, std::strlen(c.from), c.to)).ok());
    const auto read = ReadLinearModel("model", storage.get());
    ASSERT_FALSE(read.ok()) << c.message;
    EXPECT_THAT(read.status().message(), HasSubstr(c.message));
  }
}

// A weight that is not finite, and each file missing in turn.
TEST(LinearModelFolderTest, MissingFilesAndBadWeightsAreNamed) {
  for (const std::string file : {"config.json", "terms.txt", "model.safetensors"}) {
    const auto storage = MakeMemoryStorage();
    Write(ModelOf({}, {"no", "yes"}), storage.get());
    ASSERT_TRUE(storage->Remove("model/" + file).ok());
    const auto read = ReadLinearModel("model", storage.get());
    EXPECT_EQ(read.status().code(), Code::kNotFound);
    EXPECT_THAT(read.status().message(), HasSubstr(file));
  }
  const auto storage = MakeMemoryStorage();
  LinearModelParts model = ModelOf({}, {"no", "yes"});
  model.weights.back() = std::numeric_limits<float>::infinity();
  Write(model, storage.get());
  EXPECT_THAT(ReadLinearModel("model", storage.get()).status().message(),
              HasSubstr("\"bias\" has a value that is not finite"));
}

}  // namespace
}  // namespace troop
