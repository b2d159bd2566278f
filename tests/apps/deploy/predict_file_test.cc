#include "apps/deploy/predict_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "apps/deploy/text_file_reader.h"
#include "core/storage/json.h"
#include "core/storage/storage.h"
#include "datasets/text/csv.h"
#include "fleet/config/role_configs.h"
#include "nn/io/hugging_face.h"
#include "tests/core/temp_folder.h"
#include "tests/learners/supervised_fixture.h"

namespace troop {
namespace {

namespace fs = std::filesystem;
using test::ReadText;
using test::SupervisedFixture;
using ::testing::HasSubstr;

// A model of the fixtures, with a folder for files.
class PredictFileTest : public ::testing::Test {
 protected:
  PredictFileTest() {
    fs::copy(SupervisedFixture("bert"), folder_ + "/model");
    fs::copy(SupervisedFixture("vocab.txt"), folder_ + "/model");
  }
  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << text;
    return folder_ + "/" + name;
  }
  // The model with other keys in its config.
  std::unique_ptr<TextPredictor> Load(const std::string& keys = "") const {
    std::string config = ReadText(SupervisedFixture("bert/config.json"));
    config.insert(config.find('{') + 1, keys);
    Write("model/config.json", config);
    auto predictor = TextPredictor::Load(folder_ + "/model", ParseTrainingConfig);
    EXPECT_TRUE(predictor.ok()) << predictor.status().ToString();
    return *std::move(predictor);
  }
  // The output of a file, or the error.
  std::string Run(const TextPredictor& predictor, const std::string& input,
                  const std::string& output, const std::vector<std::string>& columns = {},
                  int threads = 2) const {
    const auto made = PredictFile(predictor, {input, folder_ + "/" + output, columns, threads});
    return made.ok() ? ReadText(folder_ + "/" + output) : made.status().ToString();
  }

