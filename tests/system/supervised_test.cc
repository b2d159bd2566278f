// A whole supervised run: learners that share batches, through a death, a stop and a resume.

#include "core/graphics/plot/line_plot.h"
#include "learners/checkpoint.h"
#include "tests/datasets/data.h"
#include "tests/system/troop_process.h"

namespace troop {
namespace {

using testing::HasSubstr;

const std::string kFixtures = TROOP_SOURCE_DIR "/tests/fixtures/supervised/";

class SupervisedTest : public SystemTest {
 protected:
  SupervisedTest() {
    std::ofstream(config()) << R"(
name = "run"
fleet = {backoff_initial_s = 0.05}
learner = {algorithm = "classifier", batch_size = 5, publish_every_updates = 20}
run = {epochs = 1e6}
data = {max_length = 16, cache = ""}
model.hidden_size = 32
model.num_hidden_layers = 2
model.num_attention_heads = 4
model.max_position_embeddings = 24
mesh.dp = 2
optimizer = {learning_rate = 2e-3}
evaluator = {enabled = false}
checkpoint = {every_s = 0.3}
log.metrics_every_s = 0.1
)";
  }
  // Writes a file of the folder and returns its path.
  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder() + "/" + name, std::ios::binary) << text;
    return folder() + "/" + name;
  }
  // The only line of a `troop train --dry-run` that fails.
  std::string Refusal(std::vector<std::string> words) const {
    words.emplace_back("--dry-run");
    const auto troop = Train(words);
    EXPECT_NE(troop->Wait(), 0) << words[0];
    EXPECT_EQ(std::ranges::count(troop->output(), '\n'), 1) << troop->output();
    return troop->output();
  }
};

// The small baseline from nothing, of all 25,000 test reviews; some ten minutes on two cores.
TEST_F(SupervisedTest, SlowBaselineReachesTestAccuracy) {
  TROOP_SKIP_WITHOUT_DATA("imdb/aclImdb_labeled.tar.xz");
  const auto troop =
      Start({"train", TROOP_SOURCE_DIR "/configs/imdb_lstm.toml", "name=run", "log.dir=" + folder(),
             "data.reviews=" + DataPath("imdb/aclImdb_labeled.tar.xz"),
             "data.vocabulary=" + DataPath("tokenizers/bert-base-uncased-vocab.txt"), "seed=2002"});
  ASSERT_EQ(troop->Wait(3000), 0) << troop->output();
  EXPECT_GE(Json(run() + "/result.json").Find("final_return_mean")->number, 87) << troop->output();
}

// A dry run prints what there would be to learn and leaves nothing behind, no tokens of 0.1 GB
// either.
TEST_F(SupervisedTest, DryRunLeavesNothing) {
  const std::string cache = folder() + "/cache";
  const auto troop =
      Train({"data.reviews=" + kFixtures + "reviews.csv", "run.epochs=1",
             "data.vocabulary=" + kFixtures + "vocab.txt", "data.cache=" + cache, "--dry-run"});
  ASSERT_EQ(troop->Wait(), 0) << troop->output();
  EXPECT_NE(troop->output().find("12 examples in 3 updates"), std::string::npos) << troop->output();
  EXPECT_FALSE(std::filesystem::exists(cache));
  EXPECT_FALSE(std::filesystem::exists(run()));
}

