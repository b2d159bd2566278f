// The first weights of a run from folders that the package transformers wrote.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "learners/supervised/supervised.h"
#include "nn/models/model.h"
#include "nn/models/text_model.h"
#include "tests/learners/supervised_fixture.h"

namespace troop {
namespace {

// The settings of the tiny models of tools/make_transformer_fixtures.py.
TrainingConfig TinyConfig(const std::string& family) {
  TrainingConfig config = test::SupervisedConfig("bert");
  ModelConfig& m = config.model;
  m.architecture = *ParseEnum<ModelArchitecture>(family);
  m.pretrained = TROOP_SOURCE_DIR "/tests/fixtures/transformers/" + family;
  m.vocab_size = 40;
  m.max_position_embeddings = family == "roberta" ? 22 : 20;
  if (family == "bert" || family == "albert") {
    m.embedding_size = family == "albert" ? 16 : 0;
  } else {
    m.hidden_size = 16;
    m.intermediate_size = 24;
    m.embedding_size = family == "electra" ? 24 : 0;
    m.hidden_act = family == "distilbert" ? HiddenActivation::kGelu : HiddenActivation::kGeluNew;
  }
  return config;
}

// The files have three classes, a run of reviews has two. Every other parameter is read.
TEST(PretrainedTest, OnlyLastLayerOfOtherClassesStartsAtRandomValues) {
  for (const std::string family : {"bert", "albert", "roberta", "distilbert", "electra"}) {
    TrainingConfig config = TinyConfig(family);
    const auto module = MakeTextModel(ModelSetupOf(config));
    ASSERT_TRUE(module.ok()) << module.status().ToString();
    std::vector<float> value(std::size_t(ParameterCount(**module))), random = value;
    const Status read = FirstWeights(config, **module, value);
    ASSERT_TRUE(read.ok()) << read.ToString();
    config.model.pretrained = "";
    ASSERT_TRUE(FirstWeights(config, **module, random).ok());
    std::set<std::string> fresh;
    for (const ParamSpec& spec : (*module)->params()) {
      const auto first = value.begin() + spec.offset;
      if (std::equal(first, first + spec.shape.elements(), random.begin() + spec.offset))
        fresh.insert(spec.name);
    }
    const bool deep = family == "roberta" || family == "electra";
    const std::string last = deep ? "classifier.out_proj" : "classifier";
    EXPECT_EQ(fresh, (std::set<std::string>{last + ".bias", last + ".weight"})) << family;
  }
}

// Constants of the layers are compared like sizes.
TEST(PretrainedTest, RejectsOtherConstants) {
  TrainingConfig config = TinyConfig("roberta");
  config.model.layer_norm_eps = 1e-12;
  EXPECT_EQ(CheckFirstWeights(config).code(), Code::kInvalidArgument);
  config.model.layer_norm_eps = 1e-5;
  EXPECT_TRUE(CheckFirstWeights(config).ok()) << CheckFirstWeights(config).ToString();
  config.model.hidden_act = HiddenActivation::kGelu;
  EXPECT_EQ(CheckFirstWeights(config).code(), Code::kInvalidArgument);
}

// ELECTRA maps its embeddings, if they have another size.
TEST(PretrainedTest, CountsProductsOfTheMap) {
  TrainingConfig config = TinyConfig("electra");
  const TextBatch batch{.ids = {1, 2, 3}, .starts = {0, 3}, .labels = {0}};
  const double wide = TrainingFlops(config, batch, LastLayer::kFromQueriesOn);
  config.model.embedding_size = 0;
  EXPECT_EQ(wide - TrainingFlops(config, batch, LastLayer::kFromQueriesOn), 3 * 2 * 3 * 24 * 16);
}

}  // namespace
}  // namespace troop