  const TempFolder temp_;
  const std::string folder_ = temp_.path();
};

std::vector<std::vector<std::string>> RowsOf(const std::string& csv) {
  std::vector<std::vector<std::string>> rows;
  CsvReader reader(csv);
  for (std::vector<std::string> row; *reader.Next(&row);) rows.push_back(row);
  return rows;
}

// Logits of transformers for pairs, of which some are truncated (tools/make_pair_fixtures.py).
TEST_F(PredictFileTest, PairsMatchTransformers) {
  const auto expected = ParseJson(ReadText(SupervisedFixture("pairs.json")));
  ASSERT_TRUE(expected.ok());
  const auto predictor = Load();
  std::string input;
  for (const JsonValue& row : expected->array) {
    input += JsonObject().Add("a", *row.String("text")).Add("b", *row.String("pair")).str() + "\n";
  }
  std::istringstream lines(Run(*predictor, Write("pairs.jsonl", input), "out.jsonl", {"a", "b"}));
  std::size_t i = 0;
  for (std::string line; std::getline(lines, line); ++i) {
    const auto answer = ParseJson(line);
    ASSERT_TRUE(answer.ok()) << line;
    const JsonValue& row = expected->array[i];
    EXPECT_EQ(*answer->String("pair"), *row.String("pair"));
    EXPECT_EQ(*answer->Integer("tokens"), *row.Integer("tokens")) << i;
    EXPECT_NEAR(answer->Find("probabilities")->Find("LABEL_1")->number,
                row.Find("probabilities")->array[1].number, 1e-5)
        << i;
  }
  EXPECT_EQ(i, expected->array.size());
}

// A model that states its form refuses the other one, in files as from the command line.
TEST_F(PredictFileTest, FormOfTextsIsThatOfTraining) {
  const std::string single = Write("single.csv", "text\ngood\n");
  const std::string pairs = Write("pairs.csv", "a,b\ngood,dull\n");
  Write("model/tokenizer_config.json", R"({"text_columns": ["a", "b"]})");
  const auto of_pairs = Load();
  EXPECT_EQ(of_pairs->pairs(), true);
  EXPECT_THAT(
      Run(*of_pairs, single, "out.csv"),
      HasSubstr("single.csv: the model was trained on pairs of texts, but this is a single"));
  EXPECT_THAT(of_pairs->Predict({"good"}).status().message(), HasSubstr("give both (--text-pair"));
  EXPECT_THAT(Run(*of_pairs, pairs, "out.csv"), HasSubstr("text,pair,label")) << "its own columns";
  Write("model/tokenizer_config.json", R"({"text_columns": ["text"]})");
  const auto of_texts = Load();
  EXPECT_EQ(of_texts->pairs(), false);
  EXPECT_THAT(Run(*of_texts, pairs, "out.csv", {"a", "b"}),
              HasSubstr("trained on single texts, but this is a pair of texts; omit the second"));
  EXPECT_THAT(of_texts->Predict({"good", "dull"}).status().message(), HasSubstr("single texts"));
  EXPECT_THAT(Run(*of_texts, single, "out.csv"), HasSubstr("text,label"));
  fs::remove(folder_ + "/model/tokenizer_config.json");
  const auto open = Load();
  EXPECT_EQ(open->pairs(), std::nullopt);
  EXPECT_TRUE(open->Predict({"good"}).ok() && open->Predict({"good", "dull"}).ok());
}

// Several windows, of texts of all lengths: the answers are those of single texts, in their order.
TEST_F(PredictFileTest, AnswersKeepTheOrderForAnyThreads) {
  const auto predictor = Load();
  const std::vector<std::string> words{"good", "dull", "movie", "the", "plot", "great"};
  std::string input = "id,review\n";
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < 5000; ++i) {
    std::string text = words[i % 6];
    for (std::size_t k = 0; k < i * 7 % 13; ++k) text += (k == 3 ? ", \"" : " ") + words[i * k % 6];
    texts.push_back(i % 999 == 5 ? "" : text);
    std::string cell;
    for (const char c : texts.back()) cell += c == '"' ? "\"\"" : std::string(1, c);
    input += std::to_string(i) + ",\"" + cell + "\"\n";
  }
  const std::string path = Write("in.csv", input);
  const std::string one = Run(*predictor, path, "one.csv", {}, 1);
  EXPECT_EQ(Run(*predictor, path, "three.csv", {}, 3), one);
  const auto rows = RowsOf(one);
  ASSERT_EQ(rows.size(), 5001u);
  EXPECT_EQ(rows[0], (std::vector<std::string>{"text", "label", "probability_LABEL_0",
                                               "probability_LABEL_1", "tokens", "cut"}));
  for (std::size_t i = 0; i < 5000; ++i) {
    ASSERT_EQ(rows[i + 1][0], texts[i]);
    if (i % 111 != 5) continue;
    const auto answer = predictor->Predict({texts[i]});
    ASSERT_TRUE(answer.ok());
    EXPECT_EQ(rows[i + 1][1], answer->empty ? "" : answer->best().name);
    EXPECT_EQ(rows[i + 1][4], std::to_string(answer->tokens));
    if (answer->empty) continue;
    EXPECT_NEAR(std::stod(rows[i + 1][3]), answer->classes[1].probability, 1e-4);
  }
  EXPECT_FALSE(fs::exists(folder_ + "/one.csv.part"));
}

