#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "core/storage/sha256.h"
#include "datasets/text/csv.h"
#include "datasets/text/imdb_reviews.h"
#include "tests/core/temp_folder.h"
#include "tests/datasets/data.h"
#include "tests/datasets/tar_file.h"

namespace troop {
namespace {

using Rows = std::vector<std::vector<std::string>>;

Result<Rows> ReadRows(std::string_view text) {
  CsvReader reader(text);
  Rows rows;
  std::vector<std::string> fields;
  for (;;) {
    TROOP_ASSIGN_OR_RETURN(const bool more, reader.Next(&fields));
    if (!more) return rows;
    rows.push_back(fields);
  }
}

TEST(CsvTest, ParsesFieldsPerStandard) {
  EXPECT_EQ(*ReadRows("a,b\r\n1,\"x, \"\"y\"\"\nz\"\n,\n"),
            (Rows{{"a", "b"}, {"1", "x, \"y\"\nz"}, {"", ""}}));
  EXPECT_EQ(*ReadRows("\xEF\xBB\xBF"
                      "a\n\"\""),
            (Rows{{"a"}, {""}}));
  EXPECT_EQ(*ReadRows("a\rb\n\n"), (Rows{{"a\rb"}}));
  EXPECT_EQ(*ReadRows(""), Rows{});
}

TEST(CsvTest, RejectsInvalidCsvNamingLine) {
  EXPECT_EQ(ReadRows("a\n\"b\nc").status().message(), "line 2: unclosed quote");
  EXPECT_EQ(ReadRows("\"a\nb\"\n\"c\"d").status().message(),
            "line 3: text after a closing quote; expected a comma");
  EXPECT_EQ(ReadRows("a\"b\"").status().message(), "line 1: quote inside an unquoted field");
}

TEST(ReviewsTest, ReadsSameReviewsFromArchiveAndFolder) {
  // An archive that GNU tar and `xz` made from the folder that is written here.
  const TempFolder folder;
  const auto put = [&](const std::string& name, const std::string& text) {
    const std::filesystem::path path = folder.path() + "/aclImdb/" + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  };
  put("train/pos/0_9.txt", "Good.<br />");
  put("train/pos/1_10.txt", "Great, \"really\" great.");
  put("train/neg/0_1.txt", "Bad.");
  put("test/neg/0_2.txt", "caf\u00E9");
  put("train/unsup/0_0.txt", "?");
  put("train/pos/urls.txt", "no review");
  for (const std::string& path : {folder.path() + "/aclImdb", TextFixture("small_imdb.tar.xz")}) {
    const auto reviews = ReadReviews(path);
    ASSERT_TRUE(reviews.ok()) << reviews.status().ToString();
    ASSERT_EQ(reviews->train.size(), 3);
    EXPECT_EQ(reviews->train[0].text, "Good.<br />");
    EXPECT_EQ(reviews->train[1].text, "Great, \"really\" great.");
    EXPECT_EQ(reviews->train[1].sentiment, Sentiment::kPositive);
    EXPECT_EQ(reviews->train[2].sentiment, Sentiment::kNegative);
    ASSERT_EQ(reviews->test.size(), 1);
    EXPECT_EQ(reviews->test[0].text, "caf\u00E9");
    ASSERT_EQ(reviews->unlabeled.size(), 1);
    EXPECT_EQ(reviews->unlabeled[0].sentiment, Sentiment::kNone);
  }
}

TEST(ReviewsTest, CountsReviewsThatAreNotUtf8AndNamesFirst) {
  const TempFolder folder;
  std::filesystem::create_directories(folder.path() + "/train/pos");
  std::filesystem::create_directories(folder.path() + "/train/neg");
  std::ofstream(folder.path() + "/train/pos/0_9.txt") << "Good.";
  std::ofstream(folder.path() + "/train/neg/0_1.txt") << "d\xE9"
                                                         "plorable";
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(ReadReviews(folder.path()).ok());
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("1 is not UTF-8 (first: train/neg/0_*.txt)"), std::string::npos) << said;
}

TEST(ReviewsTest, ReadsTable) {
  const auto reviews = ReadReviewCsv(
      "id,sentiment,review\r\n1,positive,\"Good,\nreally\"\r\n2,negative,bad\r\n3,0,worse\r\n");
  ASSERT_TRUE(reviews.ok()) << reviews.status().ToString();
  ASSERT_EQ(reviews->train.size(), 3);
  EXPECT_EQ(reviews->train[0].text, "Good,\nreally");
  EXPECT_EQ(reviews->train[0].sentiment, Sentiment::kPositive);
  EXPECT_EQ(reviews->train[2].sentiment, Sentiment::kNegative);
  const auto message = [](std::string_view csv) { return ReadReviewCsv(csv).status().message(); };
  EXPECT_EQ(message("review,label\nx,1\n"),
            "its first line must name the columns review and sentiment");
  EXPECT_EQ(message("review,sentiment\nx,1\ny\n"), "line 3: 1 fields, expected 2");
  EXPECT_EQ(message("review,sentiment\n\"x\ny\",1\ny,good\n"),
            "line 4: sentiment \"good\" must be positive, negative, 1 or 0");
  EXPECT_EQ(message("review,sentiment\n"), "it has no reviews");
  EXPECT_EQ(
      message("review,sentiment\ncaf\xC3\xA9,1\ncaf\xE9,0\n"),
      "line 3: the review is not UTF-8; convert the file, for example with iconv -f latin1 -t "
      "utf-8");
}

TEST(ReviewsTest, NamesMissingOrDuplicateReviews) {
  const auto message = [](const std::string& files) {
    return ReadReviewArchive(files + kTarEnd, Compression::kNone).status().message();
  };
  EXPECT_EQ(message(TarFile("x/train/pos/0_9.txt", "") + TarFile("x/train/pos/2_9.txt", "")),
            "train/pos/1_*.txt is missing; expected numbers 0 to 2");
  EXPECT_EQ(message(TarFile("train/pos/0_9.txt", "") + TarFile("train/pos/0_8.txt", "")),
            "train/pos has two reviews with number 0");
  EXPECT_EQ(message(TarFile("train/positive/0_9.txt", "") + TarFile("atrain/pos/0_9.txt", "")),
            "it has no reviews (train/pos/0_9.txt …)");
  EXPECT_EQ(message(TarFile("train/pos/0_9.txt", "") + TarFile("train/pos/1_9.txt", "")),
            "train/neg has no reviews and train/pos has 2; both classes are needed");
  EXPECT_EQ(message(TarFile("train/neg/0_1.txt", "")),
            "train/pos has no reviews and train/neg has 1; both classes are needed");
  // A small number of both classes can be intended.
  EXPECT_EQ(message(TarFile("train/pos/0_9.txt", "") + TarFile("train/pos/1_9.txt", "") +
                    TarFile("train/neg/0_1.txt", "") + TarFile("test/pos/0_9.txt", "")),
            "");
}

TEST(ReviewsTest, DetectsTestReviewsInFoldersAndAssumesInArchives) {
  const TempFolder folder;
  EXPECT_FALSE(HasTestReviews(folder.path()));
  std::filesystem::create_directory(folder.path() + "/test");
  EXPECT_TRUE(HasTestReviews(folder.path()));
  EXPECT_TRUE(HasTestReviews("a.tar.xz"));
  EXPECT_FALSE(HasTestReviews("a.csv"));
}

TEST(ReviewsTest, MissingOrDamagedFileErrorNamesExpectedSource) {
  const TempFolder folder;
  const std::string path = folder.path() + "/reviews.csv";
  const std::string text = "review,sentiment\nx,positive\n";
  const std::string sum = Sha256Hex(text);
  std::ofstream(folder.path() + "/SHA256SUMS") << sum + "  reviews.csv\n";
  const std::string advice =
      "; download aclImdb_v1.tar.gz from https://ai.stanford.edu/~amaas/data/sentiment/, unpack it "
      "and give its folder aclImdb";
  EXPECT_EQ(ReadReviews(path).status().message(),
            "reviews: " + path + " does not exist (expected SHA-256 " + sum + ")" + advice);
  std::ofstream(path) << text + " ";
  EXPECT_EQ(ReadReviews(path).status().message(),
            "reviews: " + path + ": it is damaged: 29 bytes with SHA-256 " + Sha256Hex(text + " ") +
                ", expected " + sum + " (SHA256SUMS)" + advice);
  std::ofstream(path) << text;
  EXPECT_TRUE(ReadReviews(path).ok());
  std::ofstream(folder.path() + "/a.tar.xz") << "no archive";
  const std::string damaged = ReadReviews(folder.path() + "/a.tar.xz").status().message();
  for (const char* part :
       {"/a.tar.xz: archive, byte 0: Unrecognized archive format",
        "a complete .tar.xz of train/pos/0_9.txt", " 10 bytes", "; download aclImdb_v1.tar.gz"}) {
    EXPECT_NE(damaged.find(part), damaged.npos) << part << ": " << damaged;
  }
  std::ofstream(folder.path() + "/a.zip") << "x";
  EXPECT_EQ(
      ReadReviews(folder.path() + "/a.zip").status().message(),
      "reviews: " + folder.path() + "/a.zip: neither a folder nor a .tar.xz or .csv file" + advice);
}

// They were "damaged", and the advice was to fetch another data set.
TEST(ReviewsTest, CustomTableErrorsDoNotSuggestDownload) {
  const TempFolder folder;
  const std::string path = folder.path() + "/mine.csv";
  const auto error = [&](const std::string& text) {
    std::ofstream(path) << text;
    return ReadReviews(path).status();
  };
  const Status label = error("review,sentiment\nx,positive\ny,neutral\n");
  EXPECT_EQ(label.code(), Code::kInvalidArgument);
  EXPECT_EQ(label.message(), "reviews: " + path +
                                 ": line 3: sentiment \"neutral\" must be positive, negative, "
                                 "1 or 0");
  EXPECT_EQ(error("text,label\nx,positive\n").message(),
            "reviews: " + path + ": its first line must name the columns review and sentiment");
}

}  // namespace
}  // namespace troop
