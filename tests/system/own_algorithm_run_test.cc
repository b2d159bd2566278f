// Runs with the algorithm and the layer of examples/cpp_algorithm, in a shared library: all roles,
// deaths, resume, several learners, and libraries that are refused.
#include "tests/system/troop_process.h"

namespace troop {
namespace {

const std::string kLibrary = TROOP_PLUGIN_FOLDER "/own_algorithm.so";

class OwnAlgorithmRunTest : public SystemTest {
 protected:
  std::vector<std::string> Words(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words{
        "learner.library=" + kLibrary, "learner.algorithm=munchausen_dqn",
        "learner.options={temperature = 0.05}",
        "network.layers=[{type = \"linear\", units = 16}, {type = \"gated_linear\", units = 16}]",
        "actor.n_step=1"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  // A run that must fail before it starts, with one line.
  void ExpectRefused(const std::vector<std::string>& words, const std::string& part) const {
    const auto troop = Train(words);
    EXPECT_NE(troop->Wait(), 0);
    EXPECT_NE(troop->output().find(part), std::string::npos) << troop->output();
    EXPECT_EQ(std::ranges::count(troop->output(), '\n'), 1) << troop->output();
    EXPECT_FALSE(std::filesystem::exists(run() + "/run.json"));
  }
  std::string NewestCheckpoint() const {
    return run() + "/" + *Json(run() + "/result.json").String("checkpoint");
  }
};

TEST_F(OwnAlgorithmRunTest, FleetSurvivesDeathOfItsLearnerAndIsResumed) {
  const auto troop = Train(Words());
  ASSERT_TRUE(AwaitCheckpoint()) << LauncherLog();
  SendSignal(AwaitRole("learner"), SIGKILL);
  ExpectDone(troop.get(), 8001);
  // The run records its library, and the config names it as it was given.
  EXPECT_TRUE(FileHas(run() + "/config.toml", "algorithm = \"munchausen_dqn\""));
  EXPECT_TRUE(FileHas(run() + "/config.toml", "options = {\"temperature\" = 0.05}"));
  EXPECT_TRUE(FileHas(run() + "/config.toml", "type = \"gated_linear\", units = 16"));
  EXPECT_TRUE(FileHas(run() + "/provenance.jsonl", "own_algorithm.so\", \"code\": \"a plug-in of "))
      << FileText(run() + "/provenance.jsonl");
  // From another working folder than the first one's.
  const auto resumed = Start({"resume", run(), "run.total_steps=9000"});
  ExpectDone(resumed.get(), 9000);
  const auto eval = Start({"eval", run(), "--episodes", "2"});
  EXPECT_EQ(eval->Wait(), 0) << eval->output();
  // The layer describes itself by no built-in layers, so the policy stays here.
  const auto exported = Start({"export", run(), "--format", "onnx", "--out", folder() + "/x"});
  EXPECT_NE(exported->Wait(), 0);
  EXPECT_NE(exported->output().find("(\"gated_linear\"): a policy with this own layer can't be"),
            std::string::npos)
      << exported->output();
}

// The gradients of two learners are all-reduced; and parameter shards make the steps.
TEST_F(OwnAlgorithmRunTest, SeveralLearnersAndParameterShardsWork) {
  const std::vector<std::vector<std::string>> ways = {
      {"name=two", "fleet.learners=2"},
      {"name=shards", "learner.sync=paramserver", "paramserver.shards=2"}};
  for (const std::vector<std::string>& way : ways) {
    std::vector<std::string> words = Words({"run.total_steps=2000"});
    words.insert(words.end(), way.begin(), way.end());
    const auto troop = Train(words);
    ExpectDone(troop.get(), 2000, way[0].substr(5));
  }
}

// Equal seeds give equal bytes in serial mode; with built-in layers the policy is exported.
TEST_F(OwnAlgorithmRunTest, SerialRunIsReproducibleAndExported) {
  std::string before;
  for (int i = 0; i < 2; ++i) {
    const auto troop = Train(Words({"fleet.mode=serial", "fleet.actors=1", "run.total_steps=1500",
                                    "network.layers=[{type = \"linear\", units = 16}]"}));
    ExpectDone(troop.get(), 1500);
    const std::string weights = FileText(NewestCheckpoint() + "/weights.safetensors");
    EXPECT_FALSE(weights.empty());
    if (i > 0) {
      EXPECT_EQ(weights, before);
    }
    before = weights;
    if (i == 0) std::filesystem::remove_all(run());
  }
  const auto exported = Start({"export", run(), "--format", "onnx", "--out", folder() + "/x"});
  EXPECT_EQ(exported->Wait(), 0) << exported->output();
  EXPECT_NE(before.find("troop_policy"), std::string::npos);
}

TEST_F(OwnAlgorithmRunTest, BadLibrariesAndNamesAreOneLine) {
  const std::string own = "learner.algorithm=munchausen_dqn";
  ExpectRefused({own}, "is unknown; use one of");
  ExpectRefused({"learner.library=" + kLibrary}, "no own algorithm and no own layer is used");
  ExpectRefused({"learner.options={x = 1}"}, "only own algorithms have options");
  ExpectRefused({own, "learner.library=" + folder() + "/none.so"}, "no such file");
  ExpectRefused({own, "learner.library=" + config()}, "invalid ELF header");
  ExpectRefused({own, "learner.library=" TROOP_PLUGIN_FOLDER "/nothing.so"},
                "not an extension: exports no troop_extension");
  ExpectRefused({own, "learner.library=" TROOP_PLUGIN_FOLDER "/foreign_extension.so"},
                "built for \"troop 0.0.1 headers 0\", but this program is \"troop ");
  ExpectRefused({own, "learner.library=" TROOP_PLUGIN_FOLDER "/taken_extension.so"},
                "algorithm \"dqn\": the name is built in");
  ExpectRefused({own, "learner.library=" TROOP_PLUGIN_FOLDER "/throwing_extension.so"},
                "troop_extension: an exception was thrown: no disk");
  ExpectRefused({"learner.algorithm=munchausen", "learner.library=" + kLibrary, "actor.n_step=1"},
                "masked_lm, external, behavior_cloning, munchausen_dqn");
  ExpectRefused(Words({"learner.options={temperatures = 1}"}), "the nearest is temperature");
  ExpectRefused(Words({"actor.n_step=3"}), "actor.n_step is 3, must be 1");
  ExpectRefused(Words({"network.layers=[{type = \"gated\", units = 4}]"}),
                "network.layers[0].type = \"gated\" is unknown");
}

// A path in a file is relative to its folder, from wherever the program is started.
TEST_F(OwnAlgorithmRunTest, PathInAFileIsRelativeToIt) {
  const std::string file = std::filesystem::path(folder() + "/mine.so").lexically_normal().string();
  std::filesystem::copy_file(kLibrary, file);
  std::ofstream(config()) << "name = \"run\"\nenv.id = \"CartPole-v1\"\nactor.n_step = 1\n"
                             "run.total_steps = 1200\nfleet.mode = \"serial\"\n"
                             "evaluator = {episodes = 1, final_episodes = 1}\n"
                             "[learner]\nlibrary = \"mine.so\"\nalgorithm = \"munchausen_dqn\"\n";
  const auto troop = Train();
  ExpectDone(troop.get(), 1200);
  EXPECT_TRUE(FileHas(run() + "/config.toml", "library = \"" + file + "\""))
      << FileText(run() + "/config.toml");
}

}  // namespace
}  // namespace troop
