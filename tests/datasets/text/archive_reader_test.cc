#include "datasets/text/archive_reader.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/datasets/data.h"
#include "tests/datasets/tar_file.h"

namespace troop {
namespace {

using testing::HasSubstr;

const ArchiveReader::Options kPlain = {.xz = false};

// Names and sizes of all files, or the error.
std::string Visit(std::string_view bytes, const ArchiveReader::Options& options = kPlain) {
  Result<ArchiveReader> reader = ArchiveReader::Make(bytes, options);
  std::string seen;
  while (reader.ok()) {
    const Result<bool> more = reader->Next();
    if (!more.ok()) return more.status().ToString();
    if (!*more) return seen;
    const Result<std::string> content = reader->Read();
    if (!content.ok()) return content.status().ToString();
    seen += fmt::format("{}:{} ", reader->name(), content->size());
  }
  return reader.status().ToString();
}

// Visits all files without reading them.
Status Skip(std::string_view bytes, const ArchiveReader::Options& options) {
  TROOP_ASSIGN_OR_RETURN(ArchiveReader reader, ArchiveReader::Make(bytes, options));
  for (;;) {
    TROOP_ASSIGN_OR_RETURN(const bool more, reader.Next());
    if (!more) return Status::Ok();
  }
}

TEST(ArchiveReaderTest, VisitsFilesInOrderAndSkipsOtherEntries) {
  std::string archive = TarFile("a/b.txt", "one") + TarFile("a/", "", '5');
  for (const char type : {'1', '2', '3', '4', '6'}) archive += TarFile("link or device", "", type);
  archive += TarFile("pax", "18 mtime=12345678\n", 'x') + TarFile("c.txt", std::string(512, 'x')) +
             TarFile("../d", "", '\0') + TarFile("b.txt", "", '0', "long/path");
  EXPECT_EQ(Visit(archive + kTarEnd), "a/b.txt:3 c.txt:512 ../d:0 long/path/b.txt:0 ");
  EXPECT_EQ(Visit(kTarEnd), "");
}

TEST(ArchiveReaderTest, ReadsLongNames) {
  const std::string name(300, 'n');
  const std::string record = fmt::format("310 path={}\n", name);
  ASSERT_EQ(record.size(), 310);
  EXPECT_EQ(Visit(TarFile("pax", record, 'x') + TarFile("short", "x") + kTarEnd), name + ":1 ");
  EXPECT_EQ(Visit(TarFile("././@LongLink", name + '\0', 'L') + TarFile("short", "x") + kTarEnd),
            name + ":1 ");
  const std::string utf8 = "18 path=caf\u00E9.txt\n";
  ASSERT_EQ(utf8.size(), 18);
  EXPECT_EQ(Visit(TarFile("pax", utf8, 'x') + TarFile("short", "x") + kTarEnd), "caf\u00E9.txt:1 ");
}

TEST(ArchiveReaderTest, RejectsHostileHeaders) {
  const std::string file = TarFile("a", "one");
  EXPECT_THAT(Visit(""), HasSubstr("data_loss: archive, byte 0: Unrecognized archive format"));
  EXPECT_EQ(Visit(file), "data_loss: archive: its end is missing");
  EXPECT_EQ(Visit(file + "x"), "data_loss: archive, byte 1024: Truncated tar archive");
  EXPECT_THAT(Visit(file.substr(0, 600)), HasSubstr("data_loss: archive, byte 600: Truncated"));
  EXPECT_EQ(Visit(file.substr(0, 514)), "data_loss: archive, byte 514: Truncated tar archive");
  std::string bad = file + kTarEnd;
  bad[0] = 'b';
  EXPECT_EQ(Visit(bad), "data_loss: archive, byte 0: Unrecognized archive format");
  EXPECT_EQ(Visit(file + bad), "data_loss: archive, byte 1536: Damaged tar archive");
  EXPECT_THAT(Visit(file + TarFile("a", "", '0', "", "77777777777")), HasSubstr("Truncated"));
  const std::string negative("\xFF\0\0\0\0\0\0\0\0\0\0", 11);
  EXPECT_THAT(Visit(file + TarFile("a", "", '0', "", negative)), HasSubstr("negative size"));
  EXPECT_THAT(Visit(file + TarFile("a", "16 path=b.txt\n", 'x')), HasSubstr("data_loss"));
}

TEST(ArchiveReaderTest, RejectsDamagedXz) {
  const std::string sound = ReadAll(TextFixture("small_imdb.tar.xz"));
  const ArchiveReader::Options options = {.bytes_max = 20480};
  EXPECT_TRUE(Skip(sound, options).ok()) << Skip(sound, options).ToString();
  EXPECT_TRUE(Skip(sound + sound, {.bytes_max = 40960}).ok());  // two streams
  EXPECT_EQ(Skip(sound, {.bytes_max = 20479}).ToString(),
            "resource_exhausted: its content is larger than 20479 bytes");
  EXPECT_THAT(Skip("abc" + sound, options).ToString(), HasSubstr("Unrecognized archive format"));
  EXPECT_EQ(Skip("", options).code(), Code::kDataLoss);
  for (std::size_t i = 0; i < sound.size(); i += 29) {
    std::string bytes = sound;
    bytes[i] = char(bytes[i] ^ 0x10);
    EXPECT_FALSE(Skip(bytes, options).ok()) << i;
    EXPECT_FALSE(Skip(sound.substr(0, i), options).ok()) << i;
  }
}

TEST(ArchiveReaderTest, LimitsFilesAndSkippedEntries) {
  const std::string archive = TarFile("a", std::string(2000, 'x')) + kTarEnd;
  EXPECT_EQ(Visit(archive, {.xz = false, .file_bytes_max = 2000}), "a:2000 ");
  EXPECT_EQ(Visit(archive, {.xz = false, .file_bytes_max = 1999}),
            "resource_exhausted: \"a\" is larger than 1999 bytes");
  EXPECT_TRUE(Skip(archive, {.xz = false, .file_bytes_max = 1999}).ok());
  EXPECT_EQ(Skip(archive, {.xz = false, .bytes_max = 3000}).code(), Code::kResourceExhausted);
}

}  // namespace
}  // namespace troop
