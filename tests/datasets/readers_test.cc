#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "core/storage/sha256.h"
#include "datasets/text/archive_reader.h"
#include "datasets/text/class_folder.h"
#include "datasets/text/csv.h"
#include "datasets/text/labeled_texts.h"
#include "tests/core/temp_folder.h"
#include "tests/datasets/data.h"
#include "tests/datasets/tar_file.h"

namespace troop {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Rows = std::vector<std::vector<std::string>>;

Result<Rows> ReadRows(std::string_view text, char delimiter = ',') {
  CsvReader reader(text, delimiter);
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
  EXPECT_EQ(*ReadRows(""), Rows{});
}

// Cell by cell what pandas.read_csv reads (tools/make_csv_fixtures.py).
TEST(CsvTest, ReadsHardTablesAsPandas) {
  int tables = 0, rejected = 0;
  for (const JsonValue& table : ReadJsonLines(TextFixture("tables.jsonl"))) {
    const std::string text = *table.String("text");
    SCOPED_TRACE(text);
    const auto rows = ReadRows(text, table.String("delimiter")->front());
    const JsonValue& expected = *table.Find("rows");
    ++tables;
    if (expected.kind == JsonValue::Kind::kNull) {
      EXPECT_EQ(rows.status().code(), Code::kDataLoss);
      ++rejected;
      continue;
    }
    ASSERT_TRUE(rows.ok()) << rows.status().ToString();
    ASSERT_EQ(rows->size(), expected.array.size());
    for (std::size_t i = 0; i < rows->size(); ++i) {
      const auto& cells = expected.array[i].array;
      ASSERT_EQ((*rows)[i].size(), cells.size()) << i;
      for (std::size_t j = 0; j < cells.size(); ++j) EXPECT_EQ((*rows)[i][j], cells[j].string);
    }
  }
  EXPECT_EQ(tables, 21);
  EXPECT_EQ(rejected, 2);
}

TEST(CsvTest, RejectsOpenQuoteNamingLine) {
  EXPECT_EQ(ReadRows("a\n\"b\nc").status().message(), "line 2: unclosed quote");
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
    const auto reviews = ReadTexts(path);
    ASSERT_TRUE(reviews.ok()) << reviews.status().ToString();
    EXPECT_THAT(reviews->names, ElementsAre("negative", "positive"));
    ASSERT_EQ(reviews->train.size(), 3);
    EXPECT_EQ(reviews->train[0].text, "Good.<br />");
    EXPECT_EQ(reviews->train[1].text, "Great, \"really\" great.");
    EXPECT_THAT(reviews->train[1].labels, ElementsAre("positive"));
    EXPECT_THAT(reviews->train[2].labels, ElementsAre("negative"));
    ASSERT_EQ(reviews->test.size(), 1);
    EXPECT_EQ(reviews->test[0].text, "caf\u00E9");
    ASSERT_EQ(reviews->unlabeled.size(), 1);
    EXPECT_FALSE(reviews->unlabeled[0].labeled);
    // The ratings are in the files' names.
    const auto rated = ReadTexts(path, {.problem_type = ProblemType::kRegression});
    ASSERT_TRUE(rated.ok()) << rated.status().ToString();
    EXPECT_TRUE(rated->names.empty());
    EXPECT_THAT(rated->train[1].labels, ElementsAre("10"));
    EXPECT_THAT(rated->train[2].labels, ElementsAre("1"));
    EXPECT_THAT(rated->test[0].labels, ElementsAre("2"));
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
  EXPECT_TRUE(ReadTexts(folder.path()).ok());
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("1 is not UTF-8 (first: train/neg/0_*.txt)"), std::string::npos) << said;
}

// Names and texts of a folder, "path=text".
Result<LabeledTexts> Collect(std::initializer_list<const char*> names,
                             ProblemType problem = ProblemType::kSingleLabel) {
  ClassFolderCollector collector;
  for (const char* const name : names) {
    TROOP_RETURN_IF_ERROR(collector.Add(name, std::string("text of ") + name));
  }
  return collector.Finish(problem);
}

TEST(ReviewsTest, NamesMissingOrDuplicateReviews) {
  const auto message = [](std::initializer_list<const char*> names) {
    return Collect(names).status().message();
  };
  EXPECT_EQ(message({"x/train/pos/0_9.txt", "x/train/pos/2_9.txt"}),
            "train/pos/1_*.txt is missing; expected numbers 0 to 2");
  EXPECT_EQ(message({"train/pos/0_9.txt", "train/pos/0_8.txt"}),
            "train/pos has two reviews with number 0");
  EXPECT_EQ(message({"train/pos/0_9.txt", "train/pos/1_9.txt"}),
            "train/neg has no reviews and train/pos has 2; both classes are needed");
  EXPECT_EQ(message({"train/neg/0_1.txt"}),
            "train/pos has no reviews and train/neg has 1; both classes are needed");
  // A small number of both classes can be intended.
  EXPECT_EQ(
      message({"train/pos/0_9.txt", "train/pos/1_9.txt", "train/neg/0_1.txt", "test/pos/0_9.txt"}),
      "");
}

