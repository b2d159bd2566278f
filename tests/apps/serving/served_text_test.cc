// Answers of a served text model: equal to those of Hugging Face transformers, whatever texts share
// a batch.
#include "apps/serving/served_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "core/storage/json.h"
#include "fleet/config/role_configs.h"
#include "tests/core/temp_folder.h"
#include "tests/learners/supervised_fixture.h"

namespace troop {
namespace {

namespace fs = std::filesystem;
using test::SupervisedExpected;
using test::SupervisedFixture;
using testing::HasSubstr;

class ServedTextTest : public testing::Test {
 protected:
  // A model of the fixtures with its vocabulary.
  std::unique_ptr<ServedText> Load(const std::string& model, const std::string& settings = "") {
    const std::string folder = fmt::format("{}/{}{}", temp_.path(), model, models_++);
    fs::copy(SupervisedFixture(model), folder);
    fs::copy(SupervisedFixture("vocab.txt"), folder);
    if (!settings.empty()) std::ofstream(folder + "/tokenizer_config.json") << settings;
    auto predictor = TextPredictor::Load(folder, ParseTrainingConfig);
    EXPECT_TRUE(predictor.ok()) << predictor.status().ToString();
    return std::make_unique<ServedText>(
        std::move(*predictor),
        ServedText::Source{.checkpoint = folder, .updates = 9, .rows_max = 40});
  }
  static HttpRequest Request(const std::string& body,
                             const std::string& type = "application/json") {
    return {.headers = {{"content-type", type}}, .body = body};
  }
  static std::string Error(const ServedText& model, const HttpRequest& request) {
    const auto parsed = model.Parse(request);
    return parsed.ok() ? "accepted" : parsed.status().message();
  }
  TempFolder temp_;
  int models_ = 0;
};

constexpr char kPairs[] = R"({"text_columns": ["a", "b"]})";

// The fixtures' texts, in requests of one, two, … texts that are computed together.
TEST_F(ServedTextTest, BatchesEqualTransformers) {
  const auto model = Load("bert");
  const std::vector<JsonValue>& texts = SupervisedExpected().Find("texts")->array;
  std::vector<ServingRequest> requests;
  for (std::size_t i = 0; i < texts.size();) {
    JsonArray some;
    for (std::size_t n = requests.size() + 1; n > 0 && i < texts.size(); --n, ++i)
      some.Add(*texts[i].String("text"));
    const auto request = model->Parse(Request(JsonObject().Add("texts", some).str()));
    ASSERT_TRUE(request.ok()) << request.status().message();
    requests.push_back(*request);
  }
  ASSERT_GE(requests.size(), 3u);
  std::size_t i = 0;
  for (const HttpResponse& response : model->Answer(requests, Time{})) {
    ASSERT_EQ(response.status, 200) << response.body;
    const auto json = ParseJson(response.body);
    ASSERT_TRUE(json.ok()) << response.body;
    EXPECT_EQ(*json->Integer("updates"), 9);
    for (const JsonValue& one : json->Find("predictions")->array) {
      for (const char* const key : {"tokens", "unknown", "cut"})
        EXPECT_EQ(*one.Integer(key), *texts[i].Integer(key)) << key << " " << i;
      const auto& p = SupervisedExpected().Find("bert")->Find("texts")->array[i].array;
      const JsonValue* const ours = one.Find("probabilities");
      EXPECT_NEAR(ours->Find("LABEL_0")->number, p.at(0).number, 1e-4) << i;
      EXPECT_NEAR(ours->Find("LABEL_1")->number, p.at(1).number, 1e-4) << i;
      EXPECT_EQ(*one.String("label"), p[1].number > p[0].number ? "LABEL_1" : "LABEL_0");
      ++i;
    }
  }
  EXPECT_EQ(i, texts.size());
}

// Logits of transformers for pairs, in requests that are computed together
// (tools/make_pair_fixtures.py).
TEST_F(ServedTextTest, PairsEqualTransformers) {
  const auto model = Load("bert", kPairs);
  const auto expected = ParseJson(test::ReadText(SupervisedFixture("pairs.json")));
  ASSERT_TRUE(expected.ok());
  std::vector<ServingRequest> requests;
  for (const JsonValue& row : expected->array) {
    // The order of the members is free.
    const std::string text =
        JsonObject().Add("text_pair", *row.String("pair")).Add("text", *row.String("text")).str();
    const auto request = model->Parse(Request("{\"texts\": [" + text + "]}"));
    ASSERT_TRUE(request.ok()) << request.status().message();
    requests.push_back(*request);
  }
  const auto responses = model->Answer(requests, Time{});
  ASSERT_EQ(responses.size(), expected->array.size());
  for (std::size_t i = 0; i < responses.size(); ++i) {
    const auto json = ParseJson(responses[i].body);
    ASSERT_TRUE(json.ok()) << responses[i].body;
    const JsonValue& one = json->Find("predictions")->array.at(0);
    EXPECT_EQ(*one.Integer("tokens"), *expected->array[i].Integer("tokens")) << i;
    // A pair without words has no probabilities.
    const JsonValue* const found = one.Find("probabilities")->Find("LABEL_1");
    ASSERT_NE(found, nullptr) << responses[i].body;
    EXPECT_NEAR(found->number, expected->array[i].Find("probabilities")->array[1].number, 1e-5)
        << i;
  }
}

// The form is checked when a request is parsed, so that it does not fail others of its batch.
TEST_F(ServedTextTest, TextsOfTheOtherFormAreRefused) {
  const HttpRequest single = Request(R"({"texts": ["a", {"text": "b"}]})");
  const HttpRequest pair = Request(R"({"texts": [{"text": "a", "text_pair": "b"}]})");
  const auto open = Load("bert");
  EXPECT_EQ(Error(*open, single), "accepted");
  EXPECT_EQ(Error(*open, pair), "accepted");
  const auto of_pairs = Load("bert", kPairs);
  EXPECT_THAT(Error(*of_pairs, single), HasSubstr("trained on pairs of texts, but this is a"));
  EXPECT_EQ(Error(*of_pairs, pair), "accepted");
  const auto of_texts = Load("bert", R"({"text_columns": ["text"]})");
  EXPECT_EQ(Error(*of_texts, single), "accepted");
  EXPECT_THAT(Error(*of_texts, pair), HasSubstr("trained on single texts, but this is a pair"));
  EXPECT_FALSE(of_texts->Accepts(*of_pairs)) << "its waiting requests would fail";
  EXPECT_EQ(ParseJson(open->Description())->Find("pairs")->kind, JsonValue::Kind::kNull);
  EXPECT_TRUE(ParseJson(of_pairs->Description())->Find("pairs")->boolean);
  EXPECT_THAT(Error(*Load("masked"), pair), HasSubstr("does not predict pairs of texts"));
}

TEST_F(ServedTextTest, EmptyTextsDoNotShiftTheOthers) {
  const auto model = Load("bert");
  const auto answer = [&](const std::string& texts) {
    const auto request = model->Parse(Request("{\"texts\": [" + texts + "]}"));
    EXPECT_TRUE(request.ok()) << request.status().message();
    return ParseJson(model->Answer({&*request, 1}, Time{}).at(0).body)->Find("predictions")->array;
  };
  const auto mixed = answer(R"("", "a fine film", " ", "a bad film")");
  ASSERT_EQ(mixed.size(), 4u);
  for (const std::size_t empty : {0, 2})
    EXPECT_EQ(mixed[empty].Find("label")->kind, JsonValue::Kind::kNull);
  const auto fine = answer(R"("a fine film")"), bad = answer(R"("a bad film")");
  for (const char* name : {"LABEL_0", "LABEL_1"}) {
    const auto p = [&](const JsonValue& x) { return x.Find("probabilities")->Find(name)->number; };
    EXPECT_NEAR(p(mixed[1]), p(fine[0]), 1e-5);
    EXPECT_NEAR(p(mixed[3]), p(bad[0]), 1e-5);
  }
}

TEST_F(ServedTextTest, HostileBodiesGetOneClearLine) {
  const auto model = Load("bert");
  const std::pair<std::string, const char*> cases[] = {
      {"", "JSON at byte 0"},
      {"[]", "must be a JSON object"},
      {"{}", "\"texts\" is missing"},
      {R"({"texts": "one"})", "must be an array of strings"},
      {R"({"texts": {}})", "must be an array of strings"},
      {R"({"texts": []})", "texts is empty"},
      {R"({"texts": [1]})", "must consist of strings"},
      {R"({"texts": [["a"]]})", "must consist of strings"},
      {R"({"texts": [{"texts": "a"}]})", "unknown key \"texts\" in \"texts\""},
      {R"({"texts": [{}]})", "has no \"text\""},
      {R"({"texts": [{"text_pair": "a"}]})", "has no \"text\""},
      {R"({"texts": [{"text": 1}]})", "\"text\" and \"text_pair\" must be strings"},
      {R"({"texts": [{"text": "a", "text_pair": null}]})", "\"text_pair\" must be strings"},
      {R"({"texts": [{"text": {"text": "a"}}]})", "\"text_pair\" must be strings"},
      {R"({"texts": [{"text": "a", "text": "b"}]})", "duplicate key \"text\""},
      {R"({"texts": [{"text": "a")", "JSON at byte"},
      {R"({"texts": ["a"], "texts": ["b"]})", "duplicate key"},
      {R"({"text": ["a"]})", "unknown key \"text\"; the only key is texts"},
      {R"({"texts": ["a"], "top": 5})", "unknown key \"top\""},
      {R"({"texts": ["a"})", "JSON at byte"},
      {"{\"texts\": [\"\xFF\"]}", "JSON at byte"},
      {"{\"texts\": [" + std::string(500'000, '['), "must consist of strings"},
      {"{\"texts\": [\"a\"" +
           [] {
             std::string more;
             for (int i = 0; i < 40; ++i) more += ", \"a\"";
             return more;
           }() +
           "]}",
       "more than 40 texts"},
  };
  for (const auto& [body, message] : cases)
    EXPECT_THAT(Error(*model, Request(body)), HasSubstr(message)) << body.substr(0, 80);
  EXPECT_THAT(Error(*model, Request("abc", "application/octet-stream")),
              HasSubstr("no binary form"));
}

TEST_F(ServedTextTest, DescribesAndAcceptsEqualModels) {
  const auto bert = Load("bert");
  const auto json = ParseJson(bert->Description());
  ASSERT_TRUE(json.ok()) << bert->Description();
  EXPECT_EQ(*json->String("kind"), "classifier");
  EXPECT_EQ(json->Find("classes")->array.at(1).string, "LABEL_1");
  EXPECT_TRUE(bert->Accepts(*Load("albert")));  // the weights differ, the classes do not
}

}  // namespace
}  // namespace troop
