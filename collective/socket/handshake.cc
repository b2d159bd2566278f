// Implements the hello that opens each connection, and the proof of the group's secret.
#include "collective/socket/handshake.h"

#include <sodium.h>

#include <algorithm>
#include <cstring>

#include "core/storage/crc32c.h"

namespace troop {
namespace {

// Wire format, little endian. The checksum covers everything after it.
struct HelloLayout {
  std::uint32_t magic = 0, crc = 0;
  std::uint16_t version = 0;
  std::uint8_t lane = 0, refusal = 0;
  std::int32_t rank = 0, size = 0;
  std::uint32_t secret = 0;
  std::uint64_t epoch = 0, token = 0;
  std::byte nonce[16] = {};
  char group[64] = {};
};
static_assert(sizeof(HelloLayout) == kHelloBytes && kGroupNameMax < sizeof(HelloLayout::group));
constexpr std::uint32_t kHelloMagic = 0x6c635254;  // "TRcl"

// Checksum without the magic number and itself, which are the first 8 bytes.
std::uint32_t CrcOf(const HelloLayout& layout) {
  return Crc32c(std::as_bytes(std::span(&layout, 1)).subspan(8));
}

bool AllZero(std::span<const char> bytes) {
  return std::ranges::all_of(bytes, [](char c) { return c == 0; });
}

}  // namespace

// Unused bytes are zero, so that the checksum is well defined.
HelloBytes EncodeHello(const Hello& hello) {
  HelloLayout layout{.magic = kHelloMagic,
                     .version = hello.version,
                     .lane = std::uint8_t(hello.lane),
                     .refusal = std::uint8_t(hello.refusal),
                     .rank = hello.rank,
                     .size = hello.size,
                     .secret = hello.secret,
                     .epoch = hello.epoch,
                     .token = hello.token};
  std::ranges::copy(hello.nonce, layout.nonce);
  std::memcpy(layout.group, hello.group.data(), std::min(hello.group.size(), kGroupNameMax));
  layout.crc = CrcOf(layout);
  HelloBytes bytes;
  std::memcpy(bytes.data(), &layout, sizeof layout);
  return bytes;
}

// Input is untrusted: every field is checked, the name's padding included.
Result<Hello> DecodeHello(std::span<const std::byte, kHelloBytes> bytes) {
  HelloLayout layout;
  std::memcpy(&layout, bytes.data(), sizeof layout);
  if (layout.magic != kHelloMagic || layout.crc != CrcOf(layout)) {
    return DataLoss("these bytes are not a hello");
  }
  // Other fields of another version have another meaning; the caller reports the version.
  if (layout.version != Hello().version) return Hello{.version = layout.version};
  const std::size_t name = strnlen(layout.group, sizeof layout.group);
  // The checksum protects against damage, not against intent, hence these checks.
  if (layout.lane > 1 || layout.refusal > std::uint8_t(Hello::Refusal::kSecret) ||
      layout.secret > 1 || name > kGroupNameMax ||
      !AllZero(std::span(layout.group).subspan(name))) {
    return DataLoss("a hello with invalid fields");
  }
  Hello hello{.group = std::string(layout.group, name),
              .epoch = layout.epoch,
              .token = layout.token,
              .rank = layout.rank,
              .size = layout.size,
              .lane = Hello::Lane(layout.lane),
              .refusal = Hello::Refusal(layout.refusal),
              .secret = layout.secret != 0,
              .version = layout.version};
  std::ranges::copy(layout.nonce, hello.nonce.begin());
  return hello;
}

// The order decides the reason that is reported: protocol, group and secret before the membership.
Hello::Refusal CheckHello(const Hello& ours, const Hello& theirs) {
  using Refusal = Hello::Refusal;
  if (theirs.version != ours.version) return Refusal::kVersion;
  if (theirs.group != ours.group) return Refusal::kGroup;
  if (theirs.secret != ours.secret) return Refusal::kSecret;
  // No early exit on the first different byte.
  if ((theirs.token ^ ours.token) != 0) return Refusal::kToken;
  if (theirs.epoch != ours.epoch) return Refusal::kEpoch;
  if (theirs.size != ours.size) return Refusal::kSize;
  if (theirs.rank < 0 || theirs.rank >= ours.size || theirs.rank == ours.rank) {
    return Refusal::kRank;
  }
  return Refusal::kNone;
}

// Human-readable reasons.
std::string_view RefusalText(Hello::Refusal refusal) {
  switch (refusal) {
    case Hello::Refusal::kNone:
      return "nothing";
    case Hello::Refusal::kVersion:
      return "another version of the protocol";
    case Hello::Refusal::kGroup:
      return "another group";
    case Hello::Refusal::kEpoch:
      return "another epoch of the group";
    case Hello::Refusal::kToken:
      return "another token";
    case Hello::Refusal::kRank:
      return "an unexpected rank, or one that has joined already";
    case Hello::Refusal::kSize:
      return "another number of ranks";
    case Hello::Refusal::kSecret:
      return "a secret on only one side";
  }
  return "unknown";
}

// 128 random bits: unique per connection.
std::array<std::byte, 16> MakeNonce() {
  TROOP_CHECK(sodium_init() >= 0, "libsodium cannot be initialized");
  std::array<std::byte, 16> nonce;
  randombytes_buf(nonce.data(), nonce.size());
  return nonce;
}

// The maker's side is part of the input, so that a proof cannot be reflected to its sender.
ProofBytes MakeProof(const GroupSecret& secret, Side maker, const HelloBytes& connector_hello,
                     const HelloBytes& acceptor_hello) {
  static_assert(sizeof(GroupSecret) == crypto_auth_KEYBYTES && kProofBytes == crypto_auth_BYTES);
  // Both hellos, with both nonces, so that a recorded proof is of no use later.
  std::array<std::byte, 1 + 2 * kHelloBytes> text;
  text[0] = std::byte(maker);
  std::ranges::copy(connector_hello, text.begin() + 1);
  std::ranges::copy(acceptor_hello, text.begin() + 1 + kHelloBytes);
  const auto as_chars = [](const std::byte* bytes) {
    return reinterpret_cast<const unsigned char*>(bytes);
  };
  ProofBytes proof;
  crypto_auth(reinterpret_cast<unsigned char*>(proof.data()), as_chars(text.data()), text.size(),
              as_chars(secret.data()));
  return proof;
}

// Constant time: the time of a comparison must not show how many bytes match.
bool AreEqual(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace troop
