// The keys of runs that learn reviews.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/config/config.h"

namespace troop {
namespace {

using ::testing::HasSubstr;

Result<Config> Parse(std::string_view toml) { return ParseConfig(toml, "run.toml", {}); }

TEST(ConfigSupervisedTest, ReportsMissingAndConflictingReviewKeys) {
  const std::string begin = "[learner]\nalgorithm = \"classifier\"\n";
  const std::string data = "[data]\nreviews = \"r\"\nvocabulary = \"v\"\n";
  EXPECT_THAT(Parse(begin).status().message(), HasSubstr("data.reviews"));
  EXPECT_THAT(Parse(begin).status().message(), HasSubstr("data.vocabulary"));
  ASSERT_TRUE(Parse(begin + data).ok()) << Parse(begin + data).status().ToString();
  EXPECT_TRUE(IsSupervised(*Parse(begin + data)));
  EXPECT_FALSE(IsSupervised(*Parse("")));
  EXPECT_EQ(FinalEpisodes(*Parse("")), 100);
  EXPECT_GE(FinalEpisodes(*Parse(begin + data)), 25000) << "all test reviews";
  EXPECT_EQ(FinalEpisodes(*Parse(begin + data + "[evaluator]\nfinal_episodes = 0\n")), 0);
  const std::pair<const char*, const char*> wrong[] = {
      {"[model]\nhidden_size = 24\nnum_attention_heads = 3\n", "24 is not a multiple of 16"},
      {"[model]\nnum_attention_heads = 3\n", "3 does not divide model.hidden_size = 128"},
      {"[model]\nmax_position_embeddings = 100\n",
       "256 exceeds model.max_position_embeddings = 100"},
      {"[model]\nmax_position_embeddings = 257\narchitecture = \"roberta\"\n",
       "256 exceeds model.max_position_embeddings = 257 - 2, for roberta"},
      {"[model]\nembedding_size = 64\narchitecture = \"distilbert\"\n",
       "\"distilbert\" requires an embedding of size model.hidden_size"},
      {"[model]\nlayer_norm_eps = 1e-5\narchitecture = \"distilbert\"\n",
       "1e-05 differs from 1e-12, which \"distilbert\" always has"},
      {"[model]\nhidden_act = \"gelu\"\narchitecture = \"lstm\"\n", "has no feed-forward layer"},
      {"[model]\nlayer_norm_eps = 1e-5\narchitecture = \"lstm\"\n", "has no layer norm"},
      {"[model]\nembedding_size = 64\n",
       "\"bert\" requires an embedding of size model.hidden_size"},
      {"[model]\noutput_bias = 3\n", "3 applies only to \"regression\"; omit it"},
      {"[model]\nlabels = [\"one\"]\n", "has 1 name, must have at least 2"},
      {"class_weights = \"balanced\"\n[model]\nproblem_type = \"multi_label_classification\"\n",
       "with one class per text; set \"none\""},
      {"[evaluator]\nearly_stopping_patience = 2\n[mesh]\ndp = 2\n",
       "is supported with one learner in supervised runs"},
      {"[mesh]\ntp = 4\n", "4 tensor-parallel learners exceed 2 attention heads"},
      {"[mesh]\ndp = 2\n[fleet]\nlearners = 3\n", "omit fleet.learners"},
      {"[mesh]\nbatch_shares = [1, 1]\n", "2 shares for 1 workers"},
      {"[mesh]\ntp = 2\n[fleet]\nmode = \"serial\"\n", "which one thread can't do"},
      {"[mesh]\ntp = 2\n[model]\narchitecture = \"lstm\"\n",
       "does not support tensor parallelism"}};
  for (const auto& [keys, says] : wrong) {
    const bool of_learner = std::string_view(keys).starts_with("class_weights");
    EXPECT_THAT(Parse(of_learner ? begin + keys + data : begin + data + keys).status().message(),
                HasSubstr(says))
        << keys;
  }
  const std::string mesh = "mesh = {dp = 2, tp = 2}\n";
  const Result<Config> meshed = Parse(mesh + begin + data);
  ASSERT_TRUE(meshed.ok()) << meshed.status().ToString();
  EXPECT_EQ(meshed->mesh.dp * meshed->mesh.tp, 4);
  // Each model in parts is one worker of the parameter shards.
  const auto with_k = [&](int k) {
    return Parse(
        fmt::format("{}{}sync = \"paramserver\"\n{}[paramserver]\nmode = \"k_of_n\"\n"
                    "k = {}\n",
                    mesh, begin, data, k));
  };
  EXPECT_TRUE(with_k(2).ok()) << with_k(2).status().ToString();
  EXPECT_THAT(with_k(3).status().message(), HasSubstr("3 exceeds the 2 workers"));
}

TEST(ConfigSupervisedTest, ClassWeightsNeedAClassifier) {
  const std::string data = "data = {reviews = \"r\", vocabulary = \"v\"}\n";
  for (const std::string algorithm : {"masked_lm", "dqn"}) {
    const auto read = Parse(data + "learner = {class_weights = \"balanced\", algorithm = \"" +
                            algorithm + "\"}\n");
    EXPECT_THAT(read.status().message(), HasSubstr("learner.class_weights")) << algorithm;
  }
}

// A setting without effect was ignored.
TEST(ConfigSupervisedTest, ReportsConflictingTextKeys) {
  const std::string data = "reviews = \"r\"\nvocabulary = \"v\"\n";
  const auto message = [&](const std::string& algorithm, const std::string& keys) {
    return Parse("[learner]\nalgorithm = \"" + algorithm + "\"\n[data]\n" + data + keys)
        .status()
        .message();
  };
  const std::pair<const char*, const char*> wrong[] = {
      {"text_columns = [\"a\", \"b\", \"c\"]\n", "has 3 columns, at most 2 are supported"},
      {"delimiter = \"::\"\n", "has 2 bytes, must be one character"},
      {"validation = \"x\"\nvalidation_split = 0.1\n", "data.validation names the examples"},
      {"test = \"x\"\ntest_split = 0.1\n", "data.test names the examples"},
      {"[model]\nproblem_type = \"regression\"\nlabels = [\"a\", \"b\"]\n",
       "has 2 classes, but a regression has none"}};
  for (const auto& [keys, says] : wrong) {
    EXPECT_THAT(message("classifier", keys), HasSubstr(says)) << keys;
  }
  const char* const unused[] = {"label_column = \"x\"\n", "[model]\nlabels = [\"a\", \"b\"]\n",
                                "[model]\nproblem_type = \"regression\"\n"};
  for (const char* const keys : unused) {
    EXPECT_EQ(message("classifier", keys), "") << keys;
    EXPECT_THAT(message("masked_lm", keys),
                HasSubstr("has no effect with learner.algorithm = \"masked_lm\"; omit it"))
        << keys;
  }
}

}  // namespace
}  // namespace troop
