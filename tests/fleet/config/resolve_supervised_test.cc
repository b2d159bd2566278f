#include "fleet/config/resolve_supervised.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "fleet/config/config_migration.h"
#include "fleet/config/role_configs.h"
#include "nn/io/hugging_face.h"
#include "nn/models/text_model.h"
#include "tests/core/temp_folder.h"
#include "tests/fleet/supervised_run_config.h"

namespace troop {
namespace {

using test::SupervisedFixture;
using test::SupervisedRunConfig;

// Three learners, and 12 reviews in batches of 5: 3 batches an epoch.
Config SmallRun() {
  Config config = SupervisedRunConfig("bert");
  config.model.pretrained = "";
  config.model.vocab_size = 0;
  config.learner.batch_size = 5;
  config.run.max_updates = 0;
  config.run.epochs = 2.5;
  config.mesh.dp = 3;
  return config;
}

TEST(ResolveSupervisedTest, FillsInSettingsOfDataAndMesh) {
  Config config = SmallRun();
  config.data.reviews = std::filesystem::relative(config.data.reviews).string();
  ASSERT_TRUE(ResolveSupervised(&config).ok());
  EXPECT_EQ(config.model.vocab_size, 47);
  EXPECT_THAT(config.data.text_columns, ::testing::ElementsAre("review"));
  EXPECT_EQ(config.fleet.learners, 3);
  EXPECT_EQ(config.data.reviews,
            std::filesystem::path(SupervisedFixture("reviews.csv")).lexically_normal().string());
  EXPECT_TRUE(std::filesystem::path(config.log.dir).is_absolute());
  EXPECT_EQ(config.run.max_updates, 8);
  EXPECT_EQ(config.run.total_steps, 24 + 10);
  EXPECT_THAT(config.data_identity, ::testing::HasSubstr("12 reviews to learn"));
}

// The config of a resumed run is resolved again.
TEST(ResolveSupervisedTest, ResolvedConfigStaysUnchanged) {
  Config config = SmallRun();
  ASSERT_TRUE(ResolveSupervised(&config).ok());
  const Config resolved = config;
  ASSERT_TRUE(ResolveSupervised(&config).ok());
  EXPECT_EQ(config, resolved);
  config.run.max_updates = 3;
  ASSERT_TRUE(ResolveSupervised(&config).ok());
  EXPECT_EQ(config.run.max_updates, 3);
  EXPECT_EQ(config.run.total_steps, 12);
}

TEST(ResolveSupervisedTest, CountsWorkersOfMesh) {
  Config config = SmallRun();
  config.learner.sync = LearnerSync::kParamServer;
  config.paramserver.mode = SyncMode::kAsync;
  config.paramserver.push_every = config.paramserver.pull_every = 0;
  config.mesh.dp = 0;
  config.mesh.tp = 2;
  config.fleet.learners = 5;
  ASSERT_TRUE(ResolveSupervised(&config).ok());
  EXPECT_EQ(config.mesh.dp, 2);
  EXPECT_EQ(config.fleet.learners, 4);
  EXPECT_EQ(config.paramserver.push_every, 3);
  EXPECT_EQ(config.paramserver.pull_every, 3);
  // Two workers push the gradients of 3 batches each: 8 batches need 16 / 3 pushes, rounded up.
  EXPECT_EQ(config.run.max_updates, 6);
}

TEST(ResolveSupervisedTest, ReplacesIdentityOfOtherData) {
  Config config = SmallRun();
  config.data_identity = "other data";
  ASSERT_TRUE(ResolveSupervised(&config).ok());
  EXPECT_NE(config.data_identity, "other data");
}

TEST(ResolveSupervisedTest, RejectsMissingPretrainedModel) {
  const TempFolder folder;
  Config config = SmallRun();
  config.model.pretrained = folder.path() + "/none";
  const Status refused = ResolveSupervised(&config);
  EXPECT_EQ(refused.code(), Code::kNotFound);
  EXPECT_THAT(refused.message(), ::testing::HasSubstr("/none: no such folder"));
}

// A folder whose config.json is that of a small model, with the given replacements.
class PretrainedKeysTest : public ::testing::Test {
 protected:
  static TransformerOptions Small(TransformerConfig::Family family) {
    using Family = TransformerConfig::Family;
    const bool one_type = family == Family::kRoberta || family == Family::kDistilBert;
    const bool wide = family == Family::kAlbert || family == Family::kElectra;
    return {.config = {.family = family,
                       .vocabulary = 50,
                       .hidden = 48,
                       .embedding = wide ? 16 : 48,
                       .layers = 3,
                       .heads = 6,
                       .intermediate = 80,
                       .positions = 30,
                       .token_types = one_type ? 1 : 2,
                       .gelu = family == Family::kBert ? GeluForm::kTanh : GeluForm::kErf,
                       .epsilon = family == Family::kDistilBert ? 1e-12f : 3e-6f}};
  }
  void Write(const TransformerOptions& options, const std::string& from = "",
             const std::string& to = "") {
    std::string text = TransformerConfigJson(options);
    const std::size_t at = text.find(from);
    ASSERT_NE(at, text.npos) << from;
    std::ofstream(folder_.path() + "/config.json") << text.replace(at, from.size(), to);
  }
  // A run that sets nothing of the model but its folder, and `more`.
  Result<Config> Resolved(const std::string& more = "") {
    const Config small = SmallRun();
    TROOP_ASSIGN_OR_RETURN(
        Config config,
        ParseConfig(
            fmt::format("[evaluator]\nenabled = false\n[learner]\nalgorithm = \"classifier\"\n"
                        "[data]\nreviews = \"{}\"\nvocabulary = \"{}\"\nmax_length = 16\n"
                        "cache = \"\"\n[model]\npretrained = \"{}\"\n{}",
                        small.data.reviews, small.data.vocabulary, folder_.path(), more),
            "run.toml", {}));
    TROOP_RETURN_IF_ERROR(ResolveSupervised(&config));
    return config;
  }
  std::string Error(const std::string& more = "") { return Resolved(more).status().message(); }