// The logits of labels are independent sigmoids.
TEST_F(PredictFileTest, LabelsAndNumbersHaveTheirOwnForm) {
  const auto single = Load();
  const std::string path = Write("in.txt", "good movie\r\n\ndull plot");
  const auto classes = single->Predict({"good movie"});
  ASSERT_TRUE(classes.ok());
  const auto many = Load("\"problem_type\": \"multi_label_classification\",");
  const auto labels = many->Predict({"good movie"});
  ASSERT_TRUE(labels.ok());
  // exp(x0 - x1) is the ratio of the softmax, and of the odds of the sigmoids.
  const double p0 = labels->classes[0].probability, p1 = labels->classes[1].probability;
  EXPECT_NEAR(std::log(p0 / (1 - p0)) - std::log(p1 / (1 - p1)),
              std::log(classes->classes[0].probability / classes->classes[1].probability), 1e-4);
  std::vector<std::string> above;
  for (const Likely& one : labels->classes)
    if (one.probability > 0.5) above.push_back(one.name);
  EXPECT_EQ(labels->labels(), above);
  const auto rows = RowsOf(Run(*many, path, "many.csv"));
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0][1], "labels");
  EXPECT_EQ(rows[2][1], "") << "the empty line";
  EXPECT_EQ(rows[2][2], "");
  EXPECT_THAT(Run(*many, path, "many.jsonl"), HasSubstr("{\"text\": \"\", \"labels\": null"));
  EXPECT_THAT(Run(*many, path, "many.jsonl"),
              HasSubstr("{\"text\": \"good movie\", \"labels\": ["));
}

// Known names, in the order of the data set's readers; then the columns of the run, if they exist.
TEST_F(PredictFileTest, ColumnsAreThoseOfTraining) {
  const auto texts = [&](const std::string& name, const std::string& content,
                         const std::vector<std::string>& usual) -> std::string {
    const auto reader = TextFileReader::Open(Write(name, content), {.usual_columns = usual});
    if (!reader.ok()) return reader.status().message();
    TextRow row;
    const auto there = (*reader)->Next(&row);
    EXPECT_TRUE(there.ok() && *there);
    return row.text + (row.pair ? "|" + *row.pair : "");
  };
  EXPECT_EQ(texts("a.csv", "text_pair,text,label\nb,a,1\n", {}), "a|b");
  EXPECT_EQ(texts("a.tsv", "label\ttext\n1\ta, b\n", {}), "a, b");
  EXPECT_EQ(texts("a.jsonl", R"({"review": "a", "sentence2": "c", "sentence1": "b"})", {}), "b|c");
  EXPECT_EQ(texts("a.csv", "text,words\na,b\n", {"words"}), "b");
  EXPECT_EQ(texts("a.csv", "text,label\na,b\n", {"words"}), "a");
  EXPECT_EQ(texts("a.csv", "text,x,y\na,b,c\n", {"y", "x"}), "c|b");
}

// A file as the command of that name compresses it.
std::string Packed(const std::string& path, const std::string& command) {
  EXPECT_EQ(std::system((command + " -kf " + path).c_str()), 0);
  return path + "." + (command == "gzip" ? "gz" : "xz");
}

TEST_F(PredictFileTest, CompressedFilesHaveSameAnswers) {
  const auto predictor = Load();
  const std::string table = Write("a.csv", "id,text\n1,good movie\n2,\"dull, dull\"\n");
  const std::string lines = Write("b.txt", "good movie\ndull\n");
  const std::string answers = Run(*predictor, table, "out.csv");
  EXPECT_THAT(answers, HasSubstr("\"dull, dull\","));
  EXPECT_EQ(Run(*predictor, Packed(table, "gzip"), "out.csv"), answers);
  EXPECT_EQ(Run(*predictor, Packed(table, "xz"), "out.csv"), answers);
  EXPECT_EQ(Run(*predictor, Packed(lines, "gzip"), "out.csv"), Run(*predictor, lines, "out.csv"));
  // Damage is not read as text.
  const std::string whole = ReadText(table + ".gz");
  EXPECT_THAT(Run(*predictor, Write("cut.csv.gz", whole.substr(0, whole.size() - 4)), "out.csv"),
              HasSubstr("cut.csv.gz: gzip"));
  EXPECT_THAT(Run(*predictor, Write("text.csv.xz", "text\ngood\n"), "out.csv"),
              HasSubstr("text.csv.xz: "));
  for (const char* const name : {"a.tar.gz", "a.tgz", "a.parquet.gz", "a.csv.bz2"})
    EXPECT_THAT(Run(*predictor, Write(name, whole), "out.csv"), HasSubstr("is not read; convert"));
}