// A user's own table of pairs in four classes, which the last words of both texts decide.
TEST_F(SupervisedTest, LearnsFourClassesOfPairs) {
  const auto write = [&](const std::string& name, int rows) {
    std::ofstream out(folder() + name);
    out << "sentence1,sentence2,label\n";
    for (int i = 0; i < rows; ++i) {
      const bool good = i % 2 == 0, fine = i / 2 % 2 == 0;
      const char* const fill = i % 3 == 0 ? "film" : i % 3 == 1 ? "the movie" : "plot of it";
      out << fill << (good ? " good," : " bad,") << fill << (fine ? " great," : " dull,")
          << (good ? "yes" : "no") << (fine ? "/yes" : "/no") << "\n";
    }
    return folder() + name;
  };
  const auto troop =
      Train({"data.reviews=" + write("/train.csv", 48), "data.test=" + write("/test.csv", 24),
             "data.vocabulary=" + kFixtures + "vocab.txt", "run.epochs=60", "learner.batch_size=16",
             "evaluator.enabled=true", "evaluator.every_s=1", "mesh.dp=1"});
  ASSERT_EQ(troop->Wait(), 0) << troop->output();
  // By chance: 25 %.
  EXPECT_GE(Json(run() + "/result.json").Find("final_return_mean")->number, 60) << troop->output();
  // The report has the measures of the final evaluation, and what `troop eval` would print.
  const std::string report = FileText(run() + "/report.md");
  EXPECT_THAT(report,
              testing::ContainsRegex("\\| accuracy \\| [01][.][0-9]+ \\| [01][.0-9]+ to [01][.]"));
  EXPECT_THAT(report, HasSubstr("predicted class | no/no | no/yes | yes/no | yes/yes |"));
  EXPECT_EQ(report.find("![confusion matrix](confusion.png)") != std::string::npos,
            std::filesystem::exists(run() + "/confusion.png"));
  EXPECT_EQ(CheckPlots().ok(), std::filesystem::exists(run() + "/confusion.png"));
  EXPECT_TRUE(
      FileHas(run() + "/config.toml", R"(labels = ["no/no", "no/yes", "yes/no", "yes/yes"])"));
}

// Each bad input ends the command with one line that names it and the remedy.
TEST_F(SupervisedTest, RefusesBadTextsInOneLine) {
  const std::string reviews =
      "data.reviews=" + Write("t.csv", "text,label\ngood film,yes\nbad film,no\n");
  const std::string other = Write("other.csv", "text,label\nfilm,yes\nplot,maybe\n");
  const std::string empty = Write("empty.csv", "text,label\n,yes\n  ,no\n");
  const auto refusal = [&](const std::string& source, const std::string& word) {
    return Refusal({source, word, "data.vocabulary=" + kFixtures + "vocab.txt", "mesh.dp=1"});
  };
  // A column that is not there, a label of the test set alone, and texts without a word.
  EXPECT_THAT(refusal(reviews, R"(data.text_columns=["body"])"),
              HasSubstr("names \"body\", but the columns are text, label; set it"));
  EXPECT_THAT(refusal(reviews, "data.label_column=y"),
              HasSubstr("names \"y\", but the columns are text, label; set it"));
  EXPECT_THAT(refusal(reviews, "data.test=" + other),
              HasSubstr("other.csv: line 3: the label \"maybe\" is not a class of the training "
                        "examples or of model.labels: no, yes"));
  EXPECT_THAT(refusal("data.reviews=" + empty, "data.max_length=8"),
              HasSubstr("the text column \"text\" is empty in all 2 rows; set "));
  // Lists with a name too few, and without the name of a label.
  EXPECT_THAT(refusal(reviews, R"(model.labels=["yes"])"),
              HasSubstr("has 1 name, must have at least 2"));
  EXPECT_THAT(refusal(reviews, R"(model.labels=["yes", "maybe"])"),
              HasSubstr("line 3: the label \"no\" is not a class of the "));
}

