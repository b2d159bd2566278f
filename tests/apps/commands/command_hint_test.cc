#include "apps/commands/command_hint.h"

#include <gtest/gtest.h>

namespace troop {
namespace {

class CommandHintTest : public testing::Test {
 protected:
  CommandHintTest() {
    CLI::App* train = app_.add_subcommand("train", "");
    train->add_option("config", config_)->required();
    train->add_option("overrides", overrides_);
    train->add_flag("--overwrite", overwrite_);
    CLI::App* env = app_.add_subcommand("env", "");
    env->add_subcommand("list", "");
    env->add_subcommand("check", "");
    app_.add_subcommand("hidden", "")->group("");
  }
  std::string Explain(std::vector<std::string> words,
                      const std::string& what = "config is required\n") {
    words.insert(words.begin(), "troop");
    return ExplainUsageError(app_, words, what);
  }

  CLI::App app_;
  std::string config_;
  std::vector<std::string> overrides_;
  bool overwrite_ = false;
};

TEST_F(CommandHintTest, SuggestsNearestCommand) {
  EXPECT_EQ(Explain({"trian", "c.toml"}), "there is no command trian; the nearest is troop train");
  EXPECT_EQ(Explain({"env", "lst"}), "there is no command lst; the nearest is troop env list");
  EXPECT_EQ(Explain({"evaluate", "runs/a"}), "there is no command evaluate; use troop eval");
  EXPECT_EQ(Explain({"xyzzy"}), "there is no command xyzzy; see troop --help");
  EXPECT_EQ(Explain({"hiden"}), "there is no command hiden; see troop --help");
}

TEST_F(CommandHintTest, SuggestsKeySyntaxForKeyGivenAsFlag) {
  const std::string set = " is not a flag of train; set config keys without dashes: ";
  EXPECT_EQ(Explain({"train", "c.toml", "--seed", "3"}), "--seed" + set + "seed=3");
  EXPECT_EQ(Explain({"train", "c.toml", "--seed=3"}), "--seed" + set + "seed=3");
  EXPECT_EQ(Explain({"train", "c.toml", "--batch-size"}),
            "--batch-size" + set + "learner.batch_size=VALUE");
  EXPECT_EQ(Explain({"train", "c.toml", "--lr", "1e-3"}),
            "--lr" + set + "optimizer.learning_rate=1e-3");
}

TEST_F(CommandHintTest, SuggestsNearestFlag) {
  EXPECT_EQ(Explain({"train", "c.toml", "--overwite"}),
            "--overwite is not a flag of train; the nearest is --overwrite");
  EXPECT_EQ(Explain({"train", "c.toml", "--xyzzy"}),
            "--xyzzy is not a flag of train; see troop train --help");
}

TEST_F(CommandHintTest, PointsToHelpForOtherErrors) {
  EXPECT_EQ(Explain({"train"}), "config is required; see troop train --help");
  EXPECT_EQ(Explain({}), "config is required; see troop --help");
  EXPECT_EQ(Explain({"train"}, "--jobs: 1 required INT:INT in [1 - 1000] missing\n"),
            "--jobs needs a value; see troop train --help");
}

// The group was missing: "see troop check --help".
TEST_F(CommandHintTest, NamesGroupOfSubcommand) {
  EXPECT_EQ(Explain({"env", "check"}, "id is required"),
            "id is required; see troop env check --help");
  EXPECT_EQ(Explain({"env", "check", "--xyzzy"}),
            "--xyzzy is not a flag of check; see troop env check --help");
}

}  // namespace
}  // namespace troop
