// The keys of runs that learn reviews.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/config.h"

namespace troop {
namespace {

using ::testing::HasSubstr;

Result<Config> Parse(std::string_view toml) { return ParseConfig(toml, "run.toml", {}); }

TEST(ConfigSupervisedTest, WhatReviewsNeedIsSaid) {
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
      {"[model]\nhidden = 24\nheads = 3\n", "24 is no multiple of 16"},
      {"[model]\nheads = 3\n", "3 heads can't share model.hidden = 128"},
      {"[model]\npositions = 100\n", "256 is more than model.positions = 100"},
      {"[model]\nembedding = 64\n", "only \"albert\" has another one"},
      {"[mesh]\ntp = 4\n", "4 learners can't share 2 heads"},
      {"[mesh]\ndp = 2\n[fleet]\nlearners = 3\n", "leave that one out"},
      {"[mesh]\nshares = [1, 1]\n", "2 shares of 1 workers"},
      {"[mesh]\ntp = 2\n[fleet]\nmode = \"serial\"\n", "one thread plays all"},
      {"[mesh]\ntp = 2\n[model]\nfamily = \"lstm\"\n", "can't be cut into parts"}};
  for (const auto& [keys, says] : wrong) {
    EXPECT_THAT(Parse(begin + data + keys).status().message(), HasSubstr(says)) << keys;
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
  EXPECT_THAT(with_k(3).status().message(), HasSubstr("3 of 2 workers"));
}

}  // namespace
}  // namespace troop
