// Readers of image files and data sets against Pillow's pixels
// (tools/fixtures/make_image_fixtures.py) and bytes that are written here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "core/base/philox.h"
#include "core/graphics/png.h"
#include "datasets/images/image_arrays.h"
#include "datasets/images/image_file.h"
#include "datasets/images/image_folder.h"
#include "tests/core/temp_folder.h"
#include "tests/datasets/data.h"

namespace troop {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string FromHex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(char(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

// A line of the fixture.
struct Golden {
  std::string name, source, file;
  Image image;
};

std::vector<Golden> ReadGolden() {
  std::vector<Golden> lines;
  for (const JsonValue& line :
       ReadJsonLines(TROOP_SOURCE_DIR "/tests/fixtures/images/files.jsonl")) {
    const std::string pixels = FromHex(*line.String("pixels"));
    const auto number = [&](const char* key) { return line.Find(key)->integer.value(); };
    Golden golden{.name = *line.String("name")};
    golden.image = {
        number("height"), number("width"), number("channels"), {pixels.begin(), pixels.end()}};
    // Converted and resized images name the file that they come from.
    if (line.Find("source") != nullptr) golden.source = *line.String("source");
    if (line.Find("file") != nullptr) golden.file = FromHex(*line.String("file"));
    lines.push_back(std::move(golden));
  }
  EXPECT_GE(lines.size(), 10u);
  return lines;
}

const Golden& Named(const std::vector<Golden>& lines, const std::string& name) {
  for (const Golden& golden : lines) {
    if (golden.name == name) return golden;
  }
  ADD_FAILURE() << name;
  return lines[0];
}

// Largest difference of two images of one shape.
int Difference(const Image& a, const Image& b) {
  if (a.height != b.height || a.width != b.width || a.channels != b.channels) return 256;
  int most = 0;
  for (std::size_t i = 0; i < a.pixels.size(); ++i) {
    most = std::max(most, std::abs(int(a.pixels[i]) - int(b.pixels[i])));
  }
  return most;
}

TEST(ImageFileTest, PixelsEqualPillows) {
  for (const Golden& golden : ReadGolden()) {
    if (golden.file.empty()) continue;
    SCOPED_TRACE(golden.name);
    const auto image = DecodeImage(golden.file);
    ASSERT_TRUE(image.ok()) << image.status().ToString();
    // The inverse transform of JPEG may differ by one between versions of the library; with
    // conversion of colors by two.
    EXPECT_LE(Difference(*image, golden.image), golden.name.ends_with(".png") ? 0 : 2);
  }
}

TEST(ImageFileTest, GrayIsPillowsLuma) {
  const auto lines = ReadGolden();
  const Golden& luma = Named(lines, "luma");
  EXPECT_EQ(Difference(ConvertChannels(Named(lines, luma.source).image, 1), luma.image), 0);
  // Gray as RGB has three equal channels.
  const Image rgb = ConvertChannels(luma.image, 3);
  for (std::size_t i = 0; i < rgb.pixels.size(); ++i) {
    EXPECT_EQ(rgb.pixels[i], luma.image.pixels[i / 3]) << i;
  }
}

// Pillow has weights of 8 fractional digits, so it rounds otherwise at some pixels.
TEST(ImageResizeTest, PixelsEqualPillows) {
  const auto lines = ReadGolden();
  int resized = 0;
  for (const Golden& golden : lines) {
    if (golden.name != "resize") continue;
    ++resized;
    const Image image =
        ResizeImage(Named(lines, golden.source).image, golden.image.height, golden.image.width);
    EXPECT_LE(Difference(image, golden.image), 1) << image.height << " " << image.width;
  }
  EXPECT_EQ(resized, 4);
}

TEST(ImageResizeTest, CenterCropKeepsTheRatio) {
  // Columns 0 to 5; a square of 2 has columns 2 and 3.
  const Image wide{2, 6, 1, {0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 15}};
  EXPECT_EQ(FitImage(wide, ResizeRule::kCenterCrop, 2, 2), (Image{2, 2, 1, {2, 3, 12, 13}}));
  EXPECT_EQ(FitImage(wide, ResizeRule::kStretch, 2, 6), wide);
  // 0 is at the edge of the filter of width 3, which the edge cuts.
  EXPECT_EQ(FitImage(wide, ResizeRule::kStretch, 2, 2).width, 2);
}

// A cut file may not become a half gray image.
TEST(ImageFileTest, TruncatedFilesAreDataLoss) {
  for (const Golden& golden : ReadGolden()) {
    if (golden.file.empty()) continue;
    for (std::size_t size = 0; size < golden.file.size(); size += 1 + size / 16) {
      const auto image = DecodeImage(std::string_view(golden.file).substr(0, size));
      // The last bytes of a JPEG are its end marker, after all pixels.
      if (golden.name.ends_with(".jpg") && size + 2 >= golden.file.size()) continue;
      EXPECT_EQ(image.status().code(), Code::kDataLoss) << golden.name << " cut to " << size;
    }
  }
}

// Any change of bytes gives an image of bounded size or an error.
TEST(ImageFileTest, DamagedFilesDoNotCrash) {
  Rng rng({1, Purpose::kTest});
  for (const Golden& golden : ReadGolden()) {
    for (int i = 0; i < 200 && !golden.file.empty(); ++i) {
      std::string file = golden.file;
      for (int k = 0; k < 3; ++k) {
        file[rng.Below(std::uint32_t(file.size()))] = char(rng.Below(256));
      }
      const auto image = DecodeImage(file);
      if (!image.ok()) continue;
      EXPECT_EQ(std::int64_t(image->pixels.size()), image->height * image->width * image->channels);
    }
  }
}

TEST(ImageFileTest, DeclaredSizesAreLimited) {
  const auto lines = ReadGolden();
  // The frame header of a JPEG: FF C0, length, precision, height, width.
  std::string jpeg = Named(lines, "gray.jpg").file;
  const std::size_t frame = jpeg.find("\xFF\xC0");
  ASSERT_NE(frame, jpeg.npos);
  jpeg.replace(frame + 5, 4, "\x9C\x40\x9C\x40");  // 40000 x 40000
  EXPECT_EQ(DecodeImage(jpeg).status().code(), Code::kResourceExhausted);
  EXPECT_EQ(CheckImageSize(kImageSideMax, kImageSideMax).code(), Code::kResourceExhausted);
  EXPECT_TRUE(CheckImageSize(kImageSideMax, 1).ok());
  EXPECT_EQ(CheckImageSize(0, 1).code(), Code::kDataLoss);
  EXPECT_THAT(DecodeImage("GIF89a").status().message(), HasSubstr("neither as a PNG nor"));
}

// A folder in which files are written.
class ImageFolderTest : public testing::Test {
 protected:
  void Write(const std::string& name, const std::string& bytes) {
    const auto path = std::filesystem::path(root()) / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << bytes;
  }
  std::string root() const { return folder_.path(); }
  std::string File(const std::string& name) { return Named(golden_, name).file; }
  Image Pixels(const std::string& name) { return Named(golden_, name).image; }

  const std::vector<Golden> golden_ = ReadGolden();
  const TempFolder folder_;
};

// Folders of other types of files and upper-case names occur in published data sets.
TEST_F(ImageFolderTest, SetsAndClassesFollowFromPaths) {
  Write("train/cat/b.png", File("gray.png"));
  Write("train/cat/a.PNG", File("rgb.png"));
  Write("train/ant/1.jpg", File("rgb.jpg"));
  Write("train/ant/notes.txt", "not an image");
  Write("test/cat/1.png", File("palette.png"));
  const auto data = ReadImages(root(), {});
  ASSERT_TRUE(data.ok()) << data.status().ToString();
  EXPECT_THAT(data->classes, ElementsAre("ant", "cat"));
  EXPECT_THAT(data->train.labels, ElementsAre(0, 1, 1));
  EXPECT_THAT(data->test.labels, ElementsAre(1));
  EXPECT_EQ(data->channels, 3);  // one file has colors
  // The second image is a.PNG, the third the gray one.
  const auto image = [&](std::ptrdiff_t i) {
    const auto begin = data->train.pixels.begin() + i * std::ptrdiff_t(data->elements());
    return Image{data->height, data->width, 3, {begin, begin + std::ptrdiff_t(data->elements())}};
  };
  EXPECT_EQ(image(1), Pixels("rgb.png"));
  EXPECT_EQ(image(2), ConvertChannels(Pixels("gray.png"), 3));
}

TEST_F(ImageFolderTest, DamagedFilesAreNamedSkippedAndCounted) {
  Write("cat/1.png", File("gray.png"));
  Write("cat/2.png", File("gray.png").substr(0, 80));
  Write("dog/1.jpg", File("gray.jpg").substr(0, File("gray.jpg").size() * 2 / 3));
  Write("dog/2.jpg", File("gray.jpg"));
  testing::internal::CaptureStderr();
  const auto data = ReadImages(root(), {});
  const std::string log = testing::internal::GetCapturedStderr();
  ASSERT_TRUE(data.ok()) << data.status().ToString();
  EXPECT_EQ(data->skipped, 2);
  EXPECT_THAT(data->train.labels, ElementsAre(0, 1));
  EXPECT_THAT(log, HasSubstr("cat/2.png is skipped: libpng: "));
  EXPECT_THAT(log, HasSubstr("dog/1.jpg is skipped: libjpeg: "));
  EXPECT_THAT(log, HasSubstr("2 of 4 files"));
}

// Each fault is repaired before the next one is made.
TEST_F(ImageFolderTest, BadFoldersAreOneLineErrors) {
  const auto message = [&](const ImageFormat& format = {}) {
    return ReadImages(root(), format).status().message();
  };
  EXPECT_THAT(message(), HasSubstr("no folders of classes"));
  Write("cat/1.png", File("gray.png"));
  Write("dog/readme.txt", "");
  EXPECT_THAT(message(), HasSubstr("dog: the folder of a class has no images"));
  Write("dog/1.png", "damaged");
  EXPECT_THAT(message(), HasSubstr("no image of its class \"dog\" can be read"));
  Write("dog/1.png", File("gray.png"));
  EXPECT_EQ(message(), "");
  // A set without a training set, or with other classes.
  Write("test/cow/1.png", File("gray.png"));
  EXPECT_THAT(message(), HasSubstr("no folder train"));
  Write("train/cat/1.png", File("gray.png"));
  EXPECT_THAT(message(), HasSubstr("the training set has no class \"cow\""));
}

TEST_F(ImageFolderTest, SeveralSizesNeedAResizeRule) {
  Write("cat/1.png", File("gray.png"));
  Write("cat/2.png",
        std::string(
            EncodePng({.width = 4, .height = 6, .rgb = std::vector<std::uint8_t>(72, 9)}).text()));
  EXPECT_THAT(ReadImages(root(), {}).status().message(),
              testing::AllOf(HasSubstr("2.png is 6 x 4"), HasSubstr("1.png is 13 x 11"),
                             HasSubstr("need a resize rule")));
  const auto data =
      ReadImages(root(), {.channels = 1, .resize = ResizeRule::kStretch, .height = 5, .width = 8});
  ASSERT_TRUE(data.ok()) << data.status().ToString();
  EXPECT_EQ(data->train.pixels.size(), 2u * 5 * 8);
  // A uniform image stays uniform.
  EXPECT_THAT(std::vector(data->train.pixels.begin() + 40, data->train.pixels.end()),
              testing::Each(9));
}

// 32-bit big-endian numbers after the magic number.
std::string Idx(int rank, const std::vector<std::uint32_t>& sizes, const std::string& elements) {
  std::string bytes{0, 0, 8, char(rank)};
  for (const std::uint32_t size : sizes) {
    for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(char(size >> shift & 255));
  }
  return bytes + elements;
}

// The test pair is optional, but must be complete and of the same size.
TEST_F(ImageFolderTest, ReadsIdxFiles) {
  Write("train-images-idx3-ubyte", Idx(3, {2, 1, 3}, "abcdef"));
  Write("train-labels-idx1-ubyte", Idx(1, {2}, {2, 0}));
  auto data = ReadImages(root(), {});
  ASSERT_TRUE(data.ok()) << data.status().ToString();
  EXPECT_THAT(data->train.labels, ElementsAre(2, 0));
  EXPECT_THAT(data->train.pixels, ElementsAre('a', 'b', 'c', 'd', 'e', 'f'));
  EXPECT_THAT(data->classes, ElementsAre("0", "1", "2"));
  EXPECT_EQ(data->width, 3);
  // The format also applies to arrays.
  data = ReadImages(root(), {.channels = 3});
  ASSERT_TRUE(data.ok());
  EXPECT_EQ(data->train.pixels.size(), 18u);
  EXPECT_EQ(data->train.pixels[17], 'f');
  // Half of a test pair.
  Write("t10k-images-idx3-ubyte", Idx(3, {1, 1, 2}, "ab"));
  EXPECT_EQ(ReadImages(root(), {}).status().code(), Code::kNotFound);
  Write("t10k-labels-idx1-ubyte", Idx(1, {1}, {0}));
  EXPECT_THAT(ReadImages(root(), {}).status().message(), HasSubstr("1 x 2 x 1"));
}

TEST(ImageArraysTest, DamagedIdxIsRejected) {
  const std::string images = Idx(3, {2, 1, 2}, "abcd"), labels = Idx(1, {2}, {1, 1});
  const auto code = [](const std::string& x, const std::string& y) {
    ImageData data;
    return AppendIdx(x, y, &data, &data.train).code();
  };
  EXPECT_EQ(code(images, labels), Code::kOk);
  EXPECT_EQ(code(images.substr(0, images.size() - 1), labels), Code::kDataLoss);
  EXPECT_EQ(code(images.substr(0, 9), labels), Code::kDataLoss);
  EXPECT_EQ(code(images + "x", labels), Code::kDataLoss);
  EXPECT_EQ(code(images, Idx(1, {1}, {1})), Code::kDataLoss);
  EXPECT_EQ(code(Idx(3, {2, 0, 2}, ""), labels), Code::kDataLoss);
  // Sizes whose product exceeds 64 bits.
  EXPECT_EQ(code(Idx(3, {~0u, ~0u, ~0u}, "abcd"), labels), Code::kResourceExhausted);
  EXPECT_EQ(code("", labels), Code::kDataLoss);
}

// Planes become channels: record 1 has red 1, green 2, blue 3 at every pixel, but the last.
TEST(ImageArraysTest, CifarRecordsBecomePixels) {
  std::string record(1, 1);
  for (const char plane : {1, 2, 3}) record += std::string(1023, plane) + char(plane + 10);
  ImageData data{.classes = {"a", "b"}};
  ASSERT_TRUE(AppendCifar(record + record, 1, &data, &data.train).ok());
  EXPECT_THAT(data.train.labels, ElementsAre(1, 1));
  const std::vector<std::uint8_t> end(data.train.pixels.begin() + 3066,
                                      data.train.pixels.begin() + 3075);
  EXPECT_THAT(end, ElementsAre(1, 2, 3, 11, 12, 13, 1, 2, 3));
  // CIFAR-100: the fine label is the second byte.
  ASSERT_TRUE(
      AppendCifar(std::string(1, 9) + std::string(1, 0) + record.substr(1), 2, &data, &data.test)
          .ok());
  EXPECT_THAT(data.test.labels, ElementsAre(0));
  EXPECT_EQ(AppendCifar(record.substr(1), 1, &data, &data.test).code(), Code::kDataLoss);
  record[0] = 2;
  EXPECT_THAT(AppendCifar(record, 1, &data, &data.test).message(),
              HasSubstr("the label 2, but there are 2 classes"));
}

// Every part must exist: a training set without one of them is smaller than published.
TEST_F(ImageFolderTest, ReadsCifarFolders) {
  const std::string record = std::string(1, 1) + std::string(3072, 'x');
  Write("batches.meta.txt", "cat\r\ndog\n\n");
  for (int part = 1; part <= 5; ++part) {
    EXPECT_FALSE(ReadImages(root(), {}).ok()) << part;
    Write("data_batch_" + std::to_string(part) + ".bin", record);
  }
  Write("test_batch.bin", record + record);
  const auto data = ReadImages(root(), {});
  ASSERT_TRUE(data.ok()) << data.status().ToString();
  EXPECT_THAT(data->classes, ElementsAre("cat", "dog"));
  EXPECT_EQ(data->train.size(), 5);
  EXPECT_EQ(data->test.size(), 2);
}

}  // namespace
}  // namespace troop
