#include "learners/supervised/dataset.h"
#include "core/config/enum_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <vector>

#include "datasets/text/length_bucketing.h"
#include "learners/supervised/supervised.h"
#include "nn/models/model.h"
#include "nn/models/text_model.h"
#include "tests/core/temp_folder.h"
#include "tests/learners/supervised_fixture.h"

namespace troop {
namespace {

using test::ReadText;
using test::SupervisedConfig;
using test::SupervisedFixture;
using ::testing::HasSubstr;

using Tokens = std::vector<TokenId>;

Tokens TokensOf(const TokenizedDataset& set, std::int64_t i) {
  return {set.tokens(i).begin(), set.tokens(i).end()};
}

std::map<Tokens, int> Count(std::initializer_list<const TokenizedDataset*> sets) {
  std::map<Tokens, int> count;
  for (const TokenizedDataset* set : sets)
    for (std::int64_t i = 0; i < set->size(); ++i) ++count[TokensOf(*set, i)];
  return count;
}

std::int64_t Positives(const TokenizedDataset& set) { return std::ranges::count(set.labels, 1); }

// Positive before negative, as the archives have them; no two are alike.
std::string Table(const TempFolder& folder, int of_each) {
  std::string path = folder.path() + "/reviews.csv";
  std::ofstream out(path);
  out << "review,sentiment\n";
  for (int i = 0; i < 2 * of_each; ++i) {
    for (int bit = 0; bit < 8; ++bit) out << ((i >> bit) % 2 != 0 ? "good " : "bad ");
    out << (i < of_each ? ",positive\n" : ",negative\n");
  }
  return path;
}

// Learners with different data trained together unnoticed.
TEST(ReviewDataTest, RejectsDataThatDiffersFromRun) {
  const TempFolder folder;
  TrainingConfig config = SupervisedConfig("bert");
  const std::string table = ReadText(SupervisedFixture("reviews.csv"));
  const std::string words = ReadText(SupervisedFixture("vocab.txt"));
  config.data.reviews = folder.path() + "/reviews.csv";
  config.data.vocabulary = folder.path() + "/vocab.txt";
  const auto write = [&](const std::string& rows, const std::string& vocabulary) {
    std::ofstream(config.data.reviews) << rows;
    std::ofstream(config.data.vocabulary) << vocabulary;
  };
  const auto replaced = [](std::string text, const std::string& from, const std::string& to) {
    return text.replace(text.find(from), from.size(), to);
  };
  write(table, words);
  auto settings = DeriveDataSettings(config);
  ASSERT_TRUE(settings.ok()) << settings.status().ToString();
  config.data_identity = settings->data_identity;
  EXPECT_THAT(config.data_identity, HasSubstr("12 reviews to learn (6 positive), 0 held out"));
  EXPECT_TRUE(LoadReviewData(config).ok());
  const std::pair<std::string, std::string> others[] = {
      {table + "so good,positive\n", words},                       // a row more
      {replaced(table, "Bad.,negative", "Bad.,positive"), words},  // a label
      {replaced(replaced(table, "Bad.,negative", "Bad.,positive"), "loved it.,positive",
                "loved it.,negative"),
       words},                                                  // two labels, as many of each
      {replaced(table, "Fine acting", "Fine walking"), words},  // a text
      {table, replaced(words, "good\ngreat", "great\ngood")}};  // a vocabulary
  for (const auto& [rows, vocabulary] : others) {
    write(rows, vocabulary);
    const auto data = LoadReviewData(config);
    ASSERT_EQ(data.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(data.status().message(),
                HasSubstr("are not the run's (" + config.data_identity + "); copy data.reviews"));
  }
  write(table, words);
  TrainingConfig cut = config;
  cut.data.max_length = 15;
  EXPECT_EQ(LoadReviewData(cut).status().code(), Code::kInvalidArgument);
  settings = DeriveDataSettings(cut);  // a run begins with what is there
  ASSERT_TRUE(settings.ok()) << settings.status().ToString();
  EXPECT_NE(settings->data_identity, config.data_identity);
  cut.data_identity.clear();  // what no run says
  EXPECT_TRUE(LoadReviewData(cut).ok());
}

TEST(ReviewDataTest, HoldoutIsBalancedAndLosesNoReview) {
  const TempFolder folder;
  TrainingConfig config = SupervisedConfig("bert");
  config.evaluator_enabled = true;
  config.data.reviews = Table(folder, 40);
  for (const auto& [share, held] : {std::pair{0.25, 20}, {0.1, 8}, {0.04, 3}, {0.99, 79}}) {
    config.data.validation_split = share;
    const auto data = LoadReviewData(config);
    ASSERT_TRUE(data.ok()) << data.status().message();
    const ReviewData& d = **data;
    EXPECT_EQ(d.validation_split.size(), held);
    EXPECT_EQ(d.train.size(), 80 - held);
    EXPECT_NEAR(double(Positives(d.validation_split)), held / 2.0, 0.5) << share;
    EXPECT_NEAR(double(Positives(d.train)), 40 - held / 2.0, 0.5) << share;
    const auto count = Count({&d.train, &d.validation_split});
    EXPECT_EQ(count.size(), 80u);
    EXPECT_EQ(
        d.test,
        d.validation_split);  // without test data, the validation_split serves as the test set
    EXPECT_EQ(d.lengths, LengthsOf(d.train));
  }
}

// Each fourth of them was held out: all of one sentiment.
TEST(ReviewDataTest, HoldoutOfAlternatingSentimentsIsBalancedAndSeeded) {
  const TempFolder folder;
  TrainingConfig config = SupervisedConfig("bert");
  config.data.validation_split = 0.25;
  config.data.reviews = folder.path() + "/reviews.csv";
  std::ofstream out(config.data.reviews);
  out << "review,sentiment\n";
  for (int i = 0; i < 80; ++i) {
    for (int bit = 0; bit < 8; ++bit) out << ((i >> bit) % 2 != 0 ? "good " : "bad ");
    out << (i % 2 == 0 ? ",positive\n" : ",negative\n");
  }
  out.close();
  const auto first = LoadReviewData(config), again = LoadReviewData(config);
  config.seed = 2;
  const auto other = LoadReviewData(config);
  ASSERT_TRUE(first.ok() && again.ok() && other.ok()) << first.status().ToString();
  EXPECT_EQ((*first)->validation_split.size(), 20);
  EXPECT_EQ(Positives((*first)->validation_split), 10);
  EXPECT_EQ((*again)->validation_split, (*first)->validation_split);
  EXPECT_NE((*other)->validation_split, (*first)->validation_split);
  EXPECT_EQ(Positives((*other)->validation_split), 10);
}

TEST(ReviewDataTest, RejectsSingleSentimentForClassifier) {
  const TempFolder folder;
  TrainingConfig config = SupervisedConfig("bert");
  config.data.reviews = folder.path() + "/reviews.csv";
  std::ofstream(config.data.reviews) << "review,sentiment\ngood film,positive\nfine,positive\n";
  const Status refused = LoadReviewData(config).status();
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("all 2 labeled training examples have the label"));
  config.learner.algorithm = AlgorithmKind::kMaskedLm;
  EXPECT_TRUE(LoadReviewData(config).ok());
}

TEST(ReviewDataTest, KeepsSentimentWithReview) {
  const TempFolder folder;
  TrainingConfig config = SupervisedConfig("bert");
  config.data.reviews = Table(folder, 8);
  config.data.validation_split = 0.25;
  const auto data = LoadReviewData(config);
  ASSERT_TRUE(data.ok());
  const TokenId good = 20, bad = 22;
  for (const TokenizedDataset* set : {&(*data)->train, &(*data)->validation_split}) {
    for (std::int64_t i = 0; i < set->size(); ++i) {
      const Tokens tokens = TokensOf(*set, i);
      ASSERT_EQ(tokens.size(), 10u);
      // Token 4 is bit 3 of the index, which distinguishes the first eight reviews from the others.
      EXPECT_EQ(tokens[4], set->labels[std::size_t(i)] == 1 ? bad : good);
    }
  }
}

TEST(ReviewDataTest, ReportsMissingInputsWithRemedy) {
  const TempFolder folder;
  TrainingConfig config = SupervisedConfig("bert");
  config.evaluator_enabled = true;
  const auto none = LoadReviewData(config);
  EXPECT_EQ(none.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(
      none.status().message(),
      HasSubstr("has no test examples; set data.test, or data.validation_split to a share of the "
                "training examples to evaluate on, or evaluator.enabled = false"));
  config.evaluator_enabled = false;
  EXPECT_TRUE(LoadReviewData(config).ok());
  std::filesystem::create_directories(folder.path() + "/aclImdb/test/pos");
  std::ofstream(folder.path() + "/aclImdb/test/pos/0_9.txt") << "good";
  config.data.reviews = folder.path() + "/aclImdb";
  const auto empty = LoadReviewData(config);
  EXPECT_EQ(empty.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(empty.status().message(), HasSubstr("aclImdb has no training examples"));
  config.data.reviews = folder.path() + "/none.csv";
  EXPECT_THAT(LoadReviewData(config).status().message(), HasSubstr("none.csv"));
  config = SupervisedConfig("bert");
  config.data.vocabulary = folder.path() + "/none.txt";
  EXPECT_THAT(LoadReviewData(config).status().message(), HasSubstr("none.txt does not exist"));
}

// Only `troop predict` read them: a run learned other tokens than its model was made for.
TEST(ReviewDataTest, AppliesTokenizerConfigOfVocabularyAndModel) {
  const TempFolder folder;
  TrainingConfig config = SupervisedConfig("bert");
  const auto vocabulary = std::filesystem::path(config.data.vocabulary);
  std::filesystem::create_directories(folder.path() + "/model");
  std::filesystem::copy(vocabulary, folder.path());
  for (const bool pretrained : {false, true}) {
    const std::string at = folder.path() + (pretrained ? "/model" : "");
    if (!pretrained) config.data.vocabulary = folder.path() + "/" + vocabulary.filename().string();
    config.model.pretrained = pretrained ? at : "";
    const auto refusal = [&](const std::string& settings, const char* name = "tokenizer_config") {
      const std::string path = at + "/" + name + ".json";
      std::ofstream(path) << settings;
      std::string message = LoadReviewData(config).status().message();
      std::filesystem::remove(path);
      if (!message.empty()) {
        EXPECT_THAT(message, HasSubstr(path));
      }
      return message;
    };
    EXPECT_EQ(refusal(R"({"do_lower_case": true, "model_max_length": 512, "truncation_side":
        "right", "tokenizer_class": "BertTokenizerFast", "cls_token": "[CLS]", "unk_token":
        {"content": "[UNK]"}, "sp_model_kwargs": {}, "added_tokens_decoder": {"0":
        {"content": "[PAD]", "special": true}}})"),
              "");
    EXPECT_EQ(refusal("{}", "added_tokens"), "");
    const std::pair<const char*, const char*> refused[] = {
        {R"({"do_lower_case": false})", "data.cased is false, but \"do_lower_case\" is false in "},
        {R"({"truncation_side": "left"})", "data.truncation_side is \"right\""},
        {R"({"truncation_side": "middle"})", "must be \"left\" or \"right\""},
        {R"({"strip_accents": false})", "\"strip_accents\" is false, must equal"},
        {R"({"tokenize_chinese_chars": false})", "\"tokenize_chinese_chars\" is false: only"},
        {R"({"do_split_on_punc": false})", "\"do_split_on_punc\" is false: only"},
        {R"({"additional_special_tokens": ["<x>"]})", "tokens: the token \"<x>\" is added"},
        {R"({"sp_model_kwargs": {"enable_sampling": true}})", "\"sp_model_kwargs\" is not"},
        {R"({"tokenizer_class": "BertJapaneseTokenizer"})", "is \"BertJapaneseTokenizer\": only"},
        {R"({"cls_token": "<s>"})", "\"cls_token\" is \"<s>\": only [CLS]"},
        {R"({"mask_token": {"content": "<m>"}})", "\"mask_token\" is \"<m>\": only [MASK]"},
        {R"({"added_tokens_decoder": {"9": {"content": "<x>"}}})", "the token \"<x>\" is added"},
        {R"({"added_tokens_decoder": ["<x>"]})", "\"added_tokens_decoder\" is not an object"},
        {R"({"model_max_length": "512"})", "\"model_max_length\" is not a number"},
        {R"({"never_split": true})", "\"never_split\" is not"},
        {"{", "JSON"}};
    for (const auto& [settings, why] : refused) EXPECT_THAT(refusal(settings), HasSubstr(why));
    EXPECT_THAT(refusal(R"({"<x>": 47})", "added_tokens"), HasSubstr("\"<x>\" is added"));
    EXPECT_THAT(refusal(R"({"sep_token": "</s>"})", "special_tokens_map"), HasSubstr("sep_token"));
  }
  // Tokenizer settings that the config overrides.
  config.data.truncation_side = TruncationSide::kLeft;
  std::ofstream(folder.path() + "/tokenizer_config.json")
      << R"({"truncation_side": "right", "model_max_length": 4})";
  EXPECT_TRUE(LoadReviewData(config).ok());
}

// The archive has train, test and unlabeled reviews.
TEST(ReviewDataTest, EvaluatesTestReviewsAndPretrainsOnUnlabelled) {
  TrainingConfig config = SupervisedConfig("bert");
  config.data.reviews = TROOP_SOURCE_DIR "/tests/fixtures/text/small_imdb.tar.xz";
  config.data.vocabulary = TROOP_SOURCE_DIR "/tests/fixtures/text/wordpiece.txt";
  config.evaluator_enabled = true;
  const auto tokenizer = MakeTokenizer(config.data.vocabulary, {});
  const auto reviews = ReadTexts(config.data.reviews);
  ASSERT_TRUE(tokenizer.ok() && reviews.ok());
  const auto made =
      TokenizeTexts(*reviews, {"negative", "positive"}, **tokenizer, {.max_length = 16});
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  const TokenizedTexts& there = *made;
  ASSERT_GT(there.test.size(), 0);
  ASSERT_GT(there.unlabeled.size(), 0);
  const auto data = LoadReviewData(config);
  ASSERT_TRUE(data.ok()) << data.status().message();
  EXPECT_EQ((*data)->train, there.train);
  EXPECT_EQ((*data)->test, there.test);
  EXPECT_EQ((*data)->validation_split, there.test);
  config.learner.algorithm = AlgorithmKind::kMaskedLm;
  const auto masked = LoadReviewData(config);
  ASSERT_TRUE(masked.ok());
  EXPECT_EQ((*masked)->train.size(), there.train.size() + there.unlabeled.size());
  EXPECT_EQ(Count({&(*masked)->train}), Count({&there.train, &there.unlabeled}));
  // A second source: its labelled and unlabeled reviews, not those that judge.
  config.data.unlabeled = SupervisedFixture("reviews.csv");
  const auto more = LoadReviewData(config);
  ASSERT_TRUE(more.ok());
  EXPECT_EQ((*more)->train.size(), (*masked)->train.size() + 12);
  EXPECT_EQ((*more)->test, there.test);
}

TEST(ReviewDataTest, CachedDataMatchesFreshData) {
  const TempFolder folder;
  TrainingConfig config = SupervisedConfig("bert");
  config.log_dir = folder.path();
  config.data.cache = "cache";
  const auto first = LoadReviewData(config), second = LoadReviewData(config);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_FALSE(std::filesystem::is_empty(folder.path() + "/cache"));
  EXPECT_EQ((*first)->train, (*second)->train);
  config.data.max_length = 5;  // another file
  const auto shorter = LoadReviewData(config);
  ASSERT_TRUE(shorter.ok());
  EXPECT_EQ(std::ranges::max((*shorter)->lengths), 5);
  config.data.truncation_side = TruncationSide::kLeft;  // another one
  const auto left = LoadReviewData(config), again = LoadReviewData(config);
  ASSERT_TRUE(left.ok() && again.ok());
  EXPECT_EQ((*left)->lengths, (*shorter)->lengths);
  EXPECT_NE((*left)->train, (*shorter)->train);
  EXPECT_EQ((*left)->train, (*again)->train);
  for (std::int64_t i = 0; i < (*first)->train.size(); ++i) {  // of 16 tokens, where that is all
    const auto whole = (*first)->train.tokens(i), cut = (*left)->train.tokens(i);
    if (whole.size() == 16) continue;
    EXPECT_TRUE(
        std::equal(cut.begin() + 1, cut.end(), whole.end() - std::ptrdiff_t(cut.size()) + 1))
        << i;
  }
}

TEST(ReviewDataTest, DerivesUpdateCountFromReviews) {
  TrainingConfig config = SupervisedConfig("bert");
  config.model.pretrained = "";
  config.model.vocab_size = 0;
  config.learner.batch_size = 5;
  config.run.max_updates = 0;
  config.run.epochs = 2.5;
  config.learners = config.mesh.dp = 3;
  const auto settings = DeriveDataSettings(config);
  ASSERT_TRUE(settings.ok()) << settings.status().ToString();
  EXPECT_EQ(settings->vocab_size, 47);
  // An epoch of 12 is 5 + 5 + 2; the half one begins with two batches, of 5 at most.
  EXPECT_EQ(settings->max_updates, 8);
  EXPECT_EQ(settings->total_steps, 24 + 10);
  config.run.max_updates = 3;
  const auto limited = DeriveDataSettings(config);
  ASSERT_TRUE(limited.ok()) << limited.status().ToString();
  EXPECT_EQ(limited->max_updates, 3);
  EXPECT_EQ(limited->total_steps, 12);
}

// 12 reviews in batches of 5 are 3 batches an epoch, each one push of every worker.
TEST(ReviewDataTest, DerivesParameterServerUpdatesFromEpochs) {
  struct Case {
    SyncMode mode;
    std::int64_t staleness, k, workers, parts, push_every, updates, reviews;
  };
  // Two epochs; updates are rounded up, reviews are those of the whole batches in them.
  for (const Case& c :
       {Case{SyncMode::kBsp, 0, 1, 3, 1, 1, 6, 24},       //
        Case{SyncMode::kSsp, 0, 1, 3, 1, 1, 6, 24},       //
        Case{SyncMode::kSsp, 2, 1, 3, 1, 1, 18, 24},      //
        Case{SyncMode::kAsync, 0, 1, 3, 1, 1, 18, 24},    //
        Case{SyncMode::kAsync, 0, 1, 2, 2, 1, 12, 24},    // a model in parts pushes once
        Case{SyncMode::kAsync, 0, 1, 2, 2, 2, 6, 24},     //
        Case{SyncMode::kKOfN, 0, 1, 2, 1, 1, 12, 24},     //
        Case{SyncMode::kKOfN, 0, 2, 3, 1, 1, 9, 24},      //
        Case{SyncMode::kKOfN, 0, 2, 4, 1, 2, 6, 24},      //
        Case{SyncMode::kLocalSgd, 0, 1, 3, 1, 2, 3, 24},  //
        Case{SyncMode::kLocalSgd, 0, 1, 3, 1, 4, 2, 24 + 10}}) {
    SCOPED_TRACE(fmt::format("{} of {}, {}", c.mode, c.workers, c.push_every));
    TrainingConfig config = SupervisedConfig("bert");
    config.learner.batch_size = 5;
    config.run.max_updates = 0;
    config.run.epochs = 2;
    config.learner.sync = LearnerSync::kParamServer;
    config.paramserver.mode = c.mode;
    config.paramserver.staleness = c.staleness;
    config.paramserver.k = c.k;
    config.paramserver.push_every = config.paramserver.pull_every = c.push_every;
    config.mesh.tp = c.parts;
    config.learners = c.workers * c.parts;
    const auto settings = DeriveDataSettings(config);
    ASSERT_TRUE(settings.ok()) << settings.status().ToString();
    EXPECT_EQ(settings->max_updates, c.updates);
    EXPECT_EQ(settings->total_steps, c.reviews);
  }
}

TEST(ReviewDataTest, DefaultsPushIntervalToOneEpoch) {
  TrainingConfig config = SupervisedConfig("bert");
  config.learner.batch_size = 5;
  config.learner.sync = LearnerSync::kParamServer;
  config.paramserver.push_every = config.paramserver.pull_every = 0;
  config.learners = 3;
  for (const SyncMode mode : {SyncMode::kLocalSgd, SyncMode::kAsync}) {
    config.paramserver.mode = mode;
    const auto settings = DeriveDataSettings(config);
    ASSERT_TRUE(settings.ok()) << settings.status().ToString();
    EXPECT_EQ(settings->push_every, 3) << EnumName(mode);  // 5 + 5 + 2
    EXPECT_EQ(settings->pull_every, 3) << EnumName(mode);
  }
}

TEST(ReviewDataTest, RejectsMissingPretrainedModelBeforeReadingData) {
  const TempFolder folder;
  TrainingConfig config = SupervisedConfig("bert");
  config.data.cache = folder.path() + "/cache";
  config.model.pretrained = folder.path() + "/none";
  const Status refused = DeriveDataSettings(config).status();
  EXPECT_EQ(refused.code(), Code::kNotFound);
  EXPECT_THAT(refused.message(), HasSubstr("/none: no such folder; set it to the model/ of a run"));
  EXPECT_FALSE(std::filesystem::exists(config.data.cache)) << "nor were reviews read";
  EXPECT_FALSE(std::filesystem::exists(config.model.pretrained));
}

TEST(ReviewDataTest, RejectsVocabularyLargerThanModels) {
  TrainingConfig config = SupervisedConfig("bert");
  config.model.vocab_size = 64;
  const auto padded = DeriveDataSettings(config);
  ASSERT_TRUE(padded.ok()) << padded.status().ToString();
  EXPECT_EQ(padded->vocab_size, 64);
  config.model.vocab_size = 46;
  const Status refused = DeriveDataSettings(config).status();
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("has 47 pieces, but the embedding of model.pretrained"));
  config.model.pretrained = "";
  EXPECT_THAT(DeriveDataSettings(config).status().message(), HasSubstr("model.vocab_size is 46, "));
}

// Rows of three classes, whose texts are all different; `second`: pairs.
std::string ThreeClasses(const TempFolder& folder, int rows, bool second = false) {
  std::string path = folder.path() + "/mine.csv";
  std::ofstream out(path);
  out << (second ? "premise,hypothesis,label\n" : "text,label\n");
  for (int i = 0; i < rows; ++i) {
    for (int bit = 0; bit < 8; ++bit) out << ((i >> bit) % 2 != 0 ? "good " : "bad ");
    out << (second ? ",a film," : ",") << "c" << i % 3 << "\n";
  }
  return path;
}

TEST(ReviewDataTest, LearnsClassesOfOwnTexts) {
  const TempFolder folder;
  TrainingConfig config = SupervisedConfig("bert");
  config.model.pretrained = "";
  config.data.reviews = ThreeClasses(folder, 30);
  const auto settings = DeriveDataSettings(config);
  ASSERT_TRUE(settings.ok()) << settings.status().ToString();
  EXPECT_EQ(settings->labels, (std::vector<std::string>{"c0", "c1", "c2"}));
  EXPECT_THAT(settings->data_identity,
              HasSubstr("30 examples to learn, 0 held out, 0 to test, 3 classes"));
  // The resolved config gives the same data, and a model of three classes.
  config.model.labels = settings->labels;
  config.data_identity = settings->data_identity;
  EXPECT_EQ(DeriveDataSettings(config)->data_identity, settings->data_identity);
  EXPECT_EQ(TextModelOptions(ModelSetupOf(config))->classes, 3);
  EXPECT_EQ(ReviewSpec(ModelSetupOf(config)).action.count, 3);
  // Another order of the classes is other data.
  config.model.labels = {"c2", "c1", "c0"};
  EXPECT_THAT(LoadReviewData(config).status().message(), HasSubstr("are not the run's"));
  config.data_identity.clear();
  EXPECT_EQ((*LoadReviewData(config))->train.labels[0], 2);
  config.model.labels = {"c0", "c1"};
  EXPECT_THAT(LoadReviewData(config).status().message(),
              HasSubstr("line 4: the label \"c2\" is not a class"));
}

// Shares of each class, and no example in two sets.
TEST(ReviewDataTest, SplitsOffTestAndValidation) {
  const TempFolder folder;
  TrainingConfig config = SupervisedConfig("bert");
  config.data.reviews = ThreeClasses(folder, 60);
  config.data.test_split = 0.2;
  const auto without = LoadReviewData(config);
  config.data.validation_split = 0.25;
  const auto both = LoadReviewData(config);
  ASSERT_TRUE(without.ok() && both.ok()) << both.status().ToString();
  const ReviewData& d = **both;
  EXPECT_EQ(d.test, (*without)->test);
  for (const auto& [set, each] :
       {std::pair{&d.test, 4}, {&d.validation_split, 4}, {&d.train, 12}}) {
    for (int label = 0; label < 3; ++label) {
      EXPECT_EQ(std::ranges::count(set->labels, label), each);
    }
  }
  EXPECT_EQ(Count({&d.train, &d.validation_split, &d.test}).size(), 60u);
  // Separate sources exclude the splits.
  config.data.test = config.data.reviews;
  EXPECT_THAT(LoadReviewData(config).status().message(), HasSubstr("data.test_split is 0.2, but"));
  config.data.test_split = 0;
  EXPECT_EQ((*LoadReviewData(config))->test.size(), 60);
}

TEST(ReviewDataTest, MakesSegmentsOfPairs) {
  const TempFolder folder;
  TrainingConfig config = SupervisedConfig("bert");
  config.data.reviews = ThreeClasses(folder, 6, true);
  const auto data = LoadReviewData(config);
  ASSERT_TRUE(data.ok()) << data.status().ToString();
  EXPECT_TRUE((*data)->pairs());
  const TextCollator collator(config, (*data)->tokenizer);
  const std::vector<std::int32_t> samples = {0};
  const TextBatch batch = collator.ForJudging((*data)->train, samples);
  // [CLS], eight words, [SEP]; "a film", [SEP].
  EXPECT_EQ(batch.types, (std::vector<std::int32_t>{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(batch.labels, (std::vector<std::int32_t>{0}));
}

// Prediction reads the columns of the run as one text or a pair, so the tables must have the same.
TEST(ReviewDataTest, ResolvesTextColumnsOfAllTables) {
  const TempFolder folder;
  TrainingConfig config = SupervisedConfig("bert");
  const auto write = [&](const std::string& name, const std::string& columns) {
    std::ofstream out(folder.path() + "/" + name);
    out << columns << ",label\n";
    for (const char* const label : {"x", "y"}) {
      out << (columns.find(',') == columns.npos ? "good," : "good,bad,") << label << "\n";
    }
    return folder.path() + "/" + name;
  };
  const auto resolved = [&]() -> std::vector<std::string> {
    const auto settings = DeriveDataSettings(config);
    if (!settings.ok()) return {settings.status().message()};
    return settings->text_columns;
  };
  using Names = std::vector<std::string>;
  config.data.reviews = write("pairs.csv", "premise,hypothesis");
  EXPECT_EQ(resolved(), (Names{"premise", "hypothesis"}));
  config.data.validation = write("validation.csv", "premise,hypothesis");
  config.data.test = write("test.csv", "sentence1,sentence2");
  EXPECT_THAT(resolved().at(0),
              HasSubstr("has the text columns sentence1 and sentence2, but data.reviews: "));
  EXPECT_THAT(resolved().at(0), HasSubstr("pairs.csv has premise and hypothesis; rename them"));
  config.data.test = write("test.csv", "hypothesis,text,premise");
  EXPECT_THAT(resolved().at(0), HasSubstr("test.csv")) << "another number of fields";
  config.data.test.clear();
  // Given columns stay, and those of a masked LM do not matter.
  config.data.text_columns = {"hypothesis"};
  EXPECT_EQ(resolved(), Names{"hypothesis"});
  config.data.text_columns.clear();
  config.learner.algorithm = AlgorithmKind::kMaskedLm;
  EXPECT_EQ(resolved(), Names{});
}

TEST(ReviewDataTest, GivesTargetsOfOtherProblems) {
  const TempFolder folder;
  TrainingConfig config = SupervisedConfig("bert");
  const auto batch = [&](ProblemType problem, const std::string& rows) {
    config.model.problem_type = problem;
    config.data.reviews = folder.path() + "/mine.csv";
    std::ofstream(config.data.reviews) << "text,label\n" << rows;
    const auto data = LoadReviewData(config);
    EXPECT_TRUE(data.ok()) << data.status().ToString();
    if (!data.ok()) return TextBatch();
    const TextCollator collator(config, (*data)->tokenizer);
    const std::vector<std::int32_t> samples = {1, 0};
    return collator.ForJudging((*data)->train, samples);
  };
  const TextBatch many = batch(ProblemType::kMultiLabel, "good,b|a\nbad,b\n");
  EXPECT_EQ(many.targets, (std::vector<float>{0, 1, 1, 1}));
  EXPECT_TRUE(many.labels.empty());
  const TextBatch numbers = batch(ProblemType::kRegression, "good,4.5\nbad,-1\n");
  EXPECT_EQ(numbers.targets, (std::vector<float>{-1, 4.5}));
  EXPECT_EQ(TextModelOptions(ModelSetupOf(config))->classes, 1);
}

// The initial bias of the output of a new model.
float OutputBias(const TrainingConfig& config) {
  const auto module = MakeTextModel(ModelSetupOf(config));
  EXPECT_TRUE(module.ok()) << module.status().ToString();
  std::vector<float> value(std::size_t(ParameterCount(**module)));
  EXPECT_TRUE(FirstWeights(config, **module, value).ok());
  for (const ParamSpec& spec : (*module)->params()) {
    if (spec.name == "classifier.bias") return value[std::size_t(spec.offset)];
  }
  ADD_FAILURE() << "no classifier.bias";
  return 0;
}

// Its targets are far from 0, which a model would otherwise approach by small steps of the bias.
TEST(ReviewDataTest, RegressionStartsAtMeanOfTargets) {
  const TempFolder folder;
  TrainingConfig config = SupervisedConfig("bert");
  config.data.reviews = folder.path() + "/mine.csv";
  std::ofstream(config.data.reviews) << "text,label\ngood,40\nbad,-10\nfilm,3\n";
  config.model.problem_type = ProblemType::kRegression;
  config.model.pretrained.clear();
  for (const auto architecture : {ModelArchitecture::kBert, ModelArchitecture::kLstm}) {
    SCOPED_TRACE(EnumName(architecture));
    config.model.architecture = architecture;
    config.model.output_bias = 0;
    EXPECT_EQ(OutputBias(config), 0);
    const auto settings = DeriveDataSettings(config);
    ASSERT_TRUE(settings.ok()) << settings.status().ToString();
    EXPECT_EQ(settings->output_bias, 11);
    config.model.output_bias = settings->output_bias;
    EXPECT_EQ(OutputBias(config), 11);
    // A value that is set stays.
    config.model.output_bias = 7;
    EXPECT_EQ(DeriveDataSettings(config)->output_bias, 7);
  }
  // Classes have no mean.
  config.model.problem_type = ProblemType::kMultiLabel;
  config.model.output_bias = 0;
  EXPECT_EQ(DeriveDataSettings(config)->output_bias, 0);
}

}  // namespace
}  // namespace troop
