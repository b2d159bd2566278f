#include "net/crc32c.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

namespace troop {
namespace {

std::span<const std::byte> Bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

// Bit by bit, from the definition.
std::uint32_t Reference(std::span<const std::byte> bytes) {
  std::uint32_t crc = ~std::uint32_t{0};
  for (const std::byte b : bytes) {
    crc ^= std::to_integer<std::uint32_t>(b);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? 0x82f63b78u : 0);
  }
  return ~crc;
}

TEST(Crc32cTest, MatchesThePublishedVectors) {  // RFC 3720, appendix B.4
  EXPECT_EQ(Crc32c(Bytes("123456789")), 0xe3069283u);
  EXPECT_EQ(Crc32c(std::vector<std::byte>(32, std::byte{0})), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::vector<std::byte>(32, std::byte{0xff})), 0x62a8ab43u);
  EXPECT_EQ(Crc32cPlain(Bytes("123456789")), 0xe3069283u);
  EXPECT_EQ(Crc32c({}), 0u);
}

TEST(Crc32cTest, AllPathsAgreeAtEveryLengthAndAlignment) {
  std::vector<std::byte> bytes(30'000);
  std::uint32_t seed = 7;
  for (std::byte& b : bytes) b = static_cast<std::byte>((seed = seed * 1664525 + 1013904223) >> 24);
  const std::span<const std::byte> all(bytes);
  // Around the borders of the blocks: 3*256 and 3*4096.
  for (const std::size_t size : {0, 1, 7, 8, 9, 63, 767, 768, 769, 1535, 1536, 12'287, 12'288,
                                 12'289, 13'056, 13'064, 24'583, 29'990}) {
    for (std::size_t offset = 0; offset < 9; ++offset) {
      const auto part = all.subspan(offset, size);
      const std::uint32_t want = Reference(part);
      EXPECT_EQ(Crc32c(part), want) << size << " at " << offset;
      EXPECT_EQ(Crc32cPlain(part), want) << size << " at " << offset;
    }
  }
}

TEST(Crc32cTest, ContinuesAnEarlierResult) {
  const std::vector<std::byte> bytes(20'000, std::byte{0x5a});
  const std::span<const std::byte> all(bytes);
  for (const std::size_t cut : {0, 1, 333, 13'000, 20'000}) {
    EXPECT_EQ(Crc32c(all.subspan(cut), Crc32c(all.first(cut))), Reference(all)) << cut;
    EXPECT_EQ(Crc32cPlain(all.subspan(cut), Crc32cPlain(all.first(cut))), Reference(all)) << cut;
  }
}

}  // namespace
}  // namespace troop
