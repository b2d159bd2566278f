// Implements CRC-32C: with the SSE4.2 instruction in three interleaved streams, or by tables.
#include "core/storage/crc32c.h"

#include <array>
#include <cstring>

#include "core/base/check.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace troop {
namespace {

constexpr std::uint32_t kPolynomial = 0x82F63B78;  // 0x1EDC6F41, bits reversed

using Table = std::array<std::array<std::uint32_t, 256>, 8>;

// kSlices[k][b]: contribution of byte b to the checksum when k more bytes follow it ("slicing by
// 8", Kounavis & Berry 2005).
constexpr Table MakeSlices() {
  Table table{};
  for (std::uint32_t b = 0; b < 256; ++b) {
    std::uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? kPolynomial : 0);
    table[0][b] = crc;
  }
  for (std::uint32_t b = 0; b < 256; ++b) {
    for (std::size_t k = 1; k < 8; ++k) {
      const std::uint32_t crc = table[k - 1][b];
      table[k][b] = (crc >> 8) ^ table[0][crc & 0xFF];
    }
  }
  return table;
}
constexpr Table kSlices = MakeSlices();

// The register after `zeros` zero bytes is a linear function of the register before. It is stored
// as four tables, one per byte of the register.
using Shift = std::array<std::array<std::uint32_t, 256>, 4>;

constexpr Shift MakeShift(std::size_t zeros) {
  Shift shift{};
  for (std::size_t bit = 0; bit < 32; ++bit) {
    std::uint32_t crc = std::uint32_t{1} << bit;
    for (std::size_t i = 0; i < zeros; ++i) crc = (crc >> 8) ^ kSlices[0][crc & 0xFF];
    shift[bit / 8][std::size_t{1} << bit % 8] = crc;
  }
  for (auto& table : shift) {
    for (std::size_t b = 1; b < 256; ++b) table[b] = table[b & (b - 1)] ^ table[b & -b];
  }
  return shift;
}

// Applies a shift to a register, byte by byte.
std::uint32_t Apply(const Shift& shift, std::uint32_t crc) {
  return shift[0][crc & 0xFF] ^ shift[1][crc >> 8 & 0xFF] ^ shift[2][crc >> 16 & 0xFF] ^
         shift[3][crc >> 24];
}

// memcpy, because the bytes may be unaligned.
std::uint64_t Load64(const std::byte* p) {
  std::uint64_t word;
  std::memcpy(&word, p, sizeof(word));
  return word;
}

#if defined(__x86_64__)

// Length of each of the three streams. The crc32 instruction has a latency of 3 cycles and a
// throughput of 1 per cycle, so three independent streams saturate it (Gopal et al. 2011).
constexpr std::size_t kLong = 4096, kShort = 256;

// Register after 3 * `length` bytes. REQUIRES: `length` is a multiple of 8, and `shift` is for it.
__attribute__((target("sse4.2"))) std::uint64_t ThreeStreams(const std::byte* p, std::size_t length,
                                                             const Shift& shift, std::uint64_t a) {
  std::uint64_t b = 0, c = 0;
  for (std::size_t i = 0; i < length; i += 8) {
    a = _mm_crc32_u64(a, Load64(p + i));
    b = _mm_crc32_u64(b, Load64(p + length + i));
    c = _mm_crc32_u64(c, Load64(p + 2 * length + i));
  }
  // Combines the streams: the register of a stream is shifted over the bytes of the following ones.
  return Apply(shift, Apply(shift, std::uint32_t(a)) ^ std::uint32_t(b)) ^ c;
}

__attribute__((target("sse4.2"))) std::uint32_t Sse42(std::span<const std::byte> bytes,
                                                      std::uint32_t seed) {
  // Computed once, on the first call.
  static const Shift shift_long = MakeShift(kLong), shift_short = MakeShift(kShort);
  const std::byte* p = bytes.data();
  std::size_t left = bytes.size();
  std::uint64_t crc = ~seed;
  // Long blocks in three streams, then short blocks, then 8 bytes, then single bytes.
  for (; left >= 3 * kLong; p += 3 * kLong, left -= 3 * kLong) {
    crc = ThreeStreams(p, kLong, shift_long, crc);
  }
  for (; left >= 3 * kShort; p += 3 * kShort, left -= 3 * kShort) {
    crc = ThreeStreams(p, kShort, shift_short, crc);
  }
  for (; left >= 8; p += 8, left -= 8) crc = _mm_crc32_u64(crc, Load64(p));
  for (; left > 0; ++p, --left) crc = _mm_crc32_u8(std::uint32_t(crc), std::uint8_t(*p));
  return ~std::uint32_t(crc);
}

#endif

}  // namespace

namespace internal {

#if defined(__x86_64__)
bool HardwareCrc32cAvailable() {
  static const bool available = __builtin_cpu_supports("sse4.2");
  return available;
}
std::uint32_t Crc32cHardware(std::span<const std::byte> bytes, std::uint32_t seed) {
  return Sse42(bytes, seed);
}
#else
bool HardwareCrc32cAvailable() { return false; }
std::uint32_t Crc32cHardware(std::span<const std::byte>, std::uint32_t) {
  TROOP_CHECK(false, "no CRC-32C instruction on this machine");
}
#endif

// Slicing by 8, for machines without the instruction and as the reference of tests.
std::uint32_t Crc32cPlain(std::span<const std::byte> bytes, std::uint32_t seed) {
  const std::byte* p = bytes.data();
  std::size_t left = bytes.size();
  std::uint32_t crc = ~seed;
  for (; left >= 8; p += 8, left -= 8) {
    // Eight table lookups per 8 bytes.
    const std::uint64_t word = Load64(p) ^ crc;
    crc = 0;
    for (std::size_t i = 0; i < 8; ++i) crc ^= kSlices[7 - i][word >> 8 * i & 0xFF];
  }
  for (; left > 0; ++p, --left) crc = (crc >> 8) ^ kSlices[0][(crc ^ std::uint8_t(*p)) & 0xFF];
  return ~crc;
}

}  // namespace internal

std::uint32_t Crc32c(std::span<const std::byte> bytes, std::uint32_t seed) {
  return internal::HardwareCrc32cAvailable() ? internal::Crc32cHardware(bytes, seed)
                                             : internal::Crc32cPlain(bytes, seed);
}

}  // namespace troop
