#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace troop {

// CRC-32C (Castagnoli, reflected polynomial 0x82f63b78; RFC 3720, B.4). `crc` continues an earlier
// result, so that Crc32c(b, Crc32c(a)) is that of a followed by b. Uses SSE4.2 where the machine
// has it (three interleaved streams: the instruction takes 3 cycles but can start every cycle).
std::uint32_t Crc32c(std::span<const std::byte> bytes, std::uint32_t crc = 0);

// The same without special instructions: the oracle, and the path of other machines.
std::uint32_t Crc32cPlain(std::span<const std::byte> bytes, std::uint32_t crc = 0);

}  // namespace troop