TEST(ClassFolderTest, ReadsSetsAndClassesFromPaths) {
  const auto sets = Collect({"my/test/ham/b.txt", "my/train/spam/2.txt", "my/train/ham/1.txt",
                             "my/README.txt", "my/train/unlabeled/u.txt", "my/train/ham/x.html",
                             "./my/validation/spam/v.txt", "my/other/ham/1.txt"});
  ASSERT_TRUE(sets.ok()) << sets.status().ToString();
  ASSERT_EQ(sets->train.size(), 2);
  EXPECT_EQ(sets->train[0].text, "text of my/train/ham/1.txt");
  EXPECT_THAT(sets->train[0].labels, ElementsAre("ham"));
  EXPECT_THAT(sets->train[1].labels, ElementsAre("spam"));
  ASSERT_EQ(sets->validation.size(), 1);
  EXPECT_THAT(sets->validation[0].labels, ElementsAre("spam"));
  ASSERT_EQ(sets->test.size(), 1);
  ASSERT_EQ(sets->unlabeled.size(), 1);
  EXPECT_FALSE(sets->unlabeled[0].labeled);
  // Classes alone.
  const auto classes = Collect({"b/2.txt", "a/1.txt", "notes.txt"});
  ASSERT_TRUE(classes.ok()) << classes.status().ToString();
  ASSERT_EQ(classes->train.size(), 2);
  EXPECT_THAT(classes->train[0].labels, ElementsAre("a"));
  EXPECT_TRUE(classes->test.empty());
}

TEST(ClassFolderTest, RejectsOtherFolders) {
  const auto message = [](std::initializer_list<const char*> names,
                          ProblemType problem = ProblemType::kSingleLabel) {
    return Collect(names, problem).status().message();
  };
  EXPECT_THAT(message({}), HasSubstr("it has no examples; expected SET/CLASS/*.txt"));
  EXPECT_THAT(message({"a.txt"}), HasSubstr("it has no examples"));
  EXPECT_THAT(message({"train/1.txt", "test/2.txt"}),
              HasSubstr("\"test/2.txt\" is not in a folder of a class; expected test/CLASS/*.txt"));
  EXPECT_THAT(message({"a/1.txt", "x/b/2.txt"}), HasSubstr("in folders of different depth"));
  EXPECT_THAT(message({"a/1.txt", "b/2.txt"}, ProblemType::kRegression),
              HasSubstr("a regression needs numbers"));
}

TEST(TextSourceTest, DetectsTestTextsInFoldersAndAssumesInArchives) {
  const TempFolder folder;
  EXPECT_FALSE(HasTestTexts(folder.path()));
  std::filesystem::create_directory(folder.path() + "/test");
  EXPECT_TRUE(HasTestTexts(folder.path()));
  EXPECT_TRUE(HasTestTexts("a.tar.xz"));
  EXPECT_TRUE(HasTestTexts("a.tgz"));
  for (const char* const table : {"a.csv", "a.tsv.gz", "a.jsonl.xz"}) {
    EXPECT_FALSE(HasTestTexts(table));
    EXPECT_TRUE(IsTextTable(table));
  }
  EXPECT_FALSE(TextSourceKindOf("a.zip").has_value());
  EXPECT_FALSE(TextSourceKindOf("csv").has_value());
}

