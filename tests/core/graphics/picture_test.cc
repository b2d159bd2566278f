// PNG and GIF: read back by small decoders here, and by Pillow where there is a Python with it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <sstream>

#include "core/base/philox.h"
#include "core/graphics/gif.h"
#include "core/graphics/png.h"
#include "core/storage/storage.h"
#include "tests/core/python.h"
#include "tests/core/temp_folder.h"

namespace troop {
namespace {

Picture RandomPicture(int width, int height, std::uint32_t colors, std::uint64_t seed) {
  Rng rng({.run_seed = seed, .purpose = Purpose::kTest});
  Picture picture{.width = width, .height = height};
  for (int i = 0; i < width * height; ++i) {
    const std::uint32_t color = rng.Below(colors) * 2654435761u;  // spread over the cube
    for (int shift : {8, 16, 24}) picture.rgb.push_back(std::uint8_t(color >> shift));
  }
  return picture;
}

std::string Hex(const Picture& picture) {
  std::string text;
  for (const std::uint8_t byte : picture.rgb) text += fmt::format("{:02x}", byte);
  return text;
}

// Returns Pillow's description of a file: the lines that decode_picture.py prints.
std::vector<std::string> PillowReads(const Buffer& file) {
  const TempFolder folder;
  auto storage = MakeDiskStorage(folder.path());
  EXPECT_TRUE(storage.ok() && (*storage)->WriteAtomic("picture", file.bytes()).ok());
  std::istringstream text(RunPython(
      fmt::format("{}/tests/core/decode_picture.py {}/picture", TROOP_SOURCE_DIR, folder.path())));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

int U16(std::string_view bytes, std::size_t at) {
  return std::uint8_t(bytes[at]) | std::uint8_t(bytes[at + 1]) << 8;
}

// Pixels out of the LZW codes of one frame, by the dictionary as text: slow and plain.
std::string DecodeLzw(std::string_view codes, int color_bits) {
  const int clear = 1 << color_bits, end = clear + 1;
  std::vector<std::string> table;
  std::string pixels, before;
  int bits = color_bits + 1;
  const auto restart = [&] {
    table.assign(std::size_t(clear) + 2, "");
    for (int i = 0; i < clear; ++i) table[std::size_t(i)] = std::string(1, char(i));
    bits = color_bits + 1;
    before.clear();
  };
  for (std::size_t at = 0; at + std::size_t(bits) <= codes.size() * 8;) {
    int code = 0;
    for (int i = 0; i < bits; ++i, ++at) code |= (codes[at / 8] >> (at % 8) & 1) << i;
    if (code == end) return pixels;
    if (code == clear) {
      restart();
      continue;
    }
    const std::string text =
        std::size_t(code) < table.size() ? table[std::size_t(code)] : before + before[0];
    if (!before.empty() && table.size() < 4096) table.push_back(before + text[0]);
    if (table.size() == std::size_t{1} << bits && bits < 12) ++bits;
    pixels += text;
    before = text;
  }
  ADD_FAILURE() << "no end code";
  return pixels;
}

// The frames of a GIF that keeps to the parts that EncodeGif writes.
std::vector<Picture> DecodeGif(const Buffer& file) {
  const std::string_view bytes = file.text();
  EXPECT_TRUE(bytes.starts_with("GIF89a"));
  Picture canvas{.width = U16(bytes, 6), .height = U16(bytes, 8)};
  canvas.rgb.resize(std::size_t(canvas.width * canvas.height * 3));
  const std::string_view table = bytes.substr(13, 768);
  std::vector<Picture> frames;
  std::size_t at = 13 + 768;
  const auto blocks = [&] {
    std::string data;
    for (; bytes[at] != 0; at += 1 + std::uint8_t(bytes[at])) {
      data += bytes.substr(at + 1, std::uint8_t(bytes[at]));
    }
    ++at;
    return data;
  };
  while (bytes.at(at) != ';') {
    if (bytes[at] == '!') {
      at += 2;
      blocks();
      continue;
    }
    const int left = U16(bytes, at + 1), top = U16(bytes, at + 3), width = U16(bytes, at + 5);
    const std::size_t bits = std::uint8_t(bytes[at + 10]);
    at += 11;
    const std::string pixels = DecodeLzw(blocks(), int(bits));
    for (std::size_t i = 0; i < pixels.size(); ++i) {
      const int x = left + int(i) % width, y = top + int(i) / width;
      const auto* color = &table[std::uint8_t(pixels[i]) * 3u];
      std::copy_n(color, 3, &canvas.rgb.at(std::size_t(y * canvas.width + x) * 3));
    }
    frames.push_back(canvas);
  }
  EXPECT_EQ(at + 1, bytes.size());
  return frames;
}

TEST(PngTest, ChunksHoldPicture) {
  const Picture picture = RandomPicture(7, 5, 1000, 1);
  const Buffer file = EncodePng(picture);
  const std::string_view bytes = file.text();
  EXPECT_TRUE(bytes.starts_with("\x89PNG\r\n\x1a\n"));
  std::string kinds, data;
  for (std::size_t at = 8; at < bytes.size();) {
    const auto word = [&](std::size_t i) {
      return std::uint32_t(std::uint8_t(bytes[i])) << 24 | std::uint8_t(bytes[i + 1]) << 16 |
             std::uint8_t(bytes[i + 2]) << 8 | std::uint8_t(bytes[i + 3]);
    };
    const std::uint32_t size = word(at);
    const auto* begin = reinterpret_cast<const Bytef*>(bytes.data()) + at + 4;
    EXPECT_EQ(word(at + 8 + size), crc32(0, begin, size + 4));
    kinds += std::string(bytes.substr(at + 4, 4)) + " ";
    if (kinds.ends_with("IDAT ")) data += bytes.substr(at + 8, size);
    at += 12 + size;
  }
  EXPECT_EQ(kinds, "IHDR IDAT IEND ");
  std::string rows(5 * (1 + 7 * 3), '\0');
  uLongf size = rows.size();
  ASSERT_EQ(uncompress(reinterpret_cast<Bytef*>(rows.data()), &size,
                       reinterpret_cast<const Bytef*>(data.data()), data.size()),
            Z_OK);
  ASSERT_EQ(size, rows.size());
  for (std::size_t y = 0; y < 5; ++y) {
    EXPECT_EQ(rows[y * 22], 0);
    EXPECT_EQ(rows.substr(y * 22 + 1, 21), std::string(picture.rgb.begin() + int(y) * 21,
                                                       picture.rgb.begin() + int(y + 1) * 21));
  }
}

TEST(PngTest, PillowReadsSamePixels) {
  TROOP_SKIP_WITHOUT_PYTHON();
  const Picture picture = RandomPicture(33, 21, 1 << 20, 2);
  const auto lines = PillowReads(EncodePng(picture));
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0], "PNG 33 21 1 - -");
  EXPECT_EQ(lines[1], Hex(picture));
}

TEST(GifTest, RoundTripsFramesOfFewColorsExactly) {
  // From one colour over long repeats to noise that fills the table of codes several times.
  for (const std::uint32_t colors : {1u, 2u, 5u, 100u}) {
    for (const auto& [width, height] : {std::pair{1, 1}, {3, 2}, {160, 210}}) {
      std::vector<Picture> frames;
      for (std::uint64_t i = 0; i < 3; ++i)
        frames.push_back(RandomPicture(width, height, colors, i));
      frames.push_back(frames.back());  // nothing changes
      frames.push_back(frames.back());
      frames.back().rgb[0] = frames[0].rgb[0];
      frames.back().rgb[1] = frames[0].rgb[1];
      frames.back().rgb[2] = frames[0].rgb[2];
      EXPECT_EQ(DecodeGif(EncodeGif(frames, 4)), frames) << colors << " " << width;
    }
  }
}

TEST(GifTest, RoundsManyColorsToNearOnes) {
  const Picture picture = RandomPicture(64, 64, 100000, 4);
  const std::vector<Picture> frames = DecodeGif(EncodeGif({&picture, 1}, 4));
  ASSERT_EQ(frames.size(), 1u);
  for (std::size_t i = 0; i < picture.rgb.size(); ++i) {
    ASSERT_NEAR(frames[0].rgb[i], picture.rgb[i], 26) << i;  // half of 255 / 5, and rounding
  }
}

TEST(GifTest, StoresOnlyChangedPixels) {
  std::vector<Picture> frames(100, RandomPicture(100, 100, 50, 5));
  const std::size_t one = EncodeGif({frames.data(), 1}, 4).size();
  EXPECT_LT(EncodeGif(frames, 4).size(), one + 99 * 40);
}

TEST(GifTest, PillowReadsSameFramesAndDelay) {
  TROOP_SKIP_WITHOUT_PYTHON();
  std::vector<Picture> frames;
  for (std::uint64_t i = 0; i < 3; ++i) frames.push_back(RandomPicture(80, 60, 60, i));
  const auto lines = PillowReads(EncodeGif(frames, 7));
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0], "GIF 80 60 3 0 70");
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(lines[i + 1], Hex(frames[i])) << i;
}

TEST(PictureDeathTest, AbortsOnPictureOfWrongSize) {
  EXPECT_DEATH(EncodePng({.width = 2, .height = 2, .rgb = {1, 2, 3}}), "2 x 2 with 3 bytes");
  EXPECT_DEATH(EncodeGif({}, 4), "without frames");
}

}  // namespace
}  // namespace troop
