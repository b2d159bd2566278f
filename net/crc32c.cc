#include "net/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace troop {
namespace {

constexpr std::uint32_t kPolynomial = 0x82f63b78;
using Table = std::array<std::array<std::uint32_t, 256>, 8>;

// Row k: the CRC of one byte followed by k zero bytes ("slicing by 8", Kounavis and Berry 2005).
constexpr Table MakeSlices() {
  Table table{};
  for (std::uint32_t n = 0; n < 256; ++n) {
    std::uint32_t crc = n;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? kPolynomial : 0);
    table[0][n] = crc;
  }
  for (std::size_t k = 1; k < 8; ++k) {
    for (std::uint32_t n = 0; n < 256; ++n) {
      const std::uint32_t before = table[k - 1][n];
      table[k][n] = (before >> 8) ^ table[0][before & 0xff];
    }
  }
  return table;
}
constexpr Table kSlices = MakeSlices();

std::uint64_t Load64(const std::byte* p) {
  std::uint64_t value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

#if defined(__x86_64__)

// What appending `Bytes` zero bytes does to a CRC register: linear over its 32 bits, so four tables
// of 256 give it with four look-ups. The operator for one bit is squared up to the length.
class ZeroShift {
 public:
  explicit constexpr ZeroShift(std::size_t bytes) {
    Matrix one{};  // column i: the register with bit i set, after one zero bit
    one[0] = kPolynomial;
    for (int i = 1; i < 32; ++i) one[i] = std::uint32_t{1} << (i - 1);
    Matrix result{};
    for (int i = 0; i < 32; ++i) result[i] = std::uint32_t{1} << i;
    Matrix power = one;
    for (std::size_t bits = bytes * 8; bits > 0; bits >>= 1) {
      if (bits & 1) result = Multiply(power, result);
      power = Multiply(power, power);
    }
    for (std::uint32_t k = 0; k < 4; ++k) {
      for (std::uint32_t n = 0; n < 256; ++n) table_[k][n] = Apply(result, n << (8 * k));
    }
  }
  std::uint32_t operator()(std::uint32_t crc) const {
    return table_[0][crc & 0xff] ^ table_[1][(crc >> 8) & 0xff] ^ table_[2][(crc >> 16) & 0xff] ^
           table_[3][crc >> 24];
  }

 private:
  using Matrix = std::array<std::uint32_t, 32>;
  static constexpr std::uint32_t Apply(const Matrix& m, std::uint32_t v) {
    std::uint32_t sum = 0;
    for (int i = 0; v != 0; v >>= 1, ++i) {
      if (v & 1) sum ^= m[i];
    }
    return sum;
  }
  static constexpr Matrix Multiply(const Matrix& a, const Matrix& b) {
    Matrix c{};
    for (int i = 0; i < 32; ++i) c[i] = Apply(a, b[i]);
    return c;
  }
  std::array<std::array<std::uint32_t, 256>, 4> table_{};
};

// Long blocks amortise the joins, short ones catch what is left of them.
constexpr std::size_t kLongBlock = 4096;
constexpr std::size_t kShortBlock = 256;
constexpr ZeroShift kLongShift(kLongBlock);
constexpr ZeroShift kShortShift(kShortBlock);

__attribute__((target("sse4.2"))) std::uint64_t ThreeStreams(std::uint64_t crc, const std::byte*& p,
                                                             std::size_t& size, std::size_t block,
                                                             const ZeroShift& shift) {
  while (size >= 3 * block) {
    std::uint64_t second = 0;
    std::uint64_t third = 0;
    for (std::size_t i = 0; i < block; i += 8) {
      crc = _mm_crc32_u64(crc, Load64(p + i));
      second = _mm_crc32_u64(second, Load64(p + i + block));
      third = _mm_crc32_u64(third, Load64(p + i + 2 * block));
    }
    crc = shift(static_cast<std::uint32_t>(crc)) ^ second;
    crc = shift(static_cast<std::uint32_t>(crc)) ^ third;
    p += 3 * block;
    size -= 3 * block;
  }
  return crc;
}

__attribute__((target("sse4.2"))) std::uint32_t Crc32cSse42(std::span<const std::byte> bytes,
                                                            std::uint32_t start) {
  const std::byte* p = bytes.data();
  std::size_t size = bytes.size();
  std::uint64_t crc = ~start;
  crc = ThreeStreams(crc, p, size, kLongBlock, kLongShift);
  crc = ThreeStreams(crc, p, size, kShortBlock, kShortShift);
  for (; size >= 8; p += 8, size -= 8) crc = _mm_crc32_u64(crc, Load64(p));
  auto narrow = static_cast<std::uint32_t>(crc);
  for (; size > 0; ++p, --size) narrow = _mm_crc32_u8(narrow, std::to_integer<std::uint8_t>(*p));
  return ~narrow;
}

#endif

}  // namespace

std::uint32_t Crc32cPlain(std::span<const std::byte> bytes, std::uint32_t crc) {
  const std::byte* p = bytes.data();
  std::size_t size = bytes.size();
  crc = ~crc;
  for (; size >= 8; p += 8, size -= 8) {
    const std::uint64_t x = Load64(p) ^ crc;
    crc = 0;
    for (std::size_t k = 0; k < 8; ++k) crc ^= kSlices[7 - k][(x >> (8 * k)) & 0xff];
  }
  for (; size > 0; ++p, --size) {
    crc = (crc >> 8) ^ kSlices[0][(crc ^ std::to_integer<std::uint32_t>(*p)) & 0xff];
  }
  return ~crc;
}

std::uint32_t Crc32c(std::span<const std::byte> bytes, std::uint32_t crc) {
#if defined(__x86_64__)
  static const bool has_sse42 = __builtin_cpu_supports("sse4.2");
  if (has_sse42) return Crc32cSse42(bytes, crc);
#endif
  return Crc32cPlain(bytes, crc);
}

}  // namespace troop
