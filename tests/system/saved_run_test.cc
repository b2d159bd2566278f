// Run folders of config version 1 (tests/fixtures/runs_v1, written by the last program of that
// version): they are shown, evaluated, played and resumed, and their config files are migrated.

#include "fleet/config/config.h"
#include "fleet/run/ended_run.h"
#include "fleet/run/metric_names.h"
#include "tests/system/troop_process.h"

namespace troop {
namespace {

const std::string kFixtures = TROOP_SOURCE_DIR "/tests/fixtures/";

class SavedRunTest : public SystemTest {
 protected:
  // Copies a run of the fixtures, since a resume writes to its folder.
  std::string CopyRun(const std::string& name) {
    const std::string path = folder() + "/" + name;
    std::filesystem::copy(kFixtures + "runs_v1/" + name, path,
                          std::filesystem::copy_options::recursive);
    return path;
  }
  std::string Output(const std::vector<std::string>& words, int code = 0) {
    const auto troop = Start(words);
    EXPECT_EQ(troop->Wait(), code) << troop->output();
    return troop->output();
  }
};

TEST_F(SavedRunTest, StatusEvalPlayAndPlotReadOldRun) {
  const std::string done = CopyRun("done");
  EXPECT_NE(Output({"status", done}).find("3000 of 3000 agent steps"), std::string::npos);
  const std::string status = Output({"status", done, "--json"});
  EXPECT_NE(status.find("\"learner/q_mean\": "), std::string::npos) << status;
  EXPECT_EQ(status.find("\"learner/q\""), std::string::npos) << status;
  EXPECT_NE(Output({"eval", done, "--episodes", "3"}).find("700 updates"), std::string::npos);
  Output({"play", done, "--episodes", "1", "--png", folder() + "/frames.png"});
  EXPECT_TRUE(std::filesystem::exists(folder() + "/frames.png"));
  Output({"plot", done, CopyRun("interrupted"), "--png", folder() + "/plot.png"});
  EXPECT_TRUE(std::filesystem::exists(folder() + "/plot.png"));
}

// The recorded run ended after 12,800 updates; its limits are raised under their new names.
TEST_F(SavedRunTest, InterruptedRunResumesWithItsConfig) {
  const std::string path = CopyRun("interrupted");
  EXPECT_NE(Output({"resume", path, "learner.max_updates=12900"}, 2).find("use run.max_updates"),
            std::string::npos);
  const std::string output = Output({"resume", path, "run.max_updates=12900"});
  EXPECT_EQ(*Json(path + "/result.json").Integer("updates"), 12900) << output;
  EXPECT_EQ(output.find("it was"), std::string::npos) << output;  // no change is reported
  const auto config = LoadConfigFile(path + "/config.toml", {});
  ASSERT_TRUE(config.ok()) << config.status().message();  // without migration
  EXPECT_EQ(config->run.total_steps, 2e7);
  EXPECT_EQ(config->network.layers[0].units, 16);
  EXPECT_TRUE(FileHas(path + "/metrics.jsonl", "\"learner/q\": "));       // before the resume
  EXPECT_TRUE(FileHas(path + "/metrics.jsonl", "\"learner/q_mean\": "));  // after it
  const std::string line = LastJsonLine(path + "/metrics.jsonl");
  const auto metrics = ParseJson(line);
  ASSERT_TRUE(metrics.ok()) << line;
  EXPECT_GT(metrics->object.size(), 40u);
  for (const auto& [name, value] : metrics->object) EXPECT_EQ(CurrentMetricName(name), name);
}

TEST_F(SavedRunTest, SupervisedRunResumesAndClassifies) {
  const std::string path = CopyRun("supervised");
  Output({"resume", path, "run.epochs=45", "data.reviews=" + kFixtures + "supervised/reviews.csv",
          "data.vocabulary=" + kFixtures + "supervised/vocab.txt"});
  EXPECT_EQ(*Json(path + "/result.json").Integer("updates"), 90);
  EXPECT_NE(Output({"predict", path, "A great film, and a wonderful plot!"}).find("tive ("),
            std::string::npos);
}

TEST_F(SavedRunTest, MigrateRewritesConfigFileInPlace) {
  const std::string file = folder() + "/old.toml";
  const std::string before =
      "# My run.\nversion = 1\n\n[learner]\ntotal_steps = 3000  # short\ngamma = 0.9\n";
  std::ofstream(file) << before;
  EXPECT_NE(Output({"train", file, "--dry-run"}, 2).find("use run.total_steps"), std::string::npos);
  EXPECT_EQ(Output({"config", "migrate", file, "--dry-run"}),
            "learner.total_steps -> run.total_steps\n");
  EXPECT_EQ(FileText(file), before);
  EXPECT_EQ(Output({"config", "migrate", file}), "learner.total_steps -> run.total_steps\n");
  EXPECT_EQ(FileText(file),
            "# My run.\nversion = 2\n\n[run]\ntotal_steps = 3000  # short\n\n[learner]\ngamma = "
            "0.9\n");
  EXPECT_NE(Output({"config", "migrate", file}).find("unchanged"), std::string::npos);
  Output({"config", "--check", file});
  // A file that would not be valid afterwards is left alone.
  std::ofstream(file) << "learner.epochs = \"many\"\n";
  EXPECT_NE(Output({"config", "migrate", file}, 2).find("run.epochs"), std::string::npos);
  EXPECT_EQ(FileText(file), "learner.epochs = \"many\"\n");
  EXPECT_NE(Output({"config", "migrate", folder() + "/none.toml"}, 2).find("none.toml"),
            std::string::npos);
}

TEST_F(SavedRunTest, RenamedFlagsAndCommandsNameTheirReplacement) {
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{"join", "tcp://h:1", "--listen", "h"}, "--listen was renamed; use --advertise-host"},
      {{"join", "tcp://h:1", "--stay"}, "--stay was renamed; use --rejoin"},
      {{"role", "actor", "--any-index"}, "--any-index was renamed; use --auto-index"},
      {{"check", "sync"}, "check was renamed; use troop selftest"},
      {{"env-check", "CartPole-v1"}, "env-check was renamed; use troop env check"}};
  for (const auto& [words, expected] : cases) {
    const std::string output = Output(words, 2);
    EXPECT_NE(output.find(expected), std::string::npos) << output;
  }
}

}  // namespace
}  // namespace troop
