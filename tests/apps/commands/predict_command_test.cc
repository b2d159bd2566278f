#include "apps/commands/predict_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "apps/commands/cli.h"
#include "core/storage/storage.h"
#include "fleet/config/role_configs.h"
#include "fleet/launcher/exit_code.h"
#include "learners/checkpoint.h"
#include "learners/supervised/supervised.h"
#include "nn/io/hugging_face.h"
#include "nn/models/model.h"
#include "nn/models/text_model.h"
#include "tests/core/temp_folder.h"
#include "tests/fleet/supervised_run_config.h"
#include "tests/learners/supervised_fixture.h"
#include "tests/testing/captured_log.h"

namespace troop {
namespace {

namespace fs = std::filesystem;
using test::ReadText;
using test::SupervisedExpected;
using test::SupervisedFixture;
using test::SupervisedRunConfig;
using ::testing::HasSubstr;

void Write(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// A model of the fixtures with its vocabulary, as people copy one.
class Folder {
 public:
  explicit Folder(const std::string& model) : path_(temp_.path() + "/model") {
    fs::copy(SupervisedFixture(model), path_);
    fs::copy(SupervisedFixture("vocab.txt"), path_);
  }
  const std::string& path() const { return path_; }
  void Set(const char* name, const std::string& text) const { Write(fs::path(path_) / name, text); }
  void Replace(const char* name, const std::string& what, const std::string& with) const {
    std::string text = ReadText(path_ + "/" + name);
    const std::size_t at = text.find(what);
    ASSERT_NE(at, text.npos) << what;
    Set(name, text.replace(at, what.size(), with));
  }

 private:
  TempFolder temp_;
  std::string path_;
};

std::string Say(const PredictOptions& options, const std::string& input = "") {
  std::istringstream in(input);
  std::ostringstream out;
  const Status status = PredictTexts(options, in, out);
  return status.ok() ? out.str() : status.ToString();
}

int Command(std::vector<std::string> words) {
  words.insert(words.begin(), "troop");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  return RunCommand(int(argv.size()), argv.data());
}

std::vector<JsonValue> SayJson(const std::string& path, const std::vector<std::string>& texts) {
  std::istringstream lines(Say({.path = path, .texts = texts, .json = true}));
  std::vector<JsonValue> said;
  for (std::string line; std::getline(lines, line);) {
    auto json = ParseJson(line);
    EXPECT_TRUE(json.ok()) << line;
    if (json.ok()) said.push_back(*std::move(json));
  }
  EXPECT_EQ(said.size(), texts.size());
  said.resize(texts.size());
  return said;
}

std::vector<std::string> Texts() {
  std::vector<std::string> texts;
  for (const JsonValue& text : SupervisedExpected().Find("texts")->array)
    texts.push_back(*text.String("text"));
  return texts;
}

double NumberAt(const JsonValue& json, const char* key) {
  const JsonValue* const found = json.Find(key);
  EXPECT_NE(found, nullptr) << key;
  return found == nullptr ? -1 : found->number;
}

// The predictions of a model folder for Texts() equal those of Hugging Face transformers. The
// fixtures have no id2label.
void ExpectFixtures(const std::string& path, const std::string& family,
                    const std::vector<std::string>& names = {"LABEL_0", "LABEL_1"}) {
  const JsonValue& expected = SupervisedExpected();
  const std::vector<JsonValue> said = SayJson(path, Texts());
  for (std::size_t i = 0; i < said.size(); ++i) {
    const JsonValue& text = expected.Find("texts")->array[i];
    for (const char* const key : {"tokens", "unknown", "cut"})
      EXPECT_EQ(NumberAt(said[i], key), NumberAt(text, key)) << key << " " << i;
    const JsonValue& p = expected.Find(family)->Find("texts")->array[i];
    const JsonValue* const ours = said[i].Find("probabilities");
    ASSERT_NE(ours, nullptr);
    EXPECT_NEAR(NumberAt(*ours, names[0].c_str()), p.array[0].number, 1e-4) << family << " " << i;
    EXPECT_NEAR(NumberAt(*ours, names[1].c_str()), p.array[1].number, 1e-4) << family << " " << i;
    EXPECT_EQ(*said[i].String("label"), names[p.array[0].number > p.array[1].number ? 0 : 1]);
    EXPECT_EQ(*said[i].String("text"), *text.String("text"));
  }
}

TEST(PredictTest, ProbabilitiesAndTokensMatchTransformers) {
  for (const char* const family : {"bert", "albert"}) ExpectFixtures(Folder(family).path(), family);
}

TEST(PredictTest, PredictsMaskedWords) {
  const Folder folder("masked");
  for (const JsonValue& expected : SupervisedExpected().Find("masked")->array) {
    const JsonValue said = SayJson(folder.path(), {*expected.String("text")})[0];
    EXPECT_EQ(*said.Integer("tokens"), *expected.Integer("tokens"));
    const auto& masks = said.Find("masks")->array;
    const auto& places = expected.Find("places")->array;
    ASSERT_EQ(masks.size(), places.size());
    for (std::size_t m = 0; m < masks.size(); ++m) {
      ASSERT_EQ(masks[m].array.size(), places[m].array.size());
      for (std::size_t i = 0; i < masks[m].array.size(); ++i) {
        const auto& [word, p] = std::tie(places[m].array[i].array[0], places[m].array[i].array[1]);
        EXPECT_EQ(*masks[m].array[i].String("word"), word.string);
        EXPECT_NEAR(NumberAt(masks[m].array[i], "probability"), p.number, 1e-4);
      }
    }
  }
  EXPECT_THAT(Say({.path = folder.path(), .texts = {"a [MASK] film"}}),
              ::testing::AllOf(HasSubstr("good 0.2086, an 0.1046, "), HasSubstr("; 5 tokens\n")));
  EXPECT_THAT(Say({.path = folder.path(), .texts = {"a film"}}),
              HasSubstr("no answer: this is a masked language model; mark the word"));
}

TEST(PredictTest, PrintsOneLinePerText) {
  const Folder folder("bert");
  EXPECT_EQ(Say({.path = folder.path(), .texts = Texts()}),
            "LABEL_0 (LABEL_0 0.7216, LABEL_1 0.2784); 6 tokens\n"
            "LABEL_0 (LABEL_0 0.6938, LABEL_1 0.3062); 3 tokens\n"
            "LABEL_0 (LABEL_0 0.7275, LABEL_1 0.2725); 5 tokens, 2 of them unknown\n"
            "LABEL_0 (LABEL_0 0.6722, LABEL_1 0.3278); 24 tokens, 19 more truncated\n");
  const std::string none = "no answer: the text is empty\n";
  EXPECT_EQ(Say({.path = folder.path(), .texts = {"", " \t\n"}}), none + none);
  const JsonValue said = SayJson(folder.path(), {""})[0];
  EXPECT_EQ(said.Find("label")->kind, JsonValue::Kind::kNull);
  EXPECT_EQ(said.Find("probabilities")->kind, JsonValue::Kind::kNull);
  EXPECT_EQ(*said.Integer("tokens"), 2);
  EXPECT_EQ(
      Say({.path = folder.path(), .texts = {std::string("\xff\x00\xfe good", 8)}}).substr(0, 7),
      "LABEL_0");
}

TEST(PredictTest, AcceptsWindowsLineEndings) {
  const Folder folder("bert");
  const std::string said = Say({.path = folder.path(), .json = true}, "a good film\r\nbad\n");
  EXPECT_THAT(said, HasSubstr("\"a good film\""));
  EXPECT_THAT(said, HasSubstr("\"bad\""));
}

// Gives lines one by one, and looks at what was said before each.
class Watched final : public std::streambuf {
 public:
  Watched(std::vector<std::string> lines, const std::ostringstream* out)
      : lines_(std::move(lines)), out_(out) {}
  std::vector<std::ptrdiff_t> said;  // lines, before each was read

 private:
  int_type underflow() override {
    const std::string text = out_->str();
    said.push_back(std::ranges::count(text, '\n'));
    if (next_ == lines_.size()) return traits_type::eof();
    std::string& line = lines_[next_++];
    setg(line.data(), line.data(), line.data() + line.size());
    return traits_type::to_int_type(line[0]);
  }
  std::vector<std::string> lines_;
  const std::ostringstream* const out_;
  std::size_t next_ = 0;
};

TEST(PredictTest, AnswersEachLineBeforeReadingNext) {
  const Folder folder("bert");
  std::ostringstream out;
  Watched input({"dull\n", "\n", "A GREAT movie!"}, &out);
  std::istream in(&input);
  ASSERT_TRUE(PredictTexts({.path = folder.path()}, in, out).ok());
  EXPECT_EQ(out.str(),
            "LABEL_0 (LABEL_0 0.6938, LABEL_1 0.3062); 3 tokens\n"
            "no answer: the text is empty\n"
            "LABEL_0 (LABEL_0 0.7216, LABEL_1 0.2784); 6 tokens\n");
  EXPECT_EQ(input.said, (std::vector<std::ptrdiff_t>{0, 1, 2, 2}));
}

// They were read as U+FFFD without a word.
TEST(PredictTest, WarnsAboutAndAnswersInvalidUtf8) {
  const Folder folder("bert");
  std::ostringstream out;
  std::istringstream in(
      "dull\nA GR\xc9"
      "AT movie\n\xe9\n");
  const CapturedLog log;
  ASSERT_TRUE(PredictTexts({.path = folder.path()}, in, out).ok());
  const std::string said = log.text();
  EXPECT_THAT(said, HasSubstr("text 2 is not UTF-8"));
  EXPECT_THAT(said, ::testing::Not(HasSubstr("text 3 is")));
  EXPECT_THAT(said, HasSubstr("2 of 3 texts are not UTF-8"));
  const std::string answers = out.str();
  EXPECT_EQ(std::ranges::count(answers, '\n'), 3);
}

TEST(PredictTest, AppliesTokenizerConfig) {
  const Folder folder("bert");
  const auto tokens = [&](const char* settings) {
    folder.Set("tokenizer_config.json", settings);
    const std::string line =
        Say({.path = folder.path(), .texts = {"A GREAT movie and film, and plot"}});
    return line.substr(line.find(';') + 1);
  };
  EXPECT_EQ(tokens("{}"), " 10 tokens\n");
  EXPECT_EQ(tokens(R"({"do_lower_case": true})"), " 10 tokens\n");
  EXPECT_EQ(tokens(R"({"do_lower_case": false})"), " 10 tokens, 2 of them unknown\n");
  EXPECT_EQ(tokens(R"({"model_max_length": 8})"), " 8 tokens, 2 more truncated\n");
  EXPECT_EQ(tokens(R"({"model_max_length": 1000000000000000019884624838656})"), " 10 tokens\n");
  // Cut on the left it is as if the beginning had never been.
  folder.Set("tokenizer_config.json", R"({"model_max_length": 8, "truncation_side": "left"})");
  const auto said = [&](const char* text) { return SayJson(folder.path(), {text})[0]; };
  const JsonValue cut = said("A GREAT movie and film, and plot");
  EXPECT_EQ(*cut.Integer("cut"), 2);
  EXPECT_EQ(NumberAt(*cut.Find("probabilities"), "LABEL_1"),
            NumberAt(*said("movie and film, and plot").Find("probabilities"), "LABEL_1"));
  const auto refusal = [&](const char* settings) {
    folder.Set("tokenizer_config.json", settings);
    return Say({.path = folder.path(), .texts = {"a"}});
  };
  EXPECT_THAT(refusal(R"({"do_lower_case": 1})"), HasSubstr("\"do_lower_case\" is neither true"));
  EXPECT_THAT(refusal(R"({"strip_accents": false})"), HasSubstr("\"strip_accents\" is false"));
  for (const char* const settings :
       {R"({"tokenize_chinese_chars": false})", R"({"do_basic_tokenize": false})",
        R"({"clean_text": false})", R"({"keep_accents": true})", R"({"remove_space": false})",
        R"({"never_split": ["a"]})"}) {
    EXPECT_THAT(refusal(settings), HasSubstr("supported")) << settings;
  }
  EXPECT_EQ(tokens(R"({"tokenize_chinese_chars": true, "never_split": null})"), " 10 tokens\n");
  EXPECT_THAT(refusal(R"({"model_max_length": 2})"), HasSubstr("limit is 2 tokens"));
  EXPECT_THAT(refusal("{"), HasSubstr("tokenizer_config.json"));
}

TEST(PredictTest, RejectsUnsupportedModelConfig) {
  const Folder folder("bert");
  const auto refusal = [&](const char* from, const std::string& to) {
    folder.Set("config.json", ReadText(SupervisedFixture("bert/config.json")));
    folder.Replace("config.json", from, to);
    return Say({.path = folder.path(), .texts = {"dull"}});
  };
  EXPECT_THAT(refusal("\"is_decoder\": false", "\"is_decoder\": true"),
              HasSubstr("\"is_decoder\" is true"));
  EXPECT_THAT(refusal("{", "{\"problem_type\": \"regression\","),
              HasSubstr("\"regression\", but the model has 2 outputs"));
  EXPECT_THAT(refusal("{", "{\"problem_type\": \"ranking\","), HasSubstr("\"ranking\": only"));
  for (const std::string type : {"\"single_label_classification\"", "null"}) {
    EXPECT_THAT(refusal("{", "{\"problem_type\": " + type + ","), HasSubstr("LABEL_0"));
  }
}

TEST(PredictTest, NamesClassesAsConfigured) {
  const Folder folder("bert");
  const auto named = [&](const char* labels) {
    folder.Set("config.json", ReadText(SupervisedFixture("bert/config.json")));
    folder.Replace("config.json", "\"initializer_range\"",
                   std::string("\"id2label\": ") + labels + ", \"initializer_range\"");
    const std::string line = Say({.path = folder.path(), .texts = {"dull"}});
    return line.substr(0, line.find(';'));
  };
  EXPECT_EQ(named(R"({"0": "bad", "1": "good"})"), "bad (bad 0.6938, good 0.3062)");
  EXPECT_EQ(named(R"({"0": "LABEL_0", "1": "LABEL_1"})"),
            "LABEL_0 (LABEL_0 0.6938, LABEL_1 0.3062)");
  EXPECT_EQ(named(R"({"0": "same", "1": "same"})"), "same (same 0.6938, LABEL_1 0.3062)");
  EXPECT_EQ(named(R"({"0": "\u001b[2J", "1": "good"})"), "LABEL_0 (LABEL_0 0.6938, good 0.3062)");
}

// Two vocabularies that fit ALBERT: that of SentencePiece is known by its name.
TEST(PredictTest, UsesSentencePieceModelAsVocabulary) {
  const TempFolder temp;
  const std::string vocabulary = TROOP_SOURCE_DIR "/tests/fixtures/text/unigram.model";
  Config config = SupervisedRunConfig("albert");
  config.model.vocab_size = 2000;
  const auto module = MakeTextModel(ModelSetupOf(config));
  ASSERT_TRUE(module.ok());
  std::vector<float> value(std::size_t(ParameterCount(**module)));
  InitParameters(**module, 1, value);
  const auto storage = MakeDiskStorage(temp.path());
  ASSERT_TRUE(storage.ok());
  config.data.vocabulary = vocabulary;
  const Status written = WriteModel(TrainingConfigOf(config), storage->get(), **module, value);
  ASSERT_TRUE(written.ok()) << written.message();
  const CapturedLog log;
  EXPECT_THAT(Say({.path = temp.path() + "/model", .texts = {"a"}}), HasSubstr("; 3 tokens\n"));
  EXPECT_THAT(log.text(),
              HasSubstr("has 420 pieces, but the model has 2000: it may belong to another model"));
  EXPECT_THAT(Say({.path = temp.path() + "/model", .texts = {"a \xe4\xb8\xad"}}),
              HasSubstr(" 1 of them unknown\n"));
}

// A run that begins with the fixture's weights, its checkpoint and its model say what that says.
TEST(PredictTest, RunCheckpointAndModelGiveSameAnswers) {
  for (const char* const family : {"bert", "albert"}) {
    const TempFolder temp;
    const auto storage = MakeDiskStorage(temp.path());
    ASSERT_TRUE(storage.ok());
    const std::string vocabulary = temp.path() + "/vocab.txt";
    fs::copy(SupervisedFixture("vocab.txt"), vocabulary);
    Config config = SupervisedRunConfig(family);
    config.data.max_length = config.model.max_position_embeddings;
    config.data.vocabulary = vocabulary;
    config.model.labels = {"negative", "positive"};
    const auto algorithm = MakeSupervised(TrainingConfigOf(config));
    ASSERT_TRUE(algorithm.ok()) << algorithm.status().message();
    const auto module = MakeTextModel(ModelSetupOf(config));
    ASSERT_TRUE(module.ok());
    const auto checkpoint = WriteCheckpoint(
        storage->get(), **module,
        {.updates = 7, .config_toml = ToToml(config), .state = (*algorithm)->State()}, 3);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    ExpectFixtures(temp.path(), family, config.model.labels);
    ExpectFixtures(temp.path() + "/", family, config.model.labels);
    ExpectFixtures(temp.path() + "/" + *checkpoint, family, config.model.labels);
    ASSERT_TRUE(WriteBestCheckpoint(storage->get(), **module,
                                    {.updates = 7,
                                     .config_toml = ToToml(config),
                                     .state = (*algorithm)->State(),
                                     .score = CheckpointScore{.score = 50}})
                    .ok());
    ASSERT_TRUE(
        WriteModel(TrainingConfigOf(config), storage->get(), **module, (*algorithm)->value()).ok());
    fs::remove(vocabulary);  // the run has its own now
    ExpectFixtures(temp.path(), family, config.model.labels);
    ExpectFixtures(temp.path() + "/" + *checkpoint + "/", family, config.model.labels);
    ExpectFixtures(temp.path() + "/model", family, config.model.labels);
    ExpectFixtures(temp.path() + "/best", family,
                   config.model.labels);  // with the vocabulary of the run
    EXPECT_EQ(Say({.path = temp.path(), .texts = {"A fine film"}, .best = true}),
              Say({.path = temp.path() + "/best", .texts = {"A fine film"}}));
    EXPECT_THAT(Say({.path = temp.path() + "/best", .texts = {"a"}, .best = true}),
                HasSubstr("omit --best"));
    fs::remove_all(temp.path() + "/model");
    EXPECT_THAT(Say({.path = temp.path(), .texts = {"a"}}), HasSubstr("vocab.txt does not exist"));
  }
}

// The fixture's texts as test reviews, every other one called positive.
TEST(PredictTest, EvaluationOfTestReviewsMatchesTransformers) {
  const TempFolder temp;
  const auto storage = MakeDiskStorage(temp.path());
  ASSERT_TRUE(storage.ok());
  for (const char* const folder : {"train/pos", "train/neg", "test/pos", "test/neg"})
    fs::create_directories(temp.path() + "/aclImdb/" + folder);
  Write(temp.path() + "/aclImdb/train/pos/0_9.txt", "good");
  Write(temp.path() + "/aclImdb/train/neg/0_1.txt", "bad");
  const std::vector<std::string> texts = Texts();
  double right = 0, loss = 0;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const bool positive = i % 2 == 0;
    Write(fmt::format("{}/aclImdb/test/{}/{}_5.txt", temp.path(), positive ? "pos" : "neg", i / 2),
          texts[i]);
    const JsonValue& p = SupervisedExpected().Find("bert")->Find("texts")->array[i];
    right += p.array[positive].number > 0.5;
    loss -= std::log(p.array[positive].number);
  }
  Config config = SupervisedRunConfig("bert");
  config.data.reviews = temp.path() + "/aclImdb";
  config.data.max_length = config.model.max_position_embeddings;
  config.evaluator.enabled = true;
  const auto algorithm = MakeSupervised(TrainingConfigOf(config));
  const auto module = MakeTextModel(ModelSetupOf(config));
  ASSERT_TRUE(algorithm.ok() && module.ok());
  ASSERT_TRUE(WriteCheckpoint(storage->get(), **module,
                              {.config_toml = ToToml(config), .state = (*algorithm)->State()}, 3)
                  .ok());
  const auto count = double(texts.size());
  ::testing::internal::CaptureStdout();
  const int code = Command({"eval", temp.path(), "--json"});
  std::fflush(stdout);
  const auto said = ParseJson(::testing::internal::GetCapturedStdout());
  ASSERT_EQ(code, kExitOk);
  ASSERT_TRUE(said.ok()) << said.status().ToString();
  EXPECT_EQ(NumberAt(*said, "evaluated"), count);
  EXPECT_NEAR(NumberAt(*said, "accuracy_percent"), 100 * right / count, 1e-3);
  EXPECT_NEAR(NumberAt(*said, "cross_entropy"), loss / count, 1e-3);
  // Regression: the interval of 0 % or 100 % was printed as "± 0.00".
  const double low = NumberAt(*said, "accuracy_percent_low");
  const double high = NumberAt(*said, "accuracy_percent_high");
  EXPECT_GT(high - low, 1);
  const std::string interval =
      fmt::format("% accuracy (95 % interval {:.2f} to {:.2f})", low, high);
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(Command({"eval", temp.path()}), kExitOk);
  std::fflush(stdout);
  EXPECT_THAT(::testing::internal::GetCapturedStdout(),
              HasSubstr(fmt::format("{}, of {} test examples", interval, count)));
  EXPECT_EQ(Command({"eval", temp.path(), "--episodes", "0"}), kExitUsage);
  EXPECT_EQ(Command({"eval", temp.path(), "--record", temp.path() + "/x"}), kExitUsage);
  EXPECT_FALSE(std::filesystem::exists(temp.path() + "/x"));
  EXPECT_EQ(Command({"play", temp.path()}), kExitUsage) << "there is nothing to play";
}

// Weights so large that the logits are NaN gave a label, and exit code 0.
// A checkpoint states whether its model takes pairs, whatever the data have become since.
TEST(PredictTest, RunOfPairsRefusesSingleTexts) {
  const TempFolder temp;
  const auto storage = MakeDiskStorage(temp.path());
  Config config = SupervisedRunConfig("bert");
  config.data.reviews = temp.path() + "/mine.csv";
  config.data.text_columns = {"text", "reply"};
  Write(config.data.reviews, "text,reply,label\ngood,a,negative\nbad,b,positive\n");
  const auto algorithm = MakeSupervised(TrainingConfigOf(config));
  const auto module = MakeTextModel(ModelSetupOf(config));
  ASSERT_TRUE(algorithm.ok() && module.ok()) << algorithm.status().message();
  ASSERT_TRUE(WriteCheckpoint(storage->get(), **module,
                              {.config_toml = ToToml(config), .state = (*algorithm)->State()}, 3)
                  .ok());
  EXPECT_THAT(Say({.path = temp.path(), .texts = {"a"}}), HasSubstr("trained on pairs of texts"));
  EXPECT_THAT(Say({.path = temp.path(), .texts = {"a"}, .text_pair = "b"}),
              HasSubstr("negative ("));
  Write(config.data.reviews, "text,label\ngood,negative\nbad,positive\n");
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(Command({"eval", temp.path()}), kExitUsage);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("data.text_columns names \"reply\", but the columns are text, label"));
}

TEST(PredictTest, RejectsWeightsThatGiveNaN) {
  for (const char* const model : {"bert", "masked"}) {
    const Folder folder(model);
    const std::string file = folder.path() + "/model.safetensors";
    std::string bytes = ReadText(file);
    const float large = 1e30f;
    std::uint64_t header = 0;
    std::memcpy(&header, bytes.data(), sizeof header);
    for (std::size_t at = 8 + header; at + sizeof large <= bytes.size(); at += sizeof large)
      std::memcpy(bytes.data() + at, &large, sizeof large);
    Write(file, bytes);
    EXPECT_THAT(Say({.path = folder.path(), .texts = {"a good [MASK]"}}),
                HasSubstr("non-finite values for this text"))
        << model;
    EXPECT_EQ(Command({"predict", folder.path(), "a good [MASK]"}), kExitDamaged) << model;
  }
}

TEST(PredictTest, TruncatesTextToTrainedLength) {
  const TempFolder temp;
  const auto storage = MakeDiskStorage(temp.path());
  ASSERT_TRUE(storage.ok());
  const Config config = SupervisedRunConfig("bert");  // 16 tokens of 24 positions
  const auto algorithm = MakeSupervised(TrainingConfigOf(config));
  const auto module = MakeTextModel(ModelSetupOf(config));
  ASSERT_TRUE(algorithm.ok() && module.ok());
  ASSERT_TRUE(WriteCheckpoint(storage->get(), **module,
                              {.config_toml = ToToml(config), .state = (*algorithm)->State()}, 3)
                  .ok());
  ASSERT_TRUE(
      WriteModel(TrainingConfigOf(config), storage->get(), **module, (*algorithm)->value()).ok());
  for (const char* const path : {"", "/model"})
    EXPECT_THAT(Say({.path = temp.path() + path, .texts = {Texts()[3]}}),
                HasSubstr("; 16 tokens, 27 more truncated\n"));
}

// All weights are 0 but for a bias: the logits are 0 and 1. A run without names is of an earlier
// version, whose classes are sentiments.
TEST(PredictTest, PredictsFromLstmCheckpoint) {
  const TempFolder temp;
  const auto storage = MakeDiskStorage(temp.path());
  ASSERT_TRUE(storage.ok());
  Config config = SupervisedRunConfig("lstm");
  config.model.pretrained = "";
  const auto module = MakeTextModel(ModelSetupOf(config));
  ASSERT_TRUE(module.ok()) << module.status().message();
  Tensor value(DType::kF32, {ParameterCount(**module)});
  std::ranges::fill(value.as<float>(), 0.0f);
  const ParamSpec& bias = (*module)->params().back();
  ASSERT_EQ(bias.shape, Shape({2})) << bias.name;
  value.as<float>()[std::size_t(bias.offset) + 1] = 1;
  TensorFile state;
  state.tensors["value"] = value;
  ASSERT_TRUE(
      WriteCheckpoint(storage->get(), **module, {.config_toml = ToToml(config), .state = state}, 3)
          .ok());
  EXPECT_EQ(Say({.path = temp.path(), .texts = {"a film"}}),
            "positive (negative 0.2689, positive 0.7311); 4 tokens\n");
}

TEST(PredictTest, RejectsReinforcementLearningRun) {
  const TempFolder temp;
  const auto storage = MakeDiskStorage(temp.path());
  ASSERT_TRUE(storage.ok());
  const Config config;
  EnvSpec env;
  env.id = "test";
  env.observation = {DType::kF32, {3}};
  env.action.count = 2;
  const auto algorithm = MakeAlgorithm(TrainingConfigOf(config), env);
  const auto module = MakeNetwork(ModelSetupOf(config), env);
  ASSERT_TRUE(algorithm.ok() && module.ok());
  ASSERT_TRUE(WriteCheckpoint(storage->get(), **module,
                              {.config_toml = ToToml(config), .state = (*algorithm)->State()}, 3)
                  .ok());
  EXPECT_THAT(Say({.path = temp.path(), .texts = {"a"}}),
              HasSubstr("was trained with dqn on CartPole-v1: only classifier and masked_lm"));
}

TEST(PredictTest, RejectsInvalidModelFoldersInOneLine) {
  const auto refusal = [](const std::string& path) {
    const std::string said = Say({.path = path, .texts = {"a"}});
    EXPECT_EQ(std::ranges::count(said, '\n'), 0) << said;
    EXPECT_THAT(said, HasSubstr(path));
    return said;
  };
  const auto changed = [&](const char* model, const auto& change) {
    const Folder folder(model);
    change(folder);
    return refusal(folder.path());
  };
  const auto without = [&](const char* name) {
    return changed("bert", [&](const Folder& f) { fs::remove(f.path() + "/" + name); });
  };
  const auto replaced = [&](const char* what, const char* with) {
    return changed("bert", [&](const Folder& f) { f.Replace("config.json", what, with); });
  };
  const TempFolder temp;
  EXPECT_THAT(refusal(temp.path() + "/none"), HasSubstr("no such folder"));
  EXPECT_FALSE(fs::exists(temp.path() + "/none"));
  EXPECT_THAT(refusal(SupervisedFixture("vocab.txt")), HasSubstr("a file; give its folder"));
  EXPECT_THAT(refusal(temp.path()), HasSubstr("neither a run (no checkpoints/), nor"));
  EXPECT_THAT(without("config.json"), HasSubstr("neither a run"));
  std::ofstream(temp.path() + "/config.toml") << "";
  EXPECT_THAT(refusal(temp.path()), HasSubstr("the run has written no checkpoint yet"));
  EXPECT_THAT(without("model.safetensors"), HasSubstr("model.safetensors"));
  EXPECT_THAT(without("vocab.txt"), HasSubstr("neither vocab.txt nor spiece.model exists"));
  EXPECT_THAT(replaced("{", "{{"), HasSubstr("config.json"));
  EXPECT_THAT(replaced("\"bert\"", "\"gpt2\""),
              HasSubstr("only bert, albert, roberta, distilbert and electra"));
  EXPECT_THAT(replaced("BertForSequenceClassification", "BertModel"), HasSubstr("is neither for"));
  EXPECT_THAT(replaced("BertForSequenceClassification", "BertForMaskedLM"),
              HasSubstr("has no cls.predictions"));
  EXPECT_THAT(
      replaced("\"initializer_range\"",
               "\"problem_type\": \"single_label_classification\", \"id2label\": {\"0\": \"x\"}, "
               "\"initializer_range\""),
      HasSubstr("2 classes or more"));
  EXPECT_THAT(replaced("\"initializer_range\"",
                       "\"id2label\": {\"0\": \"x\", \"2\": \"y\"}, \"initializer_range\""),
              HasSubstr("2 labels, but no name for 1: ids are 0 to 1"));
  EXPECT_THAT(
      replaced(
          "\"initializer_range\"",
          "\"num_labels\": 3, \"id2label\": {\"0\": \"x\", \"1\": \"y\"}, \"initializer_range\""),
      HasSubstr("\"num_labels\" is 3, but \"id2label\" has 2"));
  EXPECT_THAT(replaced("\"vocab_size\": 47", "\"vocab_size\": 1000000"),
              HasSubstr("the model has 32"));
  EXPECT_THAT(replaced("\"vocab_size\": 47", "\"vocab_size\": 46"), HasSubstr("embeddings"));
  EXPECT_THAT(changed("bert",
                      [](const Folder& f) {
                        f.Set("vocab.txt", ReadText(f.path() + "/vocab.txt") + "one\nmore\n");
                      }),
              HasSubstr("has 49 pieces, but the model has 47: it belongs to another model"));
  EXPECT_THAT(changed("bert", [](const Folder& f) { f.Set("vocab.txt", "a\nb\n"); }),
              HasSubstr("it has no line [PAD]"));
  EXPECT_THAT(changed("bert",
                      [](const Folder& f) {
                        const std::string all = ReadText(f.path() + "/model.safetensors");
                        f.Set("model.safetensors", all.substr(0, all.size() / 2));
                      }),
              HasSubstr("model.safetensors"));
}

TEST(PredictTest, CommandReturnsExitCodes) {
  const Folder folder("bert");
  EXPECT_EQ(Command({"predict", folder.path(), "a", "--json"}), kExitOk);
  EXPECT_EQ(Command({"predict", folder.path() + "/none", "a"}), kExitUsage);
  EXPECT_EQ(Command({"predict"}), kExitUsage);  // by which model?
  folder.Set("model.safetensors", "damaged");
  EXPECT_EQ(Command({"predict", folder.path(), "a"}), kExitDamaged);
}

}  // namespace
}  // namespace troop
