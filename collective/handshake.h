#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/status.h"

namespace troop {

// The first bytes of each connection between two ranks, in both directions. A rank that is not of
// our group is answered why, once, and closed; bytes that are no hello get no answer.
//
// A group that has a secret wants it proven, by both sides of each connection, before anything else
// is read: who accepts sends its proof behind its hello, and who connects answers with another.
// A proof is good for these two hellos alone, whose nonces nobody else has. What goes over the
// connection afterwards is neither encrypted nor authenticated.
struct Hello {
  enum class Lane : std::uint8_t { kData = 0, kControl = 1 };
  enum class Refusal : std::uint8_t {
    kNone = 0,
    kVersion,
    kGroup,
    kEpoch,
    kToken,
    kRank,
    kSize,
    kSecret
  };
  std::string group;  // at most kGroupNameMax bytes
  std::uint64_t epoch = 0;
  std::uint64_t token = 0;
  std::int32_t rank = 0;
  std::int32_t size = 0;
  Lane lane = Lane::kData;
  Refusal refusal = Refusal::kNone;
  bool secret = false;                // a proof is wanted, and will be given
  std::array<std::byte, 16> nonce{};  // by chance where it is
  std::uint16_t version = 2;
  bool operator==(const Hello&) const = default;
};
inline constexpr std::size_t kGroupNameMax = 63;
inline constexpr std::size_t kHelloBytes = 120;
using HelloBytes = std::array<std::byte, kHelloBytes>;
HelloBytes EncodeHello(const Hello& hello);
// Errors: kDataLoss: no hello. One of another version is decoded as far as its version.
Result<Hello> DecodeHello(std::span<const std::byte, kHelloBytes> bytes);
// Why `ours` wants nothing to do with `theirs`. Compares the token in constant time.
Hello::Refusal CheckHello(const Hello& ours, const Hello& theirs);

using GroupSecret = std::array<std::byte, 32>;
std::array<std::byte, 16> MakeNonce();  // by chance, of the system's
inline constexpr std::size_t kProofBytes = 32;
using ProofBytes = std::array<std::byte, kProofBytes>;
enum class Side : std::uint8_t { kConnects = 1, kAccepts = 2 };
// HMAC-SHA-512-256 with the secret over `maker` and the hellos of this connection.
ProofBytes MakeProof(const GroupSecret& secret, Side maker, const HelloBytes& of_who_connects,
                     const HelloBytes& of_who_accepts);
bool AreEqual(std::span<const std::byte> a, std::span<const std::byte> b);  // in constant time
std::string_view RefusalText(Hello::Refusal refusal);

// What goes over the control connection afterwards.
struct ControlWord {
  enum class Type : std::uint32_t {
    kAbort = 1,     // the group has ended: code, suspect, text
    kGoodBye = 2,   // this rank leaves, and has sent all it will
    kSlab = 3,      // numbers: process, descriptor, mark, bytes of a shared segment
    kSlabOpen = 4,  // it is mapped
  };
  Type type = Type::kGoodBye;
  Code code = Code::kOk;
  std::int32_t suspect = -1;
  std::array<std::uint64_t, 4> numbers{};
  std::string text;  // cut to kControlTextMax bytes
  bool operator==(const ControlWord&) const = default;
};
inline constexpr std::size_t kControlTextMax = 320;
inline constexpr std::size_t kControlBytes = 384;
using ControlBytes = std::array<std::byte, kControlBytes>;
ControlBytes EncodeControl(const ControlWord& word);
// Errors: kDataLoss: no such word.
Result<ControlWord> DecodeControl(std::span<const std::byte, kControlBytes> bytes);

}  // namespace troop
