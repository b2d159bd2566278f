#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace troop {

// CRC-32C (Castagnoli polynomial, RFC 3720 appendix B.4). `seed` is the checksum of the preceding
// bytes: Crc32c(b, Crc32c(a)) == Crc32c(ab). Thread safe. Uses SSE4.2 if available.
std::uint32_t Crc32c(std::span<const std::byte> bytes, std::uint32_t seed = 0);

namespace internal {
// The two implementations of Crc32c, for tests. Crc32cHardware REQUIRES: HardwareCrc32cAvailable().
bool HardwareCrc32cAvailable();
std::uint32_t Crc32cHardware(std::span<const std::byte> bytes, std::uint32_t seed);
std::uint32_t Crc32cPlain(std::span<const std::byte> bytes, std::uint32_t seed);
}  // namespace internal

}  // namespace troop
