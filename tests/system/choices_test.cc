// Every value of every key of the config that has a list of values, in a run. The list is the
// schema's: a value that is new there is run here.
#include "tests/fleet/config/config_choices.h"
#include "tests/system/troop_process.h"

namespace troop {
namespace {

using Choice = ConfigChoice;

// A key, or a key and a value, and the other settings that it needs.
using Needs = std::vector<std::pair<std::string, std::vector<std::string>>>;

const std::string kFixtures = TROOP_SOURCE_DIR "/tests/fixtures/supervised/";

const std::vector<std::string>& Reviews() {
  static const std::vector<std::string> words{"data.reviews=" + kFixtures + "reviews.csv",
                                              "data.vocabulary=" + kFixtures + "vocab.txt",
                                              "data.cache=",
                                              "data.validation_split=0.3",
                                              "data.max_length=16",
                                              "model.vocab_size=47",
                                              "model.hidden_size=16",
                                              "model.num_hidden_layers=1",
                                              "model.num_attention_heads=2",
                                              "model.intermediate_size=16",
                                              "model.max_position_embeddings=24",
                                              "run.epochs=1",
                                              "learner.batch_size=12"};
  return words;
}

std::vector<std::string> With(std::vector<std::string> words,
                              const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// A few images of 8 x 5 pixels in two classes, resized or not.
std::vector<std::string> Images(bool resized) {
  std::vector<std::string> words{"learner.algorithm=classifier",
                                 "data.images=" TROOP_SOURCE_DIR "/tests/fixtures/images/idx",
                                 "data.validation_split=0.5", "run.epochs=1"};
  if (resized) words.insert(words.end(), {"data.image_height=8", "data.image_width=8"});
  return words;
}

// Images enlarged for models that need it, which have few units here.
std::vector<std::string> Enlarged(int side) {
  return With(Images(false),
              {"data.image_resize=stretch", "data.image_height=" + std::to_string(side),
               "data.image_width=" + std::to_string(side), "model.classifier_units=8"});
}

// A linear model of the n-grams of a few texts.
const std::vector<std::string>& Linear() {
  static const std::vector<std::string> words{
      "learner.algorithm=classifier", "model.architecture=linear",
      "data.reviews=" + kFixtures + "reviews.csv", "data.validation_split=0.3", "run.epochs=1"};
  return words;
}

const std::vector<std::string>& NeedsOf(const Choice& choice) {
  static const std::vector<std::string> classifier =
      With(Reviews(), {"learner.algorithm=classifier"});
  static const std::vector<std::string> shards{"learner.sync=paramserver", "paramserver.shards=2"};
  static const std::vector<std::string> unrolls{
      "actor.unroll_length=8", "replay.max_times_sampled=1", "replay.samples_per_insert=1"};
  static const std::vector<std::string> recurrent = With(unrolls, {"learner.algorithm=ppo"});
  static const Needs needs{
      {"fleet.transport", {"fleet.mode=processes"}},
      {"actor.inference=server", {"inference.servers=1"}},
      {"inference.device", {"actor.inference=server"}},
      {"replay.scope=local", {"learner.sync=paramserver", "replay.shards=1"}},
      {"replay.durability", {"replay.persist=true"}},
      {"evaluator.env.difficulty_ramping", {"env.id=MinAtar/Breakout-v1"}},
      {"learner.class_weights", classifier},
      {"pipeline.schedule=interleaved",
       With(Images(false), {"pipeline.chunks_per_stage=2", "model.architecture=cnn", "mesh.pp=2",
                            "learner.batch_size=4", "fleet.mode=processes"})},
      {"pipeline.schedule", With(Images(false), {"model.architecture=cnn", "mesh.pp=2",
                                                 "learner.batch_size=4", "fleet.mode=processes"})},
      {"learner.algorithm=dpg", {"env.id=Pendulum-v1"}},
      {"learner.algorithm=td3", {"env.id=Pendulum-v1"}},
      {"learner.algorithm=sac", {"env.id=Pendulum-v1"}},
      {"learner.algorithm=r2d2", {"actor.unroll_length=8"}},
      {"learner.algorithm=pqn", unrolls},
      {"learner.algorithm=vtrace", unrolls},
      {"learner.algorithm=ppo", unrolls},
      {"network.layers.type=lstm", recurrent},
      {"network.layers.type=gru", recurrent},
      {"learner.algorithm=classifier", Reviews()},
      {"learner.algorithm=masked_lm", Reviews()},
      {"data.truncation_side", classifier},
      {"model.architecture=albert", With(classifier, {"model.embedding_size=8"})},
      {"model.architecture=electra", With(classifier, {"model.embedding_size=8"})},
      {"model.architecture=linear", Linear()},
      {"features.analyzer", Linear()},
      {"features.norm", Linear()},
      {"linear.loss", Linear()},
      {"linear.solver=dual_ascent", Linear()},
      {"linear.solver", With(Linear(), {"linear.l2=0"})},
      {"model.architecture=cnn", Images(false)},
      {"model.architecture=resnet18", Images(false)},
      {"model.architecture=resnet50", Images(false)},
      {"model.architecture=alexnet", Enlarged(67)},
      {"model.architecture=alexnet_torchvision", Enlarged(63)},
      {"model.architecture=vgg16", Enlarged(32)},
      {"data.image_resize=none", With(Images(false), {"model.architecture=cnn"})},
      {"data.image_resize", With(Images(true), {"model.architecture=cnn"})},
      {"model.architecture", classifier},
      {"model.hidden_act", classifier},
      {"model.position_init", classifier},
      {"model.problem_type=regression",
       With(classifier, {"data.reviews=" + kFixtures + "ratings.csv"})},
      {"model.problem_type", classifier},
      {"optimizer.type=lbfgs", With(Linear(), {"learner.batch_size=65536"})},
      {"optimizer.lr_schedule=cosine", {"optimizer.final_lr_fraction=0.1"}},
      {"optimizer.lr_schedule=step", {"optimizer.lr_milestones=[0.25, 0.5]"}},
      {"paramserver.mode=k_of_n", With(shards, {"paramserver.k=1"})},
      {"paramserver.mode=local_sgd", With(shards, {"optimizer.type=sgd"})},
      {"paramserver.sharding", shards},
      {"paramserver.mode", shards},
      {"paramserver.compression", shards},
  };
  static const std::vector<std::string> none;
  for (const auto& [what, words] : needs) {
    if (what == choice.key + "=" + choice.value || what == choice.key) return words;
  }
  return none;
}

// A choice that this machine cannot run: the text of its error, or the test that runs it.
struct Elsewhere {
  std::string key, value, refused, test;
};
const std::vector<Elsewhere>& RunElsewhere() {
  static const std::vector<Elsewhere> all{
      {"fleet.engine", "slurm", "", "system/slurm_test.cc"},
      {"fleet.engine", "mpi", "", "system/mpi_test.cc"},
      {"fleet.engine", "kubernetes", "", "system/pods_test.cc"},
      {"learner.algorithm", "external", "", "python/learner_test.py"},
      {"learner.algorithm", "behavior_cloning", "", "system/offline_run_test.cc"},
      {"replay.placement", "gpu", "finds no GPU", "device/replay_test.cc"},
      {"learner.device", "cuda", "finds no GPU", "device/replay_test.cc"},
      {"inference.device", "cuda", "finds no GPU", "device/policy_test.cc"},
  };
  return all;
}

class ChoicesTest : public SystemTest {
 protected:
  // Some hundred steps of all roles, in some hundredths of a second.
  std::string Base(const Choice& choice) const {
    std::string layers = "{type = \"linear\", units = 16}";
    std::string id = "CartPole-v1", table;
    const std::string layer = "network.layers.", tables = "replay.tables.";
    if (choice.key.starts_with(layer)) {
      const std::string name = choice.key.substr(layer.size());
      id = "MinAtar/Breakout-v1";
      // Every type of layer.
      layers =
          "{type = \"conv2d\", filters = 2, kernel = 3, padding = 1}, {type = \"layer_norm\"}, "
          "{type = \"max_pool\", kernel = 3, stride = 2}, {type = \"residual\", kernel = 3}, " +
          layers;
      if (choice.value == "lstm" || choice.value == "gru")
        layers += fmt::format(", {{type = \"{}\", units = 8}}", choice.value);
      if (name != "type") {
        layers = fmt::format("{{type = \"linear\", units = 16, {} = \"{}\"}}", name, choice.value);
      }
    }
    if (choice.key.starts_with(tables)) {
      table = fmt::format(
          "[[replay.tables]]\nname = \"first\"\nmin_items = 32\ncapacity_items = 200\n"
          "samples_per_insert = 2\n[[replay.tables]]\nname = \"second\"\nmin_items = 32\n"
          "capacity_items = 200\nsamples_per_insert = 0\n{} = \"{}\"\n",
          choice.key.substr(tables.size()), choice.value);
    }
    return fmt::format(R"(
env.id = "{}"
network.layers = [{}]
fleet = {{mode = "serial", actors = 1}}
actor = {{envs = 2, lease_steps = 100, insert_batch_size = 20, weight_sync_steps = 10}}
run = {{total_steps = 300}}
learner = {{batch_size = 8}}
evaluator = {{episodes = 1, final_episodes = 1}}
[replay]
min_items = 32
capacity_items = 200
samples_per_insert = 2
{}
)",
                       id, layers, table);
  }
  // Which of several environments a codec is to be given.
  std::vector<std::string> Environments(const Choice& choice) const {
    if (choice.key != "replay.compression") return {""};
    // Some bytes that do not shrink, many that do, and many of both.
    return {"CartPole-v1", "Catch-v0", "MinAtar/Seaquest-v0", "Acrobot-v1"};
  }
  void Run(const Choice& choice, const std::string& environment, const std::string& refused) {
    const std::string text = choice.key + "=" + choice.value;
    SCOPED_TRACE(text + " " + environment);
    const std::string config = fmt::format("{}/{}.toml", folder(), ++runs_);
    std::ofstream(config) << Base(choice);
    std::vector<std::string> words{"train", config, "log.dir=" + folder(),
                                   fmt::format("name=run-{}", runs_)};
    if (!environment.empty()) words.push_back("env.id=" + environment);
    const bool in_file =
        choice.key.starts_with("network.layers.") || choice.key.starts_with("replay.tables.");
    for (const std::string& word : NeedsOf(choice)) words.push_back(word);
    if (!in_file) words.push_back(text);
    const auto troop = Start(words);
    const int code = troop->Wait();
    const std::string name = fmt::format("run-{}", runs_);
    if (!refused.empty() && code == 2) {
      EXPECT_NE(troop->output().find(refused), std::string::npos) << troop->output();
      return;
    }
    EXPECT_EQ(code, 0) << troop->output();
    if (code != 0) return;
    const JsonValue result = Json(run(name) + "/result.json");
    EXPECT_EQ(*result.String("status"), "ok");
  }
  int runs_ = 0;
};

// replay.compression = "zstd" ended actors, and the serial run, with a failed check on small
// observations.
TEST_F(ChoicesTest, EveryChoiceOfEveryKeyRuns) {
  const std::vector<Choice> all = ConfigChoices();
  ASSERT_GT(all.size(), 100u);
  for (const Choice& choice : all) {
    const auto elsewhere = std::ranges::find_if(RunElsewhere(), [&](const Elsewhere& e) {
      return e.key == choice.key && e.value == choice.value;
    });
    const bool other = elsewhere != RunElsewhere().end();
    if (other && elsewhere->refused.empty()) continue;
    for (const std::string& environment : Environments(choice)) {
      Run(choice, environment, other ? elsewhere->refused : "");
    }
  }
}

TEST_F(ChoicesTest, ChoicesTestedElsewhereExist) {
  const std::vector<Choice> all = ConfigChoices();
  for (const Elsewhere& e : RunElsewhere()) {
    EXPECT_TRUE(std::ranges::any_of(
        all, [&](const Choice& c) { return c.key == e.key && c.value == e.value; }))
        << e.key << " = " << e.value;
    EXPECT_TRUE(std::filesystem::exists(std::string(TROOP_SOURCE_DIR "/tests/") + e.test))
        << e.test;
  }
}

}  // namespace
}  // namespace troop
