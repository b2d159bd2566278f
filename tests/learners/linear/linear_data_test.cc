// Data of linear models: sets, classes, splits and features.
#include "learners/linear/linear_data.h"

#include <gmock/gmock.h>

#include <fstream>

#include "tests/core/temp_folder.h"

namespace troop {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Returns the path of a new file.
std::string Write(const TempFolder& folder, const std::string& name, const std::string& text) {
  std::string path = folder.path() + "/" + name;
  std::ofstream(path) << text;
  return path;
}

// The config of a classifier with one or two sources.
TrainingConfig ConfigOf(const std::string& reviews, const std::string& test = "") {
  TrainingConfig config;
  config.learner.algorithm = AlgorithmKind::kClassifier;
  config.data.reviews = reviews;
  config.data.test = test;
  config.data.cache = "";
  config.evaluator_enabled = false;
  return config;
}

std::shared_ptr<const LinearData> Load(TrainingConfig config, const NgramOptions& features = {}) {
  config.features = features;
  auto data = LoadLinearData(config);
  EXPECT_TRUE(data.ok()) << data.status().ToString();
  return *std::move(data);
}

// Three classes, of which the last one has a single example.
constexpr const char* kTrain =
    "text,label\ngood film,yes\nbad film,no\nbad bad plot,no\ndull,maybe\n";
constexpr const char* kTest = "text,label\nunseen good plot,yes\n";

// Only training texts make the vocabulary; classes are in the order of their bytes.
TEST(LinearDataTest, TextsBecomeRowsOfTheTrainingVocabulary) {
  const TempFolder folder;
  const TrainingConfig config =
      ConfigOf(Write(folder, "train.csv", kTrain), Write(folder, "test.csv", kTest));
  const auto data = Load(config);
  EXPECT_THAT(data->names, ElementsAre("maybe", "no", "yes"));
  EXPECT_THAT(data->train.labels, ElementsAre(2, 1, 1, 0));
  ASSERT_TRUE(data->vectorizer.has_value());
  EXPECT_THAT(data->vectorizer->terms(), ElementsAre("bad", "dull", "film", "good", "plot"));
  EXPECT_THAT(data->train.rows.row(2).columns, ElementsAre(0, 4));
  EXPECT_THAT(data->train.rows.row(2).values, ElementsAre(2, 1));
  EXPECT_THAT(data->test.labels, ElementsAre(2));
  EXPECT_THAT(data->test.rows.row(0).columns, ElementsAre(3, 4));
  EXPECT_EQ(data->test.rows.width, 5);
  // The missing validation set is the test set.
  EXPECT_EQ(data->validation_split.rows, data->test.rows);
  const auto examples = LinearExamplesOf(data->train, ProblemType::kSingleLabel, 3);
  EXPECT_EQ(examples->outputs, 3);
  EXPECT_THAT(examples->targets, ElementsAre(-1, -1, 1, -1, 1, -1, -1, 1, -1, 1, -1, -1));
}

// Labels and numbers, whose targets are those of the loss.
TEST(LinearDataTest, LabelsAndNumbersBecomeTargets) {
  const TempFolder folder;
  TrainingConfig config = ConfigOf(Write(folder, "labels.jsonl",
                                         "{\"text\": \"one\", \"labels\": [\"a\", \"b\"]}\n"
                                         "{\"text\": \"two\", \"labels\": []}\n"));
  config.model.problem_type = ProblemType::kMultiLabel;
  const auto labels = Load(config);
  EXPECT_THAT(labels->train.targets, ElementsAre(1, 1, 0, 0));
  EXPECT_THAT(LinearExamplesOf(labels->train, ProblemType::kMultiLabel, 2)->targets,
              ElementsAre(1, 1, -1, -1));
  config = ConfigOf(Write(folder, "numbers.csv", "text,label\none,2.5\ntwo,-1\n"));
  config.model.problem_type = ProblemType::kRegression;
  const auto numbers = Load(config);
  EXPECT_TRUE(numbers->names.empty());
  EXPECT_THAT(LinearExamplesOf(numbers->train, ProblemType::kRegression, 0)->targets,
              ElementsAre(2.5f, -1));
}

// Numbers order classes; a test file may lack the largest index.
TEST(LinearDataTest, SvmlightFilesKeepTheirFeatures) {
  const TempFolder folder;
  const std::string train = Write(folder, "train.svm", "+1 1:0.5 4:2\n-1 2:1\n");
  const std::string test = Write(folder, "test.svm", "1 3:7 # unseen\n");
  const auto data = Load(ConfigOf(train, test));
  EXPECT_THAT(data->names, ElementsAre("-1", "1"));
  EXPECT_THAT(data->train.labels, ElementsAre(1, 0));
  EXPECT_FALSE(data->vectorizer.has_value());
  EXPECT_EQ(data->train.rows.width, 4);
  EXPECT_THAT(data->train.rows.row(0).columns, ElementsAre(0, 3));
  EXPECT_THAT(data->test.rows.row(0).columns, ElementsAre(2));
  EXPECT_EQ(data->test.rows.width, 4);
  EXPECT_THAT(LinearExamplesOf(data->train, ProblemType::kSingleLabel, 2)->targets,
              ElementsAre(1, -1));
  // A given width is that of all files.
  EXPECT_EQ(Load(ConfigOf(train, test), {.n_features = 9})->train.rows.width, 9);
}

// Ten of each class, of which a fifth and then a half are split off.
TEST(LinearDataTest, SplitsAreStratifiedAndLoseNothing) {
  const TempFolder folder;
  std::string table = "text,label\n";
  for (int i = 0; i < 20; ++i) table += fmt::format("word{},{}\n", i, i < 10 ? "no" : "yes");
  TrainingConfig config = ConfigOf(Write(folder, "train.csv", table));
  config.data.test_split = 0.2;
  config.data.validation_split = 0.5;
  const auto data = Load(config);
  for (const auto& [set, each] : {std::pair{&data->test, 2}, std::pair{&data->train, 4},
                                  std::pair{&data->validation_split, 4}}) {
    EXPECT_EQ(std::ranges::count(set->labels, 0), each);
    EXPECT_EQ(std::ranges::count(set->labels, 1), each);
  }
  // The vocabulary is that of the rest, one word for each text.
  EXPECT_EQ(data->vectorizer->width(), 8);
  config.seed = 2;
  EXPECT_NE(Load(config)->Identity(), data->Identity());
  config.seed = 1;
  EXPECT_EQ(Load(config)->Identity(), data->Identity());
  EXPECT_THAT(data->Identity(), HasSubstr("8 examples to learn, 8 held out, 4 to test, 2 classes"));
}

TEST(LinearDataTest, WrongDataAreNamed) {
  const TempFolder folder;
  const std::string train = Write(folder, "train.csv", kTrain);
  const std::string pairs = Write(folder, "pairs.csv", "premise,hypothesis,label\na,b,x\nc,d,y\n");
  const std::string svm = Write(folder, "train.svm", "1 1:1\n0 2:1\n");
  const std::string wide = Write(folder, "wide.svm", "1 3:1\n");
  const std::string other = Write(folder, "other.csv", "text,label\nfine,good\n");
  TrainingConfig split = ConfigOf(train, Write(folder, "test.csv", kTest));
  split.data.test_split = 0.5;
  const std::pair<TrainingConfig, const char*> cases[] = {
      {ConfigOf(folder.path() + "/none.csv"), "data.reviews: "},
      {ConfigOf(pairs), "a linear model reads single texts"},
      {ConfigOf(train, svm), "is an svmlight file, but data.reviews"},
      {ConfigOf(svm, train), "is not an svmlight file, but data.reviews"},
      {ConfigOf(svm, wide), "data.test: "},
      {ConfigOf(train, other), "data.test: line 2: the label \"good\" is not a class"},
      {split, "data.test_split is 0.5, but data.reviews"}};
  for (const auto& [config, message] : cases) {
    const auto data = LoadLinearData(config);
    ASSERT_FALSE(data.ok()) << message;
    EXPECT_THAT(data.status().message(), HasSubstr(message));
  }
  TrainingConfig rare = ConfigOf(train);
  rare.features.min_df = 9;
  EXPECT_THAT(LoadLinearData(rare).status().message(), HasSubstr("lower min_df"));
  // An evaluator needs examples.
  TrainingConfig evaluated = ConfigOf(train);
  evaluated.evaluator_enabled = true;
  EXPECT_THAT(LoadLinearData(evaluated).status().message(), HasSubstr("has no test examples"));
}

// The settings that a run fixes at its start; other data are refused by its roles.
TEST(LinearDataTest, SettingsFollowFromTheData) {
  const TempFolder folder;
  TrainingConfig config =
      ConfigOf(Write(folder, "train.csv", kTrain), Write(folder, "test.csv", kTest));
  config.learner.batch_size = 3;
  config.run.epochs = 2;
  const auto settings = DeriveLinearSettings(config);
  ASSERT_TRUE(settings.ok()) << settings.status().ToString();
  EXPECT_EQ(settings->num_features, 5);
  EXPECT_EQ(settings->vocab_size, 0);
  EXPECT_THAT(settings->labels, ElementsAre("maybe", "no", "yes"));
  EXPECT_THAT(settings->text_columns, ElementsAre("text"));
  EXPECT_EQ(settings->max_updates, 4);
  EXPECT_EQ(settings->total_steps, 8);
  config.data_identity = settings->data_identity;
  EXPECT_TRUE(LoadLinearData(config).ok());
  config.features.ngram_max = 2;
  EXPECT_THAT(LoadLinearData(config).status().message(), HasSubstr("are not the run's"));
  // A fixed number of features must be that of the data.
  config.model.num_features = 5;
  EXPECT_THAT(DeriveLinearSettings(config).status().message(),
              HasSubstr("model.num_features is 5, but the data have"));
}

}  // namespace
}  // namespace troop
