#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace troop {

// Returns the SHA-256 (FIPS 180-4) as 64 hexadecimal digits, as in SHA256SUMS files and on data-set
// pages. Thread safe. Own formats use the faster core/storage/crc32c.h.
std::string Sha256Hex(std::span<const std::byte> bytes);
inline std::string Sha256Hex(std::string_view text) {
  return Sha256Hex(std::as_bytes(std::span(text)));
}

}  // namespace troop
