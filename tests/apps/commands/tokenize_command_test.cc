#include "apps/commands/tokenize_command.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>

#include "apps/commands/cli.h"
#include "fleet/launcher/exit_code.h"

namespace troop {
namespace {

const std::string kFixtures = TROOP_SOURCE_DIR "/tests/fixtures/text/";

std::string Print(TokenizeOptions options, const std::string& input = "") {
  if (options.vocabulary.empty()) options.vocabulary = kFixtures + "wordpiece.txt";
  std::istringstream in(input);
  std::ostringstream out;
  const Status status = TokenizeTexts(options, in, out);
  return status.ok() ? out.str() : status.ToString();
}

TEST(TokenizeTest, WritesPiecesAndIds) {
  EXPECT_EQ(Print({.texts = {"a!", "A!"}}),
            "[CLS] a ! [SEP]\n2 67 5 3\n[CLS] a ! [SEP]\n2 67 5 3\n");
  EXPECT_EQ(Print({.texts = {"A!"}, .cased = true}), "[CLS] A ! [SEP]\n2 36 5 3\n");
  EXPECT_EQ(Print({.texts = {"a\"\n"}, .json = true}),
            "{\"text\": \"a\\\"\\u000a\", \"pieces\": [\"[CLS]\", \"a\", \"\\\"\", \"[SEP]\"], "
            "\"ids\": [2, 67, 6, 3]}\n");
}

TEST(TokenizeTest, ReadsTextsFromInputLines) {
  EXPECT_EQ(Print({}, "a\n\n!"), "[CLS] a [SEP]\n2 67 3\n[CLS] [SEP]\n2 3\n[CLS] ! [SEP]\n2 5 3\n");
}

TEST(TokenizeTest, DetectsSentencePieceModelByName) {
  EXPECT_EQ(Print({.texts = {"a"}, .vocabulary = kFixtures + "unigram.model"}),
            "[CLS] ▁a [SEP]\n2 18 3\n");
}

TEST(TokenizeTest, NamesInvalidVocabularyFile) {
  EXPECT_EQ(Print({.texts = {"a"}, .vocabulary = "none.txt"}),
            "not_found: none.txt does not exist");
  EXPECT_EQ(Print({.texts = {"a"}, .vocabulary = kFixtures}),
            "invalid_argument: " + kFixtures + " is a folder, not a file");
  EXPECT_EQ(Print({.texts = {"a"}, .vocabulary = kFixtures + "samples.jsonl"}),
            "invalid_argument: " + kFixtures +
                "samples.jsonl: it has no line [PAD]; it is not a vocabulary of BERT");
}

int Command(std::vector<std::string> words) {
  words.insert(words.begin(), "troop");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  return RunCommand(int(argv.size()), argv.data());
}

TEST(TokenizeTest, CommandReturnsExitCodes) {
  const std::string vocabulary = kFixtures + "wordpiece.txt";
  EXPECT_EQ(Command({"tokenize", "a", "b", "--vocab", vocabulary, "--cased", "--json"}), kExitOk);
  EXPECT_EQ(Command({"tokenize", "a", "--vocab", "none.txt"}), kExitUsage);
  EXPECT_EQ(Command({"tokenize", "a"}), kExitUsage);  // which vocabulary?
  EXPECT_EQ(Command({"tokenize", "--vocab", vocabulary, "--", "--json"}), kExitOk);
}

// Not as a list, which CLI11 would make of it.
TEST(TokenizeTest, TreatsBracketedTextAsOneText) {
  ::testing::internal::CaptureStdout();
  const int code = Command(
      {"tokenize", "[a, b]", "[]", "[a] b", "--vocab", kFixtures + "wordpiece.txt", "--json"});
  const std::string out = ::testing::internal::GetCapturedStdout();
  EXPECT_EQ(code, kExitOk);
  EXPECT_EQ(std::ranges::count(out, '\n'), 3) << out;
  for (const char* const text : {R"("text":"[a, b]")", R"("text":"[]")", R"("text":"[a] b")"}) {
    std::string tight = out;
    std::erase(tight, ' ');
    std::string wanted = text;
    std::erase(wanted, ' ');
    EXPECT_NE(tight.find(wanted), std::string::npos) << out;
  }
}

}  // namespace
}  // namespace troop