// A gzip file as zlib writes it.
std::string Gzip(const std::string& text) {
  std::string out(text.size() + 100, '\0');
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = uInt(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = uInt(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

TEST(DecompressTest, RejectsEveryTruncationAndFlippedBit) {
  const std::string text(3000, 'x'), sound = Gzip(text + "the end");
  EXPECT_EQ(*Decompress(sound, Compression::kGzip, 3007), text + "the end");
  EXPECT_EQ(*Decompress(sound + Gzip("2"), Compression::kGzip, 4000), text + "the end2");
  EXPECT_EQ(Decompress(sound, Compression::kGzip, 3006).status().code(), Code::kResourceExhausted);
  for (std::size_t i = 0; i < sound.size(); ++i) {
    const Status cut = Decompress(sound.substr(0, i), Compression::kGzip, 4000).status();
    EXPECT_EQ(cut.code(), Code::kDataLoss) << i;
    EXPECT_THAT(cut.message(), HasSubstr("its end is missing"));
    std::string bytes = sound;
    bytes[i] = char(bytes[i] ^ 0x10);
    // Some bits have no meaning, such as the header's time.
    const auto flipped = Decompress(bytes, Compression::kGzip, 4000);
    EXPECT_TRUE(!flipped.ok() || *flipped == text + "the end") << i;
  }
}

TEST(TextSourceTest, ReadsCompressedTablesAndArchives) {
  const TempFolder folder;
  const std::string table = "text\tlabel\na\tx\nb\ty\n";
  std::ofstream(folder.path() + "/a.tsv.gz") << Gzip(table);
  const auto texts = ReadTexts(folder.path() + "/a.tsv.gz");
  ASSERT_TRUE(texts.ok()) << texts.status().ToString();
  ASSERT_EQ(texts->train.size(), 2);
  EXPECT_EQ(texts->train[1].text, "b");
  EXPECT_THAT(texts->train[1].labels, ElementsAre("y"));
  const std::string files = TarFile("d/ham/1.txt", "one") + TarFile("d/spam/1.txt", "two");
  for (const char* const name : {"/a.tgz", "/a.tar.gz"}) {
    std::ofstream(folder.path() + name) << Gzip(files + kTarEnd);
    const auto archive = ReadTexts(folder.path() + name);
    ASSERT_TRUE(archive.ok()) << archive.status().ToString();
    ASSERT_EQ(archive->train.size(), 2);
    EXPECT_EQ(archive->train[1].text, "two");
  }
  // An archive that was cut in transfer.
  const std::string whole = Gzip(table);
  std::ofstream(folder.path() + "/cut.csv.gz") << whole.substr(0, whole.size() - 4);
  EXPECT_EQ(ReadTexts(folder.path() + "/cut.csv.gz").status().message(),
            folder.path() + "/cut.csv.gz: gzip, byte " + std::to_string(whole.size() - 4) +
                ": its end is missing");
  // A tar archive instead of a table is not text of one column.
  EXPECT_THAT(ReadTexts(TextFixture("small_imdb.tar.xz"), {.label_column = "x"}).status().message(),
              HasSubstr("data.label_column is set, but applies to tables"));
}

TEST(TextSourceTest, ReadsXzTable) {
  // printf 'text,label\na,x\nb,y\n' | xz
  const std::string bytes = ReadAll(TextFixture("table.csv.xz"));
  EXPECT_EQ(*Decompress(bytes, Compression::kXz, 100), "text,label\na,x\nb,y\n");
  EXPECT_EQ(Decompress(bytes.substr(0, bytes.size() - 1), Compression::kXz, 100).status().code(),
            Code::kDataLoss);
  EXPECT_EQ(ReadTexts(TextFixture("table.csv.xz"))->train.size(), 2);
}

TEST(TextSourceTest, MissingOrDamagedFileErrorNamesExpectedSource) {
  const TempFolder folder;
  const std::string path = folder.path() + "/aclImdb.csv";
  const std::string text = "review,sentiment\nx,positive\n";
  const std::string sum = Sha256Hex(text);
  std::ofstream(folder.path() + "/SHA256SUMS") << sum + "  aclImdb.csv\n";
  const std::string advice =
      "; download aclImdb_v1.tar.gz from https://ai.stanford.edu/~amaas/data/sentiment/, unpack it "
      "and give its folder aclImdb";
  EXPECT_EQ(ReadTexts(path).status().message(),
            path + " does not exist (expected SHA-256 " + sum + ")" + advice);
  std::ofstream(path) << text + " ";
  EXPECT_EQ(ReadTexts(path).status().message(), path + ": it is damaged: 29 bytes with SHA-256 " +
                                                    Sha256Hex(text + " ") + ", expected " + sum +
                                                    " (SHA256SUMS)" + advice);
  std::ofstream(path) << text;
  EXPECT_TRUE(ReadTexts(path).ok());
  std::ofstream(folder.path() + "/a.tar.xz") << "no archive";
  const std::string damaged = ReadTexts(folder.path() + "/a.tar.xz").status().message();
  for (const char* part : {"/a.tar.xz: archive, byte 0: Unrecognized archive format",
                           "a complete archive of train/CLASS/*.txt", " 10 bytes"}) {
    EXPECT_NE(damaged.find(part), damaged.npos) << part << ": " << damaged;
  }
  std::ofstream(folder.path() + "/a.zip") << "x";
  EXPECT_EQ(ReadTexts(folder.path() + "/a.zip").status().message(),
            folder.path() +
                "/a.zip: neither a folder, a table (.csv, .tsv, .jsonl; also .gz and .xz) nor an "
                "archive (.tar.gz, .tar.xz)");
  std::ofstream(folder.path() + "/a.parquet") << "PAR1";
  EXPECT_THAT(ReadTexts(folder.path() + "/a.parquet").status().message(),
              HasSubstr("Parquet is not supported; convert it: python3 -c"));
}

}  // namespace
}  // namespace troop
