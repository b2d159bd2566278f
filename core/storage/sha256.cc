// Implements Sha256Hex with libsodium.
#include "core/storage/sha256.h"

#include <fmt/format.h>
#include <sodium/crypto_hash_sha256.h>

#include <array>

namespace troop {

std::string Sha256Hex(std::span<const std::byte> bytes) {
  std::array<unsigned char, crypto_hash_sha256_BYTES> hash;
  crypto_hash_sha256(hash.data(), reinterpret_cast<const unsigned char*>(bytes.data()),
                     bytes.size());
  return fmt::format("{:02x}", fmt::join(hash, ""));
}

}  // namespace troop