TEST_F(SupervisedTest, RefusesBadModelsInOneLine) {
  namespace fs = std::filesystem;
  // The sizes come from the models.
  Write("config.toml", R"(learner.algorithm = "classifier"
data = {max_length = 16, cache = ""}
evaluator.enabled = false)");
  const std::string table = Write("t.csv", "text,label\ngood film,yes\nbad film,no\n");
  const auto words = [&](const std::string& model, const std::string& vocabulary) {
    return std::vector<std::string>{"data.reviews=" + table, "model.pretrained=" + model,
                                    "data.vocabulary=" + vocabulary, "run.epochs=1"};
  };
  // More pieces than rows of the embedding, and labels that contradict their number.
  const std::string bert = kFixtures + "bert", all = FileText(kFixtures + "vocab.txt");
  EXPECT_THAT(Refusal(words(bert, Write("longer.txt", all + "one\nmore\n"))),
              HasSubstr("longer.txt has 49 pieces, but the embedding of model.pretrained (" + bert +
                        ") has 47 rows"));
  fs::copy(bert, folder() + "/named");
  std::string settings = FileText(bert + "/config.json");
  settings.insert(settings.find('{') + 1, R"("num_labels": 3, "id2label": {"0": "a", "1": "b"},)");
  Write("named/config.json", settings);
  EXPECT_THAT(Refusal(words(folder() + "/named", kFixtures + "vocab.txt")),
              HasSubstr("\"num_labels\" is 3, but \"id2label\" has 2 labels; remove one"));
  // Shards of a model of 40 pieces: as they are, truncated, and with a damaged header.
  std::size_t end = 0;
  for (int line = 0; line < 40; ++line) end = all.find('\n', end) + 1;
  const std::string few = Write("few.txt", all.substr(0, end));
  const std::string shards = TROOP_SOURCE_DIR "/tests/fixtures/transformers/roberta/sharded";
  const std::string second = "model-00002-of-00003.safetensors";
  fs::copy(shards, folder() + "/shards");
  std::vector<std::string> dry = words(folder() + "/shards", few);
  dry.emplace_back("--dry-run");
  const auto whole = Train(dry);
  EXPECT_EQ(whole->Wait(), 0) << whole->output();
  const std::string bytes = FileText(shards + "/" + second);
  Write("shards/" + second, bytes.substr(0, 3000));
  EXPECT_THAT(Refusal(words(folder() + "/shards", few)),
              HasSubstr(second + ": the header describes 4736 bytes of data, the file has 1008"));
  Write("shards/" + second, bytes.substr(0, 20) + "x" + bytes.substr(21));
  EXPECT_THAT(Refusal(words(folder() + "/shards", few)), HasSubstr("/shards: " + second + ": "));
}

// Numbers that a word of each text decides, and files of predictions.
TEST_F(SupervisedTest, LearnsNumbersAndPredictsThem) {
  std::ofstream(folder() + "/numbers.csv") << [] {
    std::string rows = "text,score\n";
    const std::pair<const char*, const char*> words[] = {
        {"bad", "1"}, {"dull", "2.5"}, {"good", "7"}, {"wonderful", "9.5"}};
    for (int i = 0; i < 48; ++i) {
      const auto& [word, score] = words[i % 4];
      rows += fmt::format("the {} was {},{}\n", i / 4 % 2 == 0 ? "film" : "movie", word, score);
    }
    return rows;
  }();
  const auto troop =
      Train({"data.reviews=" + folder() + "/numbers.csv", "data.test_split=0.25",
             "model.problem_type=regression", "data.vocabulary=" + kFixtures + "vocab.txt",
             "run.epochs=80", "learner.batch_size=12", "evaluator.enabled=true", "mesh.dp=1"});
  ASSERT_EQ(troop->Wait(), 0) << troop->output();
  const JsonValue result = Json(run() + "/result.json");
  const JsonValue* const metrics = result.Find("final_metrics");
  ASSERT_NE(metrics, nullptr);
  EXPECT_GT(metrics->Find("pearson")->number, 0.9) << troop->output();
  const JsonValue* const bounds = result.Find("final_intervals")->Find("mse");
  EXPECT_LE(bounds->array[0].number, metrics->Find("mse")->number);
  EXPECT_GE(bounds->array[1].number, metrics->Find("mse")->number);
  EXPECT_TRUE(FileHas(run() + "/report.md", "| spearman | "));
  EXPECT_NEAR(result.Find("final_return_mean")->number, 100 * metrics->Find("pearson")->number,
              1e-3);
  // The answers of a file, in its order.
  const std::string answers = folder() + "/answers.csv";
  const auto predict =
      Start({"predict", run(), "--input", folder() + "/numbers.csv", "--output", answers});
  ASSERT_EQ(predict->Wait(), 0) << predict->output();
  std::ifstream file(answers);
  std::string line;
  std::getline(file, line);
  EXPECT_THAT(line, HasSubstr("value"));
  int rows = 0;
  for (; std::getline(file, line); ++rows) {
  }
  EXPECT_EQ(rows, 48);
}

