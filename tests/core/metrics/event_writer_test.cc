#include "core/metrics/event_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <limits>
#include <sstream>

#include "core/base/time.h"
#include "core/storage/memory_storage.h"
#include "tests/core/python.h"
#include "tests/core/temp_folder.h"

namespace troop {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::StartsWith;

// Bit by bit, from the polynomial: nothing in common with core/crc32c.
std::uint32_t SlowCrc32c(std::string_view bytes) {
  std::uint32_t crc = ~0u;
  for (const char byte : bytes) {
    crc ^= std::uint8_t(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
  }
  return ~crc;
}
std::string Masked(std::string_view bytes) {
  const std::uint32_t crc = SlowCrc32c(bytes);
  const std::uint32_t masked = ((crc >> 15) | (crc << 17)) + 0xA282EAD8u;
  std::string text;
  for (int shift = 0; shift < 32; shift += 8) text += char(masked >> shift);
  return text;
}
std::string Framed(std::string_view data) {
  std::string length(8, '\0');
  length[0] = char(data.size());  // below 256 in these tests
  return length + Masked(length) + std::string(data) + Masked(data);
}

std::string FileText(Storage& storage, const std::string& path) {
  const Result<Buffer> bytes = storage.Read(path, 1 << 20);
  EXPECT_TRUE(bytes.ok()) << bytes.status().ToString();
  return bytes.ok() ? std::string(bytes->text()) : "";
}

TEST(EventFileTest, MatchesTensorFlowBytes) {
  const auto storage = MakeMemoryStorage();
  auto file = storage->OpenAppend("events");
  ASSERT_TRUE(file.ok());
  auto writer = EventWriter::Make(std::move(*file), 1.0);
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE((*writer)->Scalars(2.0, 300, {{"a/b", 1.5}, {"c", -2}}).ok());
  constexpr std::string_view kVersion(
      "\x09\x00\x00\x00\x00\x00\x00\xF0\x3F"  // wall_time (field 1, fixed64)
      "\x1A\x0D"
      "brain.Event:2",
      24);  // file_version (3, bytes)
  constexpr std::string_view kScalars(
      "\x09\x00\x00\x00\x00\x00\x00\x00\x40"
      "\x10\xAC\x02"  // step (2, varint 300)
      "\x2A\x16"      // summary (5): values (1) of
      "\x0A\x0A"
      "\x0A\x03"
      "a/b"
      "\x15\x00\x00\xC0\x3F"  // tag (1), simple_value (2, fixed32)
      "\x0A\x08"
      "\x0A\x01"
      "c"
      "\x15\x00\x00\x00\xC0",
      36);
  EXPECT_EQ(FileText(*storage, "events"), Framed(kVersion) + Framed(kScalars));
}

TEST(EventFileTest, FileNameHoldsTimeHostProcessAndFreeNumber) {
  const auto storage = MakeMemoryStorage();
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(EventWriter::Make(storage.get(), "runs/x").ok());
  const auto names = storage->List("runs/x");
  ASSERT_TRUE(names.ok());
  ASSERT_EQ(names->size(), 2u);
  const std::string pattern =
      fmt::format("events\\.out\\.tfevents\\.[0-9]+\\..+\\.{}\\.[01]", getpid());
  for (const std::string& name : *names) EXPECT_THAT(name, MatchesRegex(pattern));
}

TEST(EventFileTest, ReportsWriteFailure) {
  class Full final : public AppendFile {
   public:
    Status Append(std::span<const std::byte>) override { return ResourceExhausted("disk is full"); }
    Status Sync() override { return Status::Ok(); }
  };
  const auto writer = EventWriter::Make(std::make_unique<Full>(), 1.0);
  EXPECT_EQ(writer.status().code(), Code::kResourceExhausted);
}

// After kill -9 and a resume the step axis ran backwards.
TEST(EventFileTest, TensorBoardDropsStepsUndoneByRestart) {
  TROOP_SKIP_WITHOUT_PYTHON();
  const TempFolder folder;
  auto storage = MakeDiskStorage(folder.path());
  ASSERT_TRUE(storage.ok());
  for (const bool again : {false, true}) {
    auto writer = EventWriter::Make(storage->get(), "");
    ASSERT_TRUE(writer.ok()) << writer.status().ToString();
    if (again) {
      ASSERT_TRUE((*writer)->Restart(1, 21).ok());
    }
    for (std::int64_t step :
         again ? std::vector<std::int64_t>{25} : std::vector<std::int64_t>{10, 20, 30, 40}) {
      ASSERT_TRUE((*writer)->Scalars(1, step, {{"loss", again ? 2 : 1}}).ok());
    }
  }
  EXPECT_EQ(RunPython(TROOP_SOURCE_DIR "/tests/core/read_events.py " + folder.path()),
            "loss 10 1.0 1.0\nloss 20 1.0 1.0\nloss 25 1.0 2.0\n");
}

TEST(EventFileTest, TensorBoardReadsEventFile) {
  TROOP_SKIP_WITHOUT_PYTHON();
  const TempFolder folder;
  auto storage = MakeDiskStorage(folder.path());
  ASSERT_TRUE(storage.ok());
  auto writer = EventWriter::Make(storage->get(), "");
  ASSERT_TRUE(writer.ok()) << writer.status().ToString();
  const double wall_s = 1700000000.25;
  for (std::int64_t step : {std::int64_t{0}, std::int64_t{127}, std::int64_t{1} << 40}) {
    ASSERT_TRUE(
        (*writer)->Scalars(wall_s, step, {{"learner/loss", 0.1}, {"é", double(step)}}).ok());
  }
  ASSERT_TRUE((*writer)->Scalars(wall_s, 1, {{"odd", std::nan("")}}).ok());
  ASSERT_TRUE(
      (*writer)->Scalars(wall_s, 2, {{"odd", -std::numeric_limits<double>::infinity()}}).ok());
  Histogram ages;
  ages.Add(2, 3);
  ages.Add(2.6);
  ages.Add(0);
  ages.Add(1e300);
  ASSERT_TRUE((*writer)->Histograms(wall_s, 5, {{"age", ages}, {"none", {}}}).ok());
  Histogram two;
  two.Add(2, 3);
  two.Add(2.6);
  ASSERT_TRUE((*writer)->Histograms(wall_s, 6, {{"age", two}}).ok());
  std::istringstream lines(
      RunPython(TROOP_SOURCE_DIR "/tests/core/read_events.py " + folder.path()));
  std::vector<std::string> found;
  for (std::string line; std::getline(lines, line);) found.push_back(line);
  const std::string loss = "1700000000.25 0.10000000149011612";  // 0.1 as f32
  ASSERT_EQ(found.size(), 10u);
  EXPECT_THAT(found[8], StartsWith("age 5 1700000000.25 0.0 1e+300 6.0 1e+300 1.797"));
  EXPECT_THAT(found[8], HasSubstr(" 2.0:0.0 2.5:3.0 3.0:1.0 3.5:0.0 "));
  EXPECT_THAT(found[8], EndsWith(" 1.7976931348623157e+308:1.0"));
  EXPECT_EQ(found[9], "age 6 1700000000.25 2.0 2.6 4.0 8.6 18.76 2.5:3.0 3.0:1.0");
  found.resize(8);
  EXPECT_THAT(found, ElementsAre("learner/loss 0 " + loss, "learner/loss 127 " + loss,
                                 "learner/loss 1099511627776 " + loss, "odd 1 1700000000.25 nan",
                                 "odd 2 1700000000.25 -inf", "é 0 1700000000.25 0.0",
                                 "é 127 1700000000.25 127.0",
                                 "é 1099511627776 1700000000.25 1099511627776.0"));
}

// Field by field: summary (5) with a value (1) of tag (1) and image (4), whose height, width,
// colorspace and bytes are fields 1 to 4.
TEST(EventFileTest, ImageHasFieldsOfSummaryProto) {
  MemoryStorage storage;
  auto writer = EventWriter::Make(&storage, "");
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE((*writer)->Image(1.5, 7, "v", {.width = 200, .height = 3, .bytes = "abc"}).ok());
  const std::string name = (*storage.List(""))[0];
  const std::string file(storage.Read(name, 1 << 20)->text());
  const std::string image(
      "\x08\x03\x10\xc8\x01\x18\x03\x22\x03"
      "abc",
      12);
  const std::string value = std::string("\x0a\x01v\x22\x0c", 5) + image;
  const std::string summary = std::string("\x2a\x13\x0a\x11", 4) + value;
  EXPECT_NE(file.find(std::string("\x10\x07", 2) + summary), std::string::npos);
}

}  // namespace
}  // namespace troop