  const TempFolder folder_;
};

TEST_F(PretrainedKeysTest, TakesKeysThatAreNotSet) {
  for (const auto family :
       {TransformerConfig::Family::kBert, TransformerConfig::Family::kAlbert,
        TransformerConfig::Family::kRoberta, TransformerConfig::Family::kDistilBert,
        TransformerConfig::Family::kElectra}) {
    const TransformerOptions there = Small(family);
    Write(there);
    const auto config = Resolved();
    ASSERT_TRUE(config.ok()) << config.status().ToString();
    EXPECT_EQ(EnumName(config->model.architecture), NameOf(family));
    EXPECT_EQ(config->model.vocab_size, 50);
    const auto mine = TextModelOptions(ModelSetupOf(*config));
    ASSERT_TRUE(mine.ok()) << mine.status().ToString();
    EXPECT_EQ(mine->config, there.config) << NameOf(family);
    // The run's own config, which a resume reads, says the same.
    auto saved = ParseSavedConfig(ToToml(*config), "config.toml", {});
    ASSERT_TRUE(saved.ok()) << saved.status().ToString();
    EXPECT_EQ(saved->model, config->model);
    ASSERT_TRUE(ResolveSupervised(&*saved).ok());
    EXPECT_EQ(saved->model, config->model);
  }
}

TEST_F(PretrainedKeysTest, AcceptsEqualKeysAndRejectsOthers) {
  Write(Small(TransformerConfig::Family::kElectra));
  EXPECT_EQ(Error("architecture = \"electra\"\nhidden_size = 48\nembedding_size = 16\n"
                  "num_hidden_layers = 3\nnum_attention_heads = 6\nintermediate_size = 80\n"
                  "max_position_embeddings = 30\nhidden_act = \"auto\"\nlayer_norm_eps = 3e-6\n"
                  "vocab_size = 0\n"),
            "");
  const std::pair<const char*, const char*> wrong[] = {
      {"architecture = \"bert\"",
       "model.architecture is \"bert\" (run.toml:12), but \"electra\" in "},
      {"hidden_size = 128", "model.hidden_size is 128 (run.toml:12), but 48 in "},
      {"embedding_size = 0", "model.embedding_size is 48 (run.toml:12), but 16 in "},
      {"num_hidden_layers = 2", "model.num_hidden_layers is 2 (run.toml:12), but 3 in "},
      {"num_attention_heads = 3", "model.num_attention_heads is 3 (run.toml:12), but 6 in "},
      {"intermediate_size = 0", "model.intermediate_size is 192 (run.toml:12), but 80 in "},
      {"max_position_embeddings = 512", "max_position_embeddings is 512 (run.toml:12), but 30 in "},
      {"vocab_size = 47", "model.vocab_size is 47 (run.toml:12), but 50 in "},
      {"hidden_act = \"gelu_new\"", "hidden_act is \"gelu_new\" (run.toml:12), but \"gelu\" in "},
      {"layer_norm_eps = 1e-12", "layer_norm_eps is 1e-12 (run.toml:12), but 3e-06 in "}};
  for (const auto& [key, says] : wrong) {
    EXPECT_THAT(Error(key), ::testing::HasSubstr(says)) << key;
    EXPECT_THAT(Error(key), ::testing::HasSubstr("/config.json; omit the key"));
  }
}

TEST_F(PretrainedKeysTest, ChecksSizesOfTheModel) {
  TransformerOptions options = Small(TransformerConfig::Family::kRoberta);
  options.config.positions = 17;
  Write(options);
  EXPECT_THAT(Error(), ::testing::HasSubstr("data.max_length: 16 exceeds "
                                            "model.max_position_embeddings = 17 - 2, for roberta"));
  Write(Small(TransformerConfig::Family::kBert), "\"type_vocab_size\": 2",
        "\"type_vocab_size\": 3");
  EXPECT_THAT(Error(), ::testing::HasSubstr("\"type_vocab_size\" is 3: only 2 is supported"));
  options.config.positions = 30, options.config.vocabulary = 46;
  Write(options);
  EXPECT_THAT(Error(),
              ::testing::HasSubstr("has 47 pieces, but the embedding of model.pretrained"));
}

TEST(ResolveSupervisedTest, LeavesReinforcementLearningConfigUnchanged) {
  Config config;
  config.data.reviews = "none";
  const Config before = config;
  EXPECT_TRUE(ResolveSupervised(&config).ok());
  EXPECT_EQ(config, before);
}

}  // namespace
}  // namespace troop