// Labels of a JSON list, of which each has its word.
TEST_F(SupervisedTest, LearnsSeveralLabelsPerText) {
  {
    std::ofstream out(folder() + "/labels.jsonl");
    for (int i = 0; i < 64; ++i) {
      const bool plot = i % 2 == 0, acting = i / 2 % 2 == 0;
      out << fmt::format("{{\"text\": \"the {} {}\", \"labels\": [{}{}{}]}}\n",
                         plot ? "plot was" : "film was", acting ? "good" : "bad",
                         plot ? "\"plot\"" : "", plot && acting ? ", " : "",
                         acting ? "\"acting\"" : "");
    }
  }
  const auto troop = Train({"data.reviews=" + folder() + "/labels.jsonl", "data.test_split=0.25",
                            "model.problem_type=multi_label_classification",
                            "data.vocabulary=" + kFixtures + "vocab.txt", "run.epochs=200",
                            "optimizer.learning_rate=5e-4", "learner.batch_size=16",
                            "evaluator.enabled=true", "mesh.dp=1"});
  ASSERT_EQ(troop->Wait(), 0) << troop->output();
  const JsonValue result = Json(run() + "/result.json");
  // All labels of a text by chance: 25 %.
  EXPECT_GT(result.Find("final_return_mean")->number, 60) << troop->output();
  EXPECT_TRUE(FileHas(run() + "/config.toml", R"(labels = ["acting", "plot"])"));
  EXPECT_TRUE(FileHas(run() + "/model/config.json", "multi_label_classification"));
}

// It can't end by itself before it is stopped, however fast the machine is.
TEST_F(SupervisedTest, SurvivesKillAndStopAndLearnsEachReview) {
  const auto troop = Train(
      {"data.reviews=" + kFixtures + "reviews.csv", "data.vocabulary=" + kFixtures + "vocab.txt"});
  ASSERT_TRUE(AwaitSteps(200)) << troop->output();
  SendSignal(AwaitFirst("learner"), SIGKILL);
  ASSERT_TRUE(Await([&] { return FileHas(run() + "/logs/launcher.log", "learner-0 ended"); }));
  ASSERT_TRUE(AwaitSteps(Steps() + 600)) << LauncherLog();
  const auto status = Start({"status", run()});
  ASSERT_EQ(status->Wait(), 0) << status->output();
  EXPECT_NE(status->output().find(" examples\n"), std::string::npos) << status->output();
  troop->Signal(SIGINT);
  ASSERT_EQ(troop->Wait(), 130) << troop->output();
  const std::int64_t updates = *Json(run() + "/result.json").Integer("updates");
  EXPECT_GT(updates, 100);

  const std::int64_t wanted = updates + 31;  // three an epoch, of 5, 5 and 2 reviews in some order
  const auto resumed = Start({"resume", run(), "run.max_updates=" + std::to_string(wanted)});
  ExpectDone(resumed.get(), wanted / 3 * 12 + std::min<std::int64_t>(12, wanted % 3 * 5));
  EXPECT_EQ(*Json(run() + "/result.json").Integer("updates"), wanted);
  for (const char* const model : {"", "/model"}) {
    const auto said =
        Start({"predict", run() + model, "A great film, and a wonderful plot!", "Bad."});
    ASSERT_EQ(said->Wait(), 0) << said->output();
    EXPECT_TRUE(said->output().starts_with("positive (")) << said->output();
    EXPECT_NE(said->output().find("\nnegative ("), std::string::npos) << said->output();
  }
}

