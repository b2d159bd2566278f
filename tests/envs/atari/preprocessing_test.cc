#include "envs/atari/preprocessing.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <fstream>
#include <iterator>

#include "core/base/philox.h"

namespace troop {
namespace {

using Path = AtariPreprocess::Path;
using Size = AtariPreprocess::Size;
using Pixels = std::vector<std::uint8_t>;

// tests/fixtures/envs/atari_frames.bin; tools/make_atari_fixtures.py describes it.
class Frames {
 public:
  Frames() {
    std::ifstream file(TROOP_SOURCE_DIR "/tests/fixtures/envs/atari_frames.bin", std::ios::binary);
    const std::string packed(std::istreambuf_iterator<char>(file), {});
    bytes_.resize(std::size_t{16} << 20);
    uLongf size = bytes_.size();
    const int code = uncompress(bytes_.data(), &size, reinterpret_cast<const Bytef*>(packed.data()),
                                packed.size());
    TROOP_CHECK(code == Z_OK, "atari_frames.bin: zlib says {}", code);
    bytes_.resize(size);
  }
  int Number() {
    std::uint32_t number = 0;
    std::memcpy(&number, Take(4).data(), 4);
    return int(number);
  }
  std::span<const std::uint8_t> Take(int count) {
    TROOP_CHECK(at_ + std::size_t(count) <= bytes_.size(), "the fixture ends early");
    at_ += std::size_t(count);
    return {bytes_.data() + at_ - count, std::size_t(count)};
  }
  bool at_end() const { return at_ == bytes_.size(); }

 private:
  Pixels bytes_;
  std::size_t at_ = 0;
};

AtariPreprocess Make(Size from, Size to) {
  auto made = AtariPreprocess::Make(from, to);
  TROOP_CHECK(made.ok(), "{}", made.status().ToString());
  return *std::move(made);
}

TEST(AtariPreprocessTest, MatchesOpenCvBytesOnEveryPath) {
  Frames frames;
  const int count = frames.Number();
  ASSERT_GT(count, 100);
  int fast = 0;
  for (int i = 0; i < count; ++i) {
    const int height = frames.Number(), width = frames.Number();
    const int to_height = frames.Number(), to_width = frames.Number();
    const Size from{height, width}, to{to_height, to_width};
    const auto a = frames.Take(from.pixels()), b = frames.Take(from.pixels());
    const auto want = frames.Take(to.pixels());
    const AtariPreprocess preprocess = Make(from, to);
    for (const Path path : {Path::kPlain, Path::kAvx2}) {
      if (!preprocess.Supports(path)) continue;
      fast += path == Path::kAvx2;
      Pixels out(want.size() + 1, 0xAB);
      preprocess.Run(path, a, b, std::span(out).first(want.size()));
      EXPECT_EQ(out.back(), 0xAB) << "wrote past the end";
      out.pop_back();
      ASSERT_EQ(out, Pixels(want.begin(), want.end()))
          << fmt::format("record {}: {}x{} to {}x{}, {}", i, height, width, to_height, to_width,
                         AtariPreprocess::PathName(path));
      preprocess.Run(path, b, a, std::span(out));  // the brighter one, whichever is first
      ASSERT_EQ(out, Pixels(want.begin(), want.end())) << "record " << i << ", frames swapped";
    }
  }
  EXPECT_TRUE(frames.at_end());
  if (__builtin_cpu_supports("avx2")) {
    EXPECT_GT(fast, 60);
  }
}

// Sizes that the fixture lacks: the paths give equal bytes and write nothing out of bounds.
TEST(AtariPreprocessTest, PathsGiveEqualBytesForAnySizes) {
  Rng rng({.run_seed = 7});
  const auto between = [&](int low, int high) {
    return low + int(rng.Below(std::uint32_t(high - low + 1)));
  };
  int fast = 0;
  for (int i = 0; i < 300; ++i) {
    const Size from{between(1, 130), between(16, 200)};
    const Size to{between(1, from.height), between((from.width + 2) / 3, from.width)};
    const AtariPreprocess preprocess = Make(from, to);
    if (!preprocess.Supports(Path::kAvx2)) continue;
    ++fast;
    Pixels a(std::size_t(from.pixels())), b(a.size());
    for (std::uint8_t& pixel : a) pixel = std::uint8_t(rng.Below(256));
    for (std::uint8_t& pixel : b) pixel = std::uint8_t(rng.Below(256));
    Pixels plain(std::size_t(to.pixels())), quick(plain.size() + 8, 0xAB);
    preprocess.Run(Path::kPlain, a, b, plain);
    preprocess.Run(Path::kAvx2, a, b, std::span(quick).first(plain.size()));
    EXPECT_EQ(Pixels(quick.end() - 8, quick.end()), Pixels(8, 0xAB));
    quick.resize(plain.size());
    ASSERT_EQ(quick, plain) << fmt::format("{}x{} to {}x{}", from.height, from.width, to.height,
                                           to.width);
  }
  if (__builtin_cpu_supports("avx2")) {
    EXPECT_GT(fast, 200);
  }
}

TEST(AtariPreprocessTest, RejectsEnlargingSides) {
  EXPECT_EQ(AtariPreprocess::Make({210, 160}, {84, 168}).status().message(),
            "cannot resize frames of 210x160 to 84x168; each side must be at least 1 and at most "
            "the source's, which is at most 1024");
  EXPECT_FALSE(AtariPreprocess::Make({210, 160}, {0, 84}).ok());
  EXPECT_FALSE(AtariPreprocess::Make({2100, 160}, {84, 84}).ok());
  EXPECT_TRUE(AtariPreprocess::Make({1024, 1024}, {1024, 1}).ok());
}

}  // namespace
}  // namespace troop
