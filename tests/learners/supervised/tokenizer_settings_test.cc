#include "learners/supervised/tokenizer_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "core/storage/json.h"
#include "learners/supervised/text_predictor.h"
#include "tests/core/temp_folder.h"
#include "tests/datasets/tokenizers/hub_data.h"
#include "tests/learners/supervised_fixture.h"

namespace troop {
namespace {

namespace fs = std::filesystem;
using test::ReadText;
using test::SupervisedFixture;
using ::testing::HasSubstr;

const std::string kHub = TROOP_SOURCE_DIR "/tests/fixtures/tokenizers/";

void Write(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::uint32_t FingerprintOf(const std::string& path, bool cased = false) {
  const auto opened = OpenVocabulary(path, cased);
  EXPECT_TRUE(opened.ok()) << opened.status().message();
  return opened.ok() ? (*opened)->fingerprint() : 0;
}

std::string RefusalOf(const std::string& path) {
  return OpenVocabulary(path, false).status().message();
}

TEST(TokenizerSettingsTest, VocabularyHasSettingsOfItsFolder) {
  const TempFolder folder;
  for (const char* const name : {"vocab.json", "merges.txt"}) {
    fs::copy(kHub + "roberta/" + name, folder.path());
  }
  const std::string vocabulary = folder.path() + "/vocab.json";
  const std::string config = folder.path() + "/tokenizer_config.json";
  const auto count = [&] {
    const auto opened = OpenVocabulary(vocabulary, false);
    std::vector<TokenId> ids;
    if (opened.ok()) (*opened)->Encode("the", &ids);
    return opened.ok() ? std::string((*opened)->piece(ids[0])) : opened.status().message();
  };
  EXPECT_EQ(count(), "the");
  Write(config, R"({"add_prefix_space": true, "tokenizer_class": "RobertaTokenizer",
                    "do_lower_case": false, "mask_token": {"content": "<mask>"}})");
  EXPECT_EQ(count(), "\u0120the");
  Write(config, R"({"cls_token": "[CLS]"})");
  EXPECT_THAT(RefusalOf(vocabulary), HasSubstr("\"cls_token\" is \"[CLS]\": only <s> is"));
  Write(config, R"({"do_lower_case": true})");
  EXPECT_THAT(RefusalOf(vocabulary), HasSubstr("\"do_lower_case\" is true"));
  fs::remove(config);
  fs::remove(folder.path() + "/merges.txt");
  EXPECT_THAT(RefusalOf(vocabulary), HasSubstr("merges.txt does not exist"));
}

TEST(TokenizerSettingsTest, NamesInConfigMatchThoseOfTokenizerJson) {
  const TempFolder folder;
  const std::string vocabulary = folder.path() + "/tokenizer.json";
  fs::copy(kHub + "bert/tokenizer.json", vocabulary);
  Write(folder.path() + "/special_tokens_map.json", R"({"cls_token": "<s>"})");
  EXPECT_THAT(RefusalOf(vocabulary), HasSubstr("its cls_token is \"[CLS]\", but \"<s>\" in"));
  Write(folder.path() + "/special_tokens_map.json", R"({"cls_token": "[CLS]"})");
  EXPECT_EQ(RefusalOf(vocabulary), "");
}

// The folder is one that transformers 5 saved, whose config lists all added tokens.
TEST(TokenizerSettingsTest, SavedTokenizerOfTransformersHasItsIds) {
  const auto opened = OpenVocabulary(kHub + "saved/tokenizer.json", false);
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  int lines = 0;
  for (const JsonValue& line : ReadJsonLines(HubFixture("saved.jsonl"))) {
    std::vector<TokenId> ids;
    for (const JsonValue& id : line.Find("ids")->array) ids.push_back(TokenId(*id.integer));
    const std::string text = FromHex(line.Find("hex")->string);
    EXPECT_EQ(EncodeWithSpecialTokens(**opened, text, 1 << 20), ids) << text;
    ++lines;
  }
  EXPECT_GT(lines, 50);
}

// A token that the tokenizer.json does not have would get a new id in transformers, and one that is
// only a piece would be found inside of words.
TEST(TokenizerSettingsTest, TokensOfFilesMustBeThoseOfTokenizerJson) {
  const TempFolder folder;
  const std::string vocabulary = folder.path() + "/tokenizer.json";
  fs::copy(kHub + "saved/tokenizer.json", vocabulary);
  const auto refusal = [&](const std::string& name, const std::string& text) {
    Write(folder.path() + "/" + name, text);
    const std::string message = RefusalOf(vocabulary);
    fs::remove(folder.path() + "/" + name);
    return message;
  };
  const std::string config = "tokenizer_config.json", map = "special_tokens_map.json";
  EXPECT_EQ(refusal(config, R"({"extra_special_tokens": ["<speaker>", "[CLS]", "("]})"), "");
  EXPECT_EQ(refusal(config, R"({"extra_special_tokens": {"voice_token": "<speaker>"}})"), "");
  EXPECT_EQ(refusal(config, R"({"added_tokens_decoder": {
                        "421": {"content": "<speaker>", "lstrip": true, "special": true}}})"),
            "");
  EXPECT_EQ(refusal("added_tokens.json", R"({"film": 420})"), "");
  // Another text, one that is only a piece, another id, and another flag.
  const std::pair<std::string, std::string> others[] = {
      {config, R"({"extra_special_tokens": ["<other>"]})"},
      {config, R"({"additional_special_tokens": [{"content": "good"}]})"},
      {map, R"({"additional_special_tokens": ["<other>"]})"},
      {config, R"({"added_tokens_decoder": {"5": {"content": "<speaker>"}}})"},
      {config, R"({"added_tokens_decoder": {"421": {"content": "<speaker>", "lstrip": false}}})"},
      {"added_tokens.json", R"({"film": 7})"}};
  for (const auto& [name, text] : others)
    EXPECT_THAT(refusal(name, text), HasSubstr("is not among its \"added_tokens\"")) << text;
  for (const char* const text :
       {R"({"extra_special_tokens": "<other>"})", R"({"extra_special_tokens": [1]})",
        R"({"added_tokens_decoder": []})", R"({"added_tokens_decoder": {"x": "<speaker>"}})",
        R"({"added_tokens_decoder": {"421": {"content": "<speaker>", "lstrip": 1}}})"})
    EXPECT_NE(refusal(config, text), "") << text;
  // The folder of a pretrained model, too, and a vocabulary without flags.
  Write(folder.path() + "/" + config, R"({"extra_special_tokens": ["<other>"]})");
  DataConfig data;
  data.vocabulary = kHub + "saved/tokenizer.json";
  EXPECT_THAT(CheckTokenizerSettings(data, folder.path()).message(), HasSubstr("\"<other>\""));
  fs::copy(SupervisedFixture("vocab.txt"), folder.path() + "/vocab.txt");
  EXPECT_THAT(RefusalOf(folder.path() + "/vocab.txt"),
              HasSubstr("\"<other>\" is added to the vocabulary, which is only supported in a "
                        "tokenizer.json"));
}

TEST(TokenizerSettingsTest, PrefixSpaceOfModelMustMatchThatOfVocabulary) {
  const TempFolder folder;
  DataConfig data;
  data.vocabulary = kHub + "roberta/vocab.json";
  Write(folder.path() + "/tokenizer_config.json", R"({"add_prefix_space": true})");
  EXPECT_THAT(CheckTokenizerSettings(data, folder.path()).message(),
              HasSubstr("\"add_prefix_space\" is false next to data.vocabulary, but true in "));
  Write(folder.path() + "/tokenizer_config.json", R"({"do_lower_case": false})");
  EXPECT_EQ(CheckTokenizerSettings(data, folder.path()).message(), "");
}

// Each kind is read back from the files that transformers expects.
TEST(TokenizerSettingsTest, WrittenVocabularyIsEqual) {
  const std::string text = TROOP_SOURCE_DIR "/tests/fixtures/text/";
  const std::pair<std::string, const char*> kinds[] = {
      {text + "wordpiece.txt", "vocab.txt"},
      {text + "unigram.model", "spiece.model"},
      {kHub + "roberta/vocab.json", "vocab.json"},
      {kHub + "xlmr/tokenizer.json", "tokenizer.json"}};
  for (const auto& [path, name] : kinds) {
    const TempFolder folder;
    const auto run = MakeDiskStorage(folder.path());
    ASSERT_TRUE(run.ok());
    DataConfig data;
    data.vocabulary = path;
    const Status written = WriteTokenizer(data, "model", run->get());
    ASSERT_TRUE(written.ok()) << written.message();
    const std::string model = folder.path() + "/model/";
    EXPECT_EQ(FingerprintOf(model + name), FingerprintOf(path)) << name;
    const auto settings = ReadTokenizerSettings(model, VocabularyKindOf(name));
    ASSERT_TRUE(settings.ok()) << settings.status().message();
    EXPECT_EQ((*settings)->max_length, data.max_length);
  }
}

// The names of the text columns state whether the model takes pairs; a table whose columns are not
// resolved leaves it open.
TEST(TokenizerSettingsTest, TextColumnsAreWrittenAndReadBack) {
  using Names = std::vector<std::string>;
  const auto written = [](const std::string& source, const Names& columns) -> Names {
    const TempFolder folder;
    const auto run = MakeDiskStorage(folder.path());
    DataConfig data;
    data.vocabulary = SupervisedFixture("vocab.txt");
    data.reviews = source, data.text_columns = columns;
    EXPECT_TRUE(WriteTokenizer(data, "model", run->get()).ok());
    const auto read = ReadTokenizerSettings(folder.path() + "/model/", VocabularyKind::kWordPiece);
    return read.ok() && *read ? (*read)->text_columns : Names{"unreadable"};
  };
  EXPECT_EQ(written("a.csv", {"a \"b\"", "\u00e9"}), (Names{"a \"b\"", "\u00e9"}));
  EXPECT_EQ(written("a.csv", {"body"}), Names{"body"});
  EXPECT_EQ(written("aclImdb.tar.xz", {}), Names{"text"});
  EXPECT_EQ(written("a.csv", {}), Names{});
}

TEST(TokenizerSettingsTest, TextColumnsOfOtherFormsAreRefused) {
  const TempFolder folder;
  const auto refusal = [&](const std::string& value) {
    Write(folder.path() + "/tokenizer_config.json", "{\"text_columns\": " + value + "}");
    return ReadTokenizerSettings(folder.path(), VocabularyKind::kWordPiece).status().message();
  };
  EXPECT_EQ(refusal("null"), "");
  EXPECT_EQ(refusal(R"(["a", "b"])"), "");
  for (const char* const value : {"1", "\"a\"", "[]", "[\"\"]", "[1]", R"(["a", "b", "c"])"})
    EXPECT_THAT(refusal(value), HasSubstr("\"text_columns\" must be a list of one or two names"));
}

// A WordPiece vocabulary as a tokenizer.json.
std::string JsonOf(const std::string& lines) {
  JsonObject vocabulary;
  int id = 0;
  for (std::size_t begin = 0; begin < lines.size(); ++id) {
    const std::size_t end = lines.find('\n', begin);
    vocabulary.Add(lines.substr(begin, end - begin), id);
    begin = end + 1;
  }
  return R"({"normalizer": {"type": "BertNormalizer"},
             "pre_tokenizer": {"type": "BertPreTokenizer"},
             "post_processor": {"type": "BertProcessing", "cls": ["[CLS]", 2], "sep": ["[SEP]", 3]},
             "model": {"type": "WordPiece", "vocab": )" +
         vocabulary.str() + "}}";
}

TEST(TokenizerSettingsTest, PredictorReadsTokenizerJson) {
  const TempFolder folder;
  const std::string model = folder.path() + "/model";
  fs::copy(SupervisedFixture("bert"), model);
  const auto probability = [&] {
    const auto loaded = TextPredictor::Load(model, [](std::string_view, const std::string&) {
      return Result<TrainingConfig>(TrainingConfig());
    });
    if (!loaded.ok()) return loaded.status().message();
    const auto answer = (*loaded)->Predict({"a good, great film"});
    EXPECT_TRUE(answer.ok());
    EXPECT_GT(answer->tokens, answer->unknown + 2);
    return fmt::format("{}", answer->classes[0].probability);
  };
  EXPECT_THAT(probability(), HasSubstr("nor vocab.json with merges.txt, nor tokenizer.json"));
  const std::string lines = ReadText(SupervisedFixture("vocab.txt"));
  Write(model + "/tokenizer.json", JsonOf(lines));
  Write(model + "/vocab.json", "{}");  // not used without merges.txt
  const std::string found = probability();
  fs::remove(model + "/tokenizer.json");
  Write(model + "/vocab.txt", lines);
  EXPECT_EQ(found, probability());
}

}  // namespace
}  // namespace troop