// The parts of a model wait for the one that died, and all go on at one update; then at another
// mesh.
TEST_F(SupervisedTest, MeshSurvivesKillAndResumesOnAnotherMesh) {
  const auto troop = Train({"data.reviews=" + kFixtures + "reviews.csv",
                            "data.vocabulary=" + kFixtures + "vocab.txt", "mesh.tp=2"});
  ASSERT_TRUE(AwaitSteps(200)) << troop->output();
  ASSERT_TRUE(
      Await([&] { return FileHas(run() + "/logs/learner-3.log", "formed a group of 4 of 4"); }));
  SendSignal(AwaitFirst("learner"), SIGKILL);
  ASSERT_TRUE(Await([&] { return FileHas(run() + "/logs/launcher.log", "learner-0 ended"); }));
  ASSERT_TRUE(AwaitSteps(Steps() + 600)) << LauncherLog();
  const auto storage = MakeDiskStorage(run());
  ASSERT_TRUE(Await([&] { return NewestCheckpoint(storage->get()).ok(); }));
  troop->Signal(SIGINT);
  ASSERT_EQ(troop->Wait(), 130) << troop->output();

  const std::int64_t updates = *Json(run() + "/result.json").Integer("updates");
  const std::int64_t wanted = updates + 31;
  const auto resumed = Start(
      {"resume", run(), "mesh.dp=1", "mesh.tp=3", "run.max_updates=" + std::to_string(wanted)});
  ExpectDone(resumed.get(), wanted / 3 * 12 + std::min<std::int64_t>(12, wanted % 3 * 5));
  EXPECT_EQ(*Json(run() + "/result.json").Integer("updates"), wanted);
  EXPECT_TRUE(FileHas(run() + "/logs/learner-2.log", "formed a group of 3 of 3"));

  // Simulates a kill between the last checkpoint and the result. Regression: no update was left
  // that would gather the slices, and the run stayed "draining" permanently.
  std::filesystem::remove(run() + "/result.json");
  std::filesystem::remove_all(run() + "/model");
  const auto again = Start({"resume", run()});
  ExpectDone(again.get(), wanted / 3 * 12 + std::min<std::int64_t>(12, wanted % 3 * 5));
  EXPECT_EQ(*Json(run() + "/result.json").Integer("updates"), wanted);
  EXPECT_TRUE(std::filesystem::exists(run() + "/model/model.safetensors"));
}

// "stopping after a checkpoint", and there was none: nothing brought the parts together for it.
TEST_F(SupervisedTest, StopOfTensorParallelModelWritesNewestState) {
  const auto troop = Train({"data.reviews=" + kFixtures + "reviews.csv",
                            "data.vocabulary=" + kFixtures + "vocab.txt", "mesh.dp=1", "mesh.tp=2",
                            "checkpoint.every_s=0"});
  ASSERT_TRUE(AwaitSteps(200)) << troop->output();
  troop->Signal(SIGINT);
  ASSERT_EQ(troop->Wait(), 130) << troop->output();
  const auto storage = MakeDiskStorage(run());
  const auto newest = NewestCheckpoint(storage->get());
  ASSERT_TRUE(newest.ok()) << LauncherLog() << RoleLog("learner-0");
  EXPECT_EQ(
      "checkpoints/" + fmt::format("{:012}", *Json(run() + "/result.json").Integer("updates")),
      *newest);
}

// Two tensor-parallel models of two slices are two workers of the parameter shards: a restarted
// learner rejoins its other slice, whether it was rank 0 or not, and the run ends in order.
TEST_F(SupervisedTest, TensorParallelModelsTrainWithParameterShards) {
  const auto troop = Train(
      {"data.reviews=" + kFixtures + "reviews.csv", "data.vocabulary=" + kFixtures + "vocab.txt",
       "mesh.tp=2", "learner.sync=paramserver", "paramserver.shards=2", "paramserver.mode=bsp"});
  ASSERT_TRUE(AwaitSteps(100)) << troop->output();
  for (const std::string learner : {"learner-0", "learner-3"}) {
    const std::string log = run() + "/logs/" + learner + ".log";
    ASSERT_TRUE(Await([&] { return FileHas(log, "formed a group of 2 of 4"); }));
  }
  SendSignal(AwaitFirst("learner"), SIGKILL);
  ASSERT_TRUE(Await([&] { return FileHas(run() + "/logs/launcher.log", "learner-0 ended"); }));
  ASSERT_TRUE(Await(
      [&] { return FileHas(run() + "/logs/learner-1.log", "the group of 2 learners has ended"); }));
  ASSERT_TRUE(AwaitSteps(Steps() + 200)) << LauncherLog();
  troop->Signal(SIGINT);
  ASSERT_EQ(troop->Wait(), 130) << troop->output() << LauncherLog();

  const std::int64_t wanted = *Json(run() + "/result.json").Integer("updates") + 40;
  const auto resumed = Start({"resume", run(), "run.max_updates=" + std::to_string(wanted)});
  ASSERT_EQ(resumed->Wait(), 0) << resumed->output() << LauncherLog();
  EXPECT_EQ(*Json(run() + "/result.json").Integer("updates"), wanted);
  const auto said = Start({"predict", run(), "A great film, and a wonderful plot!", "Bad."});
  ASSERT_EQ(said->Wait(), 0) << said->output();
  EXPECT_TRUE(said->output().starts_with("positive (")) << said->output();
  EXPECT_NE(said->output().find("\nnegative ("), std::string::npos) << said->output();
}

