#include "core/storage/crc32c.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include "core/base/philox.h"

namespace troop {
namespace {

std::span<const std::byte> Bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

std::vector<std::byte> RandomBytes(std::size_t n) {
  Rng rng({.run_seed = n, .purpose = Purpose::kTest});
  std::vector<std::byte> bytes(n);
  for (std::byte& b : bytes) b = std::byte(rng.Below(256));
  return bytes;
}

// The definition, bit by bit.
std::uint32_t Reference(std::span<const std::byte> bytes) {
  std::uint32_t crc = ~0u;
  for (std::byte byte : bytes) {
    crc ^= std::uint32_t(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? 0x82F63B78u : 0);
  }
  return ~crc;
}

TEST(Crc32cTest, MatchesRfc3720TestVectors) {
  std::vector<std::byte> zeros(32, std::byte{0}), ones(32, std::byte{0xFF}), up(32), down(32);
  for (std::size_t i = 0; i < 32; ++i) {
    up[i] = std::byte(i);
    down[i] = std::byte(31 - i);
  }
  EXPECT_EQ(Crc32c(zeros), 0x8A9136AAu);
  EXPECT_EQ(Crc32c(ones), 0x62A8AB43u);
  EXPECT_EQ(Crc32c(up), 0x46DD794Eu);
  EXPECT_EQ(Crc32c(down), 0x113FDB5Cu);
  EXPECT_EQ(Crc32c(Bytes("123456789")), 0xE3069283u);
  EXPECT_EQ(Crc32c({}), 0u);
}

TEST(Crc32cTest, PlainAndHardwareMatchReferenceAtAllAlignments) {
  for (std::size_t n :
       {0, 1, 3, 7, 8, 9, 31, 255, 767, 768, 769, 1000, 12287, 12288, 12289, 30011}) {
    const std::vector<std::byte> bytes = RandomBytes(n + 3);
    for (std::size_t offset : {0, 1, 3}) {
      const auto view = std::span(bytes).subspan(offset, n);
      const std::uint32_t expected = Reference(view);
      EXPECT_EQ(internal::Crc32cPlain(view, 0), expected) << n << " bytes at " << offset;
      if (!internal::HardwareCrc32cAvailable()) continue;
      EXPECT_EQ(internal::Crc32cHardware(view, 0), expected) << n << " bytes at " << offset;
    }
  }
}

TEST(Crc32cTest, SeedContinuesPrecedingChecksum) {
  const std::vector<std::byte> bytes = RandomBytes(5000);
  for (std::size_t cut : {0, 1, 8, 999, 4999, 5000}) {
    const auto all = std::span(bytes);
    EXPECT_EQ(Crc32c(all.subspan(cut), Crc32c(all.first(cut))), Crc32c(all)) << cut;
    EXPECT_EQ(internal::Crc32cPlain(all.subspan(cut), Crc32c(all.first(cut))), Crc32c(all)) << cut;
  }
}

TEST(Crc32cTest, DetectsFlippedBit) {
  std::vector<std::byte> bytes = RandomBytes(300);
  const std::uint32_t before = Crc32c(bytes);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] ^= std::byte{0x10};
    EXPECT_NE(Crc32c(bytes), before);
    bytes[i] ^= std::byte{0x10};
  }
}

}  // namespace
}  // namespace troop
