// Whole runs of linear models: training, prediction, a death, a kill and a resume.

#include <fstream>

#include "core/base/philox.h"
#include "learners/checkpoint.h"
#include "tests/system/troop_process.h"

namespace troop {
namespace {

class LinearRunTest : public SystemTest {
 protected:
  // Texts of ten words, of which one in three belongs to the class.
  LinearRunTest() {
    Rng rng({.run_seed = 3, .purpose = Purpose::kTest});
    const auto write = [&](const std::string& name, int texts) {
      std::ofstream file(folder() + "/" + name);
      file << "text,label\n";
      for (int i = 0; i < texts; ++i) {
        const bool good = rng.Below(2) == 1;
        for (int word = 0; word < 10; ++word) {
          const char* const kind = rng.Below(3) > 0 ? "word" : good ? "good" : "bad";
          file << kind << rng.Below(50) << ' ';
        }
        file << (good ? ",yes\n" : ",no\n");
      }
    };
    write("train.csv", 300);
    write("test.csv", 100);
    std::ofstream(config()) << R"(
name = "run"
fleet = {backoff_initial_s = 0.05}
learner = {algorithm = "classifier", batch_size = 30, publish_every_updates = 20}
run = {epochs = 5}
model.architecture = "linear"
features = {ngram_max = 2, min_df = 2}
linear = {l2 = 1e-2, naive_bayes = true}
evaluator = {every_s = 1}
checkpoint = {every_s = 0.3}
log.metrics_every_s = 0.1
)";
  }
  std::vector<std::string> Keys(std::vector<std::string> more = {}) const {
    more.push_back("data.reviews=" + folder() + "/train.csv");
    more.push_back("data.test=" + folder() + "/test.csv");
    return more;
  }
  // The weights of the newest checkpoint of a run.
  std::vector<float> ValueOf(const std::string& name) const {
    const auto storage = MakeDiskStorage(run(name));
    const auto checkpoint = ReadCheckpoint(storage->get(), *NewestCheckpoint(storage->get()));
    const auto values = checkpoint->state.tensors.at("value").as<float>();
    return std::vector<float>(values.begin(), values.end());
  }
};

// Evaluator, eval and predict use the same model; what a linear model does not do is refused.
TEST_F(LinearRunTest, RunLearnsAndPredicts) {
  const auto troop = Train(Keys());
  ASSERT_EQ(troop->Wait(), 0) << troop->output();
  const double accuracy = Json(run() + "/result.json").Find("final_return_mean")->number;
  EXPECT_GE(accuracy, 95) << troop->output();
  EXPECT_TRUE(FileHas(run() + "/model/terms.txt", "good1\n"));
  const auto eval = Start({"eval", run(), "--json"});
  ASSERT_EQ(eval->Wait(), 0) << eval->output();
  const JsonValue scores = *ParseJson(eval->output().substr(eval->output().find('{')));
  EXPECT_NEAR(scores.Find("accuracy_percent")->number, accuracy, 1e-9);
  EXPECT_NE(scores.Find("squared_hinge"), nullptr);
  for (const std::string& model : {run(), run() + "/model"}) {
    const auto predict = Start({"predict", model, "bad1 bad2 bad3 word1", "--json"});
    ASSERT_EQ(predict->Wait(), 0) << predict->output();
    EXPECT_NE(predict->output().find("\"label\": \"no\""), std::string::npos) << predict->output();
  }
  const std::pair<std::vector<std::string>, const char*> refused[] = {
      {{"export", run(), "--format", "onnx"}, "can't be exported"},
      {{"predict", run(), "a", "--text-pair", "b"}, "trained on single texts"},
      {{"resume", run(), "mesh.tp=2"}, "mesh.tp"}};
  for (const auto& [words, says] : refused) {
    const auto command = Start(words);
    EXPECT_NE(command->Wait(), 0);
    EXPECT_NE(command->output().find(says), std::string::npos) << command->output();
  }
}

// The bytes of a run that was killed equal those of one that was not, for each kind of solver, and
// for two learners that exchange rows.
TEST_F(LinearRunTest, ResumeAfterKillHasBytesOfUnbrokenRun) {
  const std::vector<std::string> solvers[] = {
      {},
      {"linear.solver=ftrl", "optimizer.learning_rate=0.1", "linear.l1=1e-4"},
      {"linear.solver=adagrad", "optimizer.learning_rate=0.1", "linear.l2=0", "fleet.learners=2"},
      {"optimizer.type=lbfgs", "learner.batch_size=300"}};
  int number = 0;
  for (std::vector<std::string> solver : solvers) {
    const std::string broken = fmt::format("broken{}", ++number);
    solver.insert(solver.end(), {"fleet.mode=serial", "evaluator.enabled=false"});
    std::vector<std::string> words = Keys(solver);
    words.insert(words.end(), {"name=" + broken, "run.epochs=1e6"});
    const auto troop = Train(words);
    const auto storage = MakeDiskStorage(run(broken));
    ASSERT_TRUE(Await([&] { return NewestCheckpoint(storage->get()).ok(); })) << troop->output();
    troop->Signal(SIGKILL);
    troop->Wait();
    const auto kept = ReadCheckpoint(storage->get(), *NewestCheckpoint(storage->get()));
    ASSERT_TRUE(kept.ok());
    const std::string last = fmt::format("run.max_updates={}", kept->updates + 25);
    const auto resumed = Start({"resume", run(broken), last});
    ASSERT_EQ(resumed->Wait(), 0) << resumed->output();
    words = Keys(solver);
    words.insert(words.end(), {"name=unbroken" + broken, "run.epochs=1e6", last});
    ASSERT_EQ(Train(words)->Wait(), 0);
    const std::vector<float> expected = ValueOf("unbroken" + broken);
    EXPECT_GT(expected.size(), 100u);
    EXPECT_TRUE(ValueOf(broken) == expected);
  }
}

// L-BFGS on all examples; smaller batches are refused with the number of examples.
TEST_F(LinearRunTest, BatchOptimizerMinimizesTheObjective) {
  const std::vector<std::string> batch = {"optimizer.type=lbfgs", "linear.loss=log_loss",
                                          "run.epochs=30"};
  const auto refused = Train(Keys(batch));
  EXPECT_EQ(refused->Wait(), 2);
  EXPECT_NE(refused->output().find("needs all 300 training examples"), std::string::npos)
      << refused->output();
  std::vector<std::string> words = Keys(batch);
  words.push_back("learner.batch_size=300");
  const auto troop = Train(words);
  ASSERT_EQ(troop->Wait(), 0) << troop->output();
  EXPECT_GE(Json(run() + "/result.json").Find("final_return_mean")->number, 95) << troop->output();
  const auto predict = Start({"predict", run(), "bad1 bad2 bad3 word1", "--json"});
  ASSERT_EQ(predict->Wait(), 0) << predict->output();
  EXPECT_NE(predict->output().find("\"label\": \"no\""), std::string::npos) << predict->output();
}

// Another learner takes the place of a killed one, from the last checkpoint.
TEST_F(LinearRunTest, RunSurvivesDeathOfItsLearner) {
  const auto troop = Train(Keys({"run.epochs=1e6", "evaluator.enabled=false"}));
  ASSERT_TRUE(AwaitSteps(500)) << troop->output();
  SendSignal(AwaitFirst("learner"), SIGKILL);
  ASSERT_TRUE(Await([&] { return FileHas(run() + "/logs/launcher.log", "learner-0 ended"); }));
  ASSERT_TRUE(AwaitSteps(Steps() + 1000)) << LauncherLog();
  troop->Signal(SIGINT);
  ASSERT_EQ(troop->Wait(), 130) << troop->output();
}

// Two learners exchange rows, and the killed one of them joins again.
TEST_F(LinearRunTest, LearnersExchangeRowsAndOneDies) {
  const auto troop =
      Train(Keys({"run.epochs=1e6", "evaluator.enabled=false", "fleet.learners=2",
                  "linear.solver=ftrl", "linear.l1=1e-4", "optimizer.learning_rate=0.1"}));
  ASSERT_TRUE(AwaitSteps(500)) << troop->output();
  SendSignal(AwaitFirst("learner"), SIGKILL);
  ASSERT_TRUE(Await([&] { return FileHas(run() + "/logs/launcher.log", "learner-0 ended"); }));
  ASSERT_TRUE(AwaitSteps(Steps() + 1000)) << LauncherLog();
  troop->Signal(SIGINT);
  ASSERT_EQ(troop->Wait(), 130) << troop->output();
}

// Downpour: the shards step the rows that learners push, with AdaGrad.
TEST_F(LinearRunTest, ParameterShardsStepRows) {
  const auto troop =
      Train(Keys({"run.epochs=10", "fleet.learners=2", "learner.sync=paramserver",
                  "paramserver.mode=async", "paramserver.shards=2", "linear.naive_bayes=false",
                  "linear.solver=adagrad", "linear.l2=0", "optimizer.learning_rate=0.1"}));
  ASSERT_EQ(troop->Wait(), 0) << troop->output() << LauncherLog();
  EXPECT_GE(Json(run() + "/result.json").Find("final_return_mean")->number, 95) << troop->output();
}

// Features of a file, whose damaged lines are named.
TEST_F(LinearRunTest, SvmlightFilesAreRead) {
  const std::string path = folder() + "/train.svm";
  std::string text;
  for (int i = 0; i < 40; ++i) text += i % 2 == 0 ? "+1 1:1 3:0.5\n" : "-1 2:1 3:0.5\n";
  std::ofstream(path) << text;
  const std::string rows = folder() + "/rows.toml";
  std::ofstream(rows) << R"(
name = "rows"
learner = {algorithm = "classifier", batch_size = 8}
run = {epochs = 3}
fleet = {mode = "serial"}
model.architecture = "linear"
data.validation_split = 0.2
)";
  const std::vector<std::string> words = {"train", rows, "log.dir=" + folder(),
                                          "data.reviews=" + path};
  const auto troop = Start(words);
  ASSERT_EQ(troop->Wait(), 0) << troop->output();
  EXPECT_EQ(Json(run("rows") + "/result.json").Find("final_return_mean")->number, 100);
  const auto predict = Start({"predict", run("rows"), "text"});
  EXPECT_EQ(predict->Wait(), 2);
  EXPECT_NE(predict->output().find("svmlight"), std::string::npos) << predict->output();
  std::ofstream(path) << text << "+1 4:1 2:1\n";
  const auto wrong = Start(words);
  EXPECT_EQ(wrong->Wait(), 2);
  EXPECT_NE(wrong->output().find("line 41: the index 2 follows 4"), std::string::npos)
      << wrong->output();
}

}  // namespace
}  // namespace troop