// The value that the run's newest checkpoint has.
std::vector<float> TrainedValue(const std::string& run) {
  const auto storage = MakeDiskStorage(run);
  const auto checkpoint = ReadCheckpoint(storage->get(), *NewestCheckpoint(storage->get()));
  const auto value = checkpoint->state.tensors.at("value").as<float>();
  return {value.begin(), value.end()};
}

// Whichever learner steps, and whichever pushes make an update: each epoch has each review once,
// and the saved model has all updates. Plain SGD at one rate gives the same result alone and
// through shards.
TEST_F(SupervisedTest, ParameterShardsMatchSingleLearner) {
  const auto train = [&](const std::string& name, std::vector<std::string> more) {
    std::vector<std::string> words{"train",
                                   config(),
                                   "name=" + name,
                                   "log.dir=" + folder(),
                                   "data.reviews=" + kFixtures + "reviews.csv",
                                   "data.vocabulary=" + kFixtures + "vocab.txt",
                                   "run.epochs=10",
                                   "mesh.dp=1",
                                   "learner.max_grad_norm=0",
                                   "optimizer.type=sgd",
                                   "optimizer.learning_rate=0.1",
                                   "optimizer.warmup_ratio=0",
                                   "optimizer.final_lr_fraction=1"};
    words.insert(words.end(), more.begin(), more.end());
    const auto troop = Start(words);
    EXPECT_EQ(troop->Wait(), 0) << troop->output();
    const JsonValue result = Json(folder() + "/" + name + "/result.json");
    EXPECT_EQ(*result.Integer("steps"), 120) << name;
    return std::pair(troop->output(), *result.Integer("updates"));
  };
  train("alone", {});
  const std::vector<float> alone = TrainedValue(folder() + "/alone");
  ASSERT_FALSE(alone.empty());
  struct Case {
    std::string name;
    std::int64_t updates;
    std::vector<std::string> words;
    bool same = true;  // the same result; else a faster learner gets a larger share of the reviews
  };
  const std::vector<Case> cases = {
      {"bsp", 30, {"paramserver.mode=bsp", "mesh.dp=2"}},
      {"async", 30, {"paramserver.mode=async"}},
      {"local_sgd",
       10,
       {"paramserver.mode=local_sgd", "paramserver.push_every=0", "paramserver.pull_every=0"}},
      {"parts",
       6,
       {"paramserver.mode=async", "mesh.tp=2", "paramserver.push_every=5",
        "paramserver.pull_every=5"}},
      {"two_async", 60, {"paramserver.mode=async", "mesh.dp=2"}, false},
      {"first_of_two", 60, {"paramserver.mode=k_of_n", "mesh.dp=2"}, false}};
  for (const Case& c : cases) {
    std::vector<std::string> words = c.words;
    words.insert(words.end(), {"learner.sync=paramserver", "paramserver.shards=2"});
    const auto [output, updates] = train(c.name, words);
    EXPECT_EQ(updates, c.updates) << c.name;
    const std::string report = FileText(folder() + "/" + c.name + "/report.md");
    const std::int64_t reviews = std::atoll(report.c_str());
    EXPECT_GE(reviews, c.same ? 120 : 90) << report;
    EXPECT_LE(reviews, c.same ? 120 : 160) << report;
    if (!c.same) continue;
    const std::vector<float> value = TrainedValue(folder() + "/" + c.name);
    ASSERT_EQ(value.size(), alone.size());
    double apart = 0;
    for (std::size_t i = 0; i < value.size(); ++i) {
      apart = std::max(apart, std::abs(double(value[i]) - double(alone[i])));
    }
    EXPECT_LT(apart, 1e-5) << c.name;
  }
}

