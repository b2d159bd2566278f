// Runs with evaluator.keep_best: the best checkpoint is used by the commands, survives the death of
// its writer, and is never replaced by a worse one.

#include <signal.h>

#include <algorithm>
#include <cmath>

#include "tests/system/troop_process.h"

namespace troop {
namespace {

namespace fs = std::filesystem;

class BestCheckpointRunTest : public SystemTest {
 protected:
  // A short run whose returns rise from about 10 to some hundreds, with an evaluation of each
  // version.
  std::vector<std::string> LearningWords(const std::string& name = "run") const {
    return TrainWords({"evaluator.keep_best=true", "evaluator.every_s=0", "evaluator.episodes=3",
                       "optimizer.learning_rate=0.001", "run.total_steps=20000", "name=" + name});
  }
  static constexpr int kSteps = 20000;
  // A writer that was killed between its two renames has left the only best checkpoint aside, where
  // all commands find it; its next start moves it back, unless the run has ended by then.
  double Score(const std::string& name = "run") const {
    const std::string best = run(name) + "/best";
    const JsonValue state = Json((fs::exists(best) ? best : best + ".old") + "/state.json");
    const JsonValue* score = state.Find("score");
    EXPECT_NE(score, nullptr) << best;
    return score == nullptr ? std::nan("") : score->number;
  }
  // The lines of evaluations.jsonl, the highest return first; equal returns in their order.
  std::vector<JsonValue> Evaluations(const std::string& name = "run") const {
    std::vector<JsonValue> evaluations;
    std::istringstream lines(FileText(run(name) + "/evaluations.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const auto json = ParseJson(line);
      if (json.ok()) evaluations.push_back(*json);
    }
    std::ranges::stable_sort(evaluations, std::greater<>(), Return);
    return evaluations;
  }
  static double Return(const JsonValue& evaluation) {
    return evaluation.Find("return_mean")->number;
  }
  std::string Output(const std::vector<std::string>& words, int code = 0) const {
    const auto troop = Start(words);
    EXPECT_EQ(troop->Wait(), code) << troop->output();
    return troop->output();
  }
};

TEST_F(BestCheckpointRunTest, FleetKeepsHighestEvaluationAndCommandsUseIt) {
  const auto troop = Start(LearningWords());
  ExpectDone(troop.get(), kSteps);
  const JsonValue highest = Evaluations().at(0);
  EXPECT_EQ(Score(), Return(highest));
  EXPECT_NE(troop->output().find("best score: "), std::string::npos) << troop->output();
  const std::string best = run() + "/best";
  const auto updates = std::to_string(*Json(best + "/state.json").Integer("updates"));
  const std::string output = Output({"eval", run(), "--best", "--episodes", "3"});
  EXPECT_NE(output.find("/run/best (" + updates + " update"), std::string::npos) << output;
  EXPECT_NE(Output({"status", run()}).find("best score "), std::string::npos);
  const auto status = ParseJson(Output({"status", run(), "--json"}));
  ASSERT_TRUE(status.ok()) << status.status().ToString();
  ASSERT_NE(status->Find("best"), nullptr);
  EXPECT_EQ(status->Find("best")->Find("score")->number, Score());
  // The final evaluation, which has its own number of episodes, may be the best one.
  EXPECT_EQ(*status->Find("best")->Integer("episodes"), *highest.Integer("episodes"));
  Output({"play", run(), "--best", "--png", folder() + "/frames.png"});
  EXPECT_TRUE(fs::exists(folder() + "/frames.png"));
  EXPECT_NE(Output({"eval", best, "--episodes", "1"}).find(updates), std::string::npos);
  EXPECT_NE(Output({"eval", best, "--best"}, 2).find("give the run folder"), std::string::npos);
}

TEST_F(BestCheckpointRunTest, CommandsRefuseBestOfRunWithoutOneInOneLine) {
  const auto troop = Train({"run.total_steps=1000"});
  ExpectDone(troop.get(), 1000);
  EXPECT_FALSE(fs::exists(run() + "/best"));
  EXPECT_EQ(Output({"status", run(), "--json"}).find("\"best\""), std::string::npos);
  for (const char* command : {"eval", "play", "predict"}) {
    const auto failed = Start({command, run(), "--best"});
    EXPECT_NE(failed->Wait(), 0);
    EXPECT_NE(failed->output().find("evaluator.keep_best = true"), std::string::npos)
        << failed->output();
    EXPECT_EQ(std::ranges::count(failed->output(), '\n'), 1) << failed->output();
  }
}

TEST_F(BestCheckpointRunTest, KeepBestWithoutEvaluatorIsRefused) {
  EXPECT_NE(Output(TrainWords({"evaluator.keep_best=true", "evaluator.enabled=false"}), 2)
                .find("evaluator.keep_best"),
            std::string::npos);
}

// The evaluator is killed while the second best checkpoint replaces the first one. The learner
// reaches these places less often: it writes only the checkpoint at the end. A run on busy cores
// may have no second best evaluation, and is repeated.
TEST_F(BestCheckpointRunTest, KilledWriterIsRestartedAndContinuesFromDisk) {
  for (const auto& [label, place] :
       {std::pair("file", "checkpoint.file:4"), std::pair("manifest", "checkpoint.manifest:2"),
        std::pair("aside", "checkpoint.aside:1"),
        std::pair("installed", "checkpoint.installed:2")}) {
    std::string name, killed;
    for (int attempt = 0; attempt < 6 && (killed.empty() || !fs::exists(killed)); ++attempt) {
      name = label + std::to_string(attempt);
      killed = folder() + "/killed-" + name;
      std::vector<std::string> words = LearningWords(name);
      words.push_back("checkpoint.every_s=0");
      const auto troop =
          Start(words, {std::string("TROOP_FAILPOINT=") + place + ":kill:" + killed});
      ExpectDone(troop.get(), kSteps, name);
    }
    ASSERT_TRUE(fs::exists(killed)) << place << ": never reached";
    EXPECT_NE(LauncherLog(name).find("evaluator"), std::string::npos) << LauncherLog(name);
    // Only the evaluation whose write was cut off may be higher. Its incomplete folder stays if it
    // was the last one; otherwise the next evaluation removes it.
    const std::vector<JsonValue> evaluations = Evaluations(name);
    ASSERT_GE(evaluations.size(), 2u);
    EXPECT_GE(Score(name), Return(evaluations[1])) << place;
    Output({"eval", run(name), "--best", "--episodes", "1"});
  }
}

// The rest of the run is evaluated with random actions, so its scores are about 20.
TEST_F(BestCheckpointRunTest, ResumedRunKeepsBetterBest) {
  const auto troop = Start(LearningWords());
  ExpectDone(troop.get(), kSteps);
  const double score = Score();
  ASSERT_GT(score, 50);
  const std::string weights = FileText(run() + "/best/weights.safetensors");
  const std::string state = FileText(run() + "/best/state.json");
  Output({"resume", run(), "run.total_steps=24000", "evaluator.epsilon=1"});
  EXPECT_LT(Json(run() + "/result.json").Find("final_return_mean")->number, score);
  EXPECT_EQ(FileText(run() + "/best/weights.safetensors"), weights);
  EXPECT_EQ(FileText(run() + "/best/state.json"), state);
}

// Two equal serial runs write equal bytes, the best checkpoint included.
TEST_F(BestCheckpointRunTest, SerialRunsWriteEqualBestCheckpoints) {
  for (const char* name : {"first", "second"}) {
    std::vector<std::string> words = LearningWords(name);
    words.insert(words.end(), {"fleet.mode=serial", "run.total_steps=3000"});
    const auto troop = Start(words);
    ExpectDone(troop.get(), 3000, name);
    EXPECT_EQ(Score(name), Return(Evaluations(name).at(0)));
  }
  for (const char* file : {"weights.safetensors", "state.safetensors"}) {
    EXPECT_EQ(FileText(run("first") + "/best/" + file), FileText(run("second") + "/best/" + file));
  }
  EXPECT_EQ(*Json(run("first") + "/best/state.json").Integer("unix_time"), 0);
}

// Serial mode, so that evaluations during the short run do not depend on the speed of processes.
TEST_F(BestCheckpointRunTest, SupervisedRunKeepsBestAccuracy) {
  const std::string trained =
      Output(ClassifierWords({"fleet.mode=serial", "evaluator.every_s=0",
                              "evaluator.keep_best=true", "evaluator.episodes=100"}));
  EXPECT_NE(trained.find("best score: "), std::string::npos) << trained;
  const std::string line = Output({"predict", run(), "--best", "a fine film"});
  EXPECT_NE(line.find("5 tokens"), std::string::npos) << line;
}

}  // namespace
}  // namespace troop
