// Readers of sentence pairs: aligned files, tables and damaged ones.
#include "datasets/translation/sentence_pairs.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

namespace troop {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Each test has a folder of its name.
class SentencePairsTest : public testing::Test {
 protected:
  SentencePairsTest()
      : folder_(testing::TempDir() + "/pairs_" +
                testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::create_directories(folder_);
  }
  ~SentencePairsTest() override { std::filesystem::remove_all(folder_); }
  // Writes a file and returns its path.
  std::string Write(const std::string& name, const std::string& content) {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << content;
    return folder_ + "/" + name;
  }
  const std::string folder_;
};

TEST_F(SentencePairsTest, AlignedFilesAndTablesGiveTheSamePairs) {
  const std::string a = Write("a.en", "\xEF\xBB\xBFone\r\ntwo\n\n  \nthree three"),
                    b = Write("a.de", "eins\nzwei\nleer\ndrei\ndrei drei\n"),
                    table = Write("a.tsv",
                                  "one\teins\r\ntwo\tzwei\n\tleer\n \tx\nthree three\tdrei drei");
  for (const auto& pairs : {ReadSentencePairs(a, b), ReadSentencePairs(table, "")}) {
    ASSERT_TRUE(pairs.ok()) << pairs.status().ToString();
    EXPECT_THAT(pairs->source, ElementsAre("one", "two", "three three"));
    EXPECT_THAT(pairs->target, ElementsAre("eins", "zwei", "drei drei"));
    EXPECT_EQ(pairs->blank, 2);
  }
}

TEST_F(SentencePairsTest, FilesOfDifferentLengthAreRefusedWithBothCounts) {
  const std::string a = Write("a.en", "one\ntwo\n"), b = Write("a.de", "eins\n");
  EXPECT_EQ(
      ReadSentencePairs(a, b).status().message(),
      a + " has 2 lines, but " + b + " has 1; aligned files must have one translation per line");
}

TEST_F(SentencePairsTest, BadLinesAreNamed) {
  const auto message = [&](const std::string& content) {
    return ReadSentencePairs(Write("x.tsv", content), "").status().message();
  };
  EXPECT_THAT(message("a\tb\nno tab\n"), HasSubstr("line 2: has 0 tabs"));
  EXPECT_THAT(message("a\tb\tc\n"), HasSubstr("line 1: has 2 tabs"));
  EXPECT_THAT(message("a\t\xFF\n"), HasSubstr("line 1: is not UTF-8"));
  EXPECT_THAT(message("a\tb\n" + std::string(kLineBytesMax, 'x') + "\tb\n"),
              HasSubstr("line 2: has 16386 bytes, must have at most 16384"));
  EXPECT_THAT(message(""), HasSubstr("has no sentence pairs"));
  EXPECT_THAT(message("\t\n"), HasSubstr("1 blank ones were left out"));
  EXPECT_EQ(ReadSentencePairs(folder_ + "/none", "").status().code(), Code::kNotFound);
}

}  // namespace
}  // namespace troop