// Regression: each learner reported the mean of its part of a batch, and the mean of those means
// was shown: with constant weights, each mesh had another loss and accuracy on the same reviews.
TEST_F(SupervisedTest, ReportsSameLossAndAccuracyInEveryMesh) {
  const std::vector<std::vector<std::string>> meshes = {
      {"mesh.dp=1"},
      {"mesh.dp=2"},
      {"mesh.dp=3", "mesh.batch_shares=[1,2,3]"},
      {"mesh.dp=3", "mesh.batch_shares=[3,1,2]", "learner.sync=paramserver",
       "paramserver.mode=bsp"}};
  double loss = 0, accuracy = 0;
  for (std::size_t i = 0; i < meshes.size(); ++i) {
    const std::string name = "mesh" + std::to_string(i);
    std::vector<std::string> words = {"name=" + name,
                                      "data.reviews=" + kFixtures + "reviews.csv",
                                      "data.vocabulary=" + kFixtures + "vocab.txt",
                                      "learner.batch_size=12",
                                      "optimizer.learning_rate=1e-30",
                                      "model.dropout=0",
                                      "model.attention_dropout=0",
                                      "model.classifier_dropout=0"};
    words.insert(words.end(), meshes[i].begin(), meshes[i].end());
    const auto troop = Train(words);
    double last_loss = -1, last_accuracy = -1;
    // At first not all learners of the shards may have reported.
    const bool same = Await([&] {
      const Result<JsonValue> line = LastMetrics(name);
      const JsonValue* const found = line.ok() ? line->Find("learner/loss") : nullptr;
      if (found == nullptr) return false;
      last_loss = found->number;
      last_accuracy = line->Find("learner/accuracy")->number;
      if (i == 0) loss = last_loss, accuracy = last_accuracy;
      return std::abs(last_loss - loss) < 1e-4 && std::abs(last_accuracy - accuracy) < 1e-6;
    });
    EXPECT_TRUE(same) << meshes[i].back() << ": loss " << last_loss << " and accuracy "
                      << last_accuracy << ", not " << loss << " and " << accuracy;
    troop->Signal(SIGINT);
    ASSERT_EQ(troop->Wait(), 130) << troop->output();
  }
}

// Parameter shards began with random weights, whatever model.pretrained named. With a learning
// rate that changes no number a run ends with what it began with.
TEST_F(SupervisedTest, AllModesStartFromPretrainedWeights) {
  const auto trained = [&](const std::string& name, const std::vector<std::string>& more) {
    std::vector<std::string> words = {"train",
                                      config(),
                                      "log.dir=" + folder(),
                                      "name=" + name,
                                      "mesh.dp=1",
                                      "run.epochs=1",
                                      "model.num_attention_heads=4",
                                      "model.hidden_size=32",
                                      "optimizer.learning_rate=1e-30",
                                      "model.num_hidden_layers=2",
                                      "optimizer.type=adam",
                                      "learner.algorithm=masked_lm",
                                      "model.vocab_size=47",
                                      "model.intermediate_size=48",
                                      "model.architecture=bert",
                                      "data.reviews=" + kFixtures + "reviews.csv",
                                      "data.vocabulary=" + kFixtures + "vocab.txt"};
    words.insert(words.end(), more.begin(), more.end());
    const auto troop = Start(words);
    EXPECT_EQ(troop->Wait(), 0) << name << "\n" << troop->output();
    return TrainedValue(folder() + "/" + name);
  };
  const std::string pretrained = "model.pretrained=" + kFixtures + "masked";
  const std::vector<float> fresh = trained("fresh", {}), wanted = trained("alone", {pretrained});
  ASSERT_FALSE(wanted.empty());
  EXPECT_NE(fresh, wanted);
  const std::vector<std::pair<std::string, std::vector<std::string>>> owners = {
      {"group", {"mesh.dp=2"}},
      {"parts", {"mesh.tp=2"}},
      {"bsp", {"learner.sync=paramserver", "paramserver.shards=2", "paramserver.mode=bsp"}},
      {"async", {"learner.sync=paramserver", "paramserver.mode=async", "mesh.dp=2"}},
      {"ssp", {"learner.sync=paramserver", "paramserver.mode=ssp", "mesh.tp=2"}}};
  for (auto [name, words] : owners) {
    words.push_back(pretrained);
    EXPECT_EQ(trained(name, words), wanted) << name;
  }
}

}  // namespace
}  // namespace troop
