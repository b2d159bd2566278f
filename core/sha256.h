#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace troop {

// SHA-256 (FIPS 180-4) as 64 hexadecimal digits: what SHA256SUMS files and data sets' pages give.
// Any thread. About 0.3 GB/s; for checksums of our own formats see core/crc32c.h.
std::string Sha256Hex(std::span<const std::byte> bytes);
inline std::string Sha256Hex(std::string_view text) {
  return Sha256Hex(std::as_bytes(std::span(text)));
}

}  // namespace troop