// The delimiter of training is a default: a flag replaces it, and files without fields ignore it.
TEST_F(PredictFileTest, DelimiterIsThatOfTraining) {
  const auto text = [&](const std::string& name, const std::string& content,
                        const std::string& given, const std::string& usual) {
    const auto reader =
        TextFileReader::Open(Write(name, content), {.delimiter = given, .usual_delimiter = usual});
    TextRow row;
    if (!reader.ok()) return reader.status().message();
    EXPECT_TRUE((*reader)->Next(&row).ok());
    return row.text;
  };
  EXPECT_EQ(text("a.csv", "text;label\na, b;1\n", "", ";"), "a, b");
  EXPECT_EQ(text("a.tsv", "text;label\na\tb;1\n", "", ";"), "a\tb");
  EXPECT_EQ(text("a.csv", "text,label\na;b,1\n", ",", ";"), "a;b");
  EXPECT_EQ(text("a.txt", "a;b\n", "", ";"), "a;b");
  EXPECT_EQ(text("a.jsonl", "{\"text\": \"a;b\"}\n", "", ";"), "a;b");
  EXPECT_THAT(text("a.txt", "a;b\n", ";", ""), HasSubstr("--delimiter: "));
  EXPECT_THAT(text("a.jsonl", "{}\n", ";", ""), HasSubstr("is not a .csv or .tsv"));
  for (const char* const wrong : {"ab", "\"", "\n"})
    EXPECT_THAT(text("a.csv", "text\na\n", wrong, ""), HasSubstr("must be one byte"));
}

TEST_F(PredictFileTest, RefusesBadFilesInOneLine) {
  const auto predictor = Load();
  const auto refused = [&](const std::string& name, const std::string& text,
                           const std::vector<std::string>& columns = {},
                           const std::string& output = "out.csv") {
    return Run(*predictor, Write(name, text), output, columns);
  };
  EXPECT_THAT(refused("a.csv", "id,words\n1,a\n"), HasSubstr("a.csv:1: no column text, review"));
  EXPECT_THAT(refused("a.csv", "id,words\n1,a\n"), HasSubstr("--text-column: id, words"));
  EXPECT_THAT(refused("a.csv", "id,words\n1,a\n", {"x"}),
              HasSubstr("no column \"x\"; the columns are id, words"));
  EXPECT_THAT(refused("a.csv", "id,text\n1,a\n2\n"), HasSubstr("a.csv:3: 1 columns, but"));
  EXPECT_THAT(refused("a.csv", ""), HasSubstr("is empty"));
  EXPECT_THAT(refused("a.jsonl", "{\"text\": \"a\"}\n\n{\"text\": 3}\n"), HasSubstr("a.jsonl:3:"));
  EXPECT_THAT(refused("a.jsonl", "{\"text\": \"a\"}\n{\"tex\n"), HasSubstr("a.jsonl:2:"));
  EXPECT_THAT(refused("a.jsonl", "[1]\n"), HasSubstr("not an object"));
  EXPECT_THAT(refused("a.txt", "a\n", {"text"}), HasSubstr("one text per line; omit it"));
  EXPECT_THAT(refused("a.parquet", "a\n"), HasSubstr("convert it to .csv, .tsv or .jsonl"));
  EXPECT_THAT(refused("a.txt", "a\n", {"a", "b", "c"}), HasSubstr("must be at most 2"));
  EXPECT_THAT(refused("a.txt", "a\n", {}, "out.txt"), HasSubstr("must end in .csv or .jsonl"));
  EXPECT_THAT(refused("a.csv", "text\na\n", {}, "a.csv"), HasSubstr("is the input"));
  EXPECT_THAT(Run(*predictor, folder_ + "/none.csv", "out.csv"), HasSubstr("no such file"));
  EXPECT_FALSE(fs::exists(folder_ + "/out.csv")) << "written only as a whole";
}

}  // namespace
}  // namespace troop
