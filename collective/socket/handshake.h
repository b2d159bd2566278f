#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/base/status.h"

namespace troop {

// The first bytes of each connection between two ranks, in both directions. A rank that does not
// belong to the group gets one reply with the reason and is disconnected; bytes that are not a
// hello get no reply.
//
// A group with a secret requires a proof from both sides of each connection before anything else is
// read: the accepting side sends its proof after its hello, and the connecting side replies with
// its own. A proof is valid for these two hellos only, whose nonces are unique. The connection
// itself is neither encrypted nor authenticated afterwards.
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
  bool secret = false;                // proofs are required and will be sent
  std::array<std::byte, 16> nonce{};  // random if `secret`
  std::uint16_t version = 2;
  bool operator==(const Hello&) const = default;
};
inline constexpr std::size_t kGroupNameMax = 63;
inline constexpr std::size_t kHelloBytes = 120;
using HelloBytes = std::array<std::byte, kHelloBytes>;
HelloBytes EncodeHello(const Hello& hello);
// Errors: kDataLoss: not a hello. Of another protocol version only the version is decoded.
Result<Hello> DecodeHello(std::span<const std::byte, kHelloBytes> bytes);
// Reason to refuse `theirs`, or kNone. Compares the token in constant time.
Hello::Refusal CheckHello(const Hello& ours, const Hello& theirs);

using GroupSecret = std::array<std::byte, 32>;
std::array<std::byte, 16> MakeNonce();  // from the system's random generator
inline constexpr std::size_t kProofBytes = 32;
using ProofBytes = std::array<std::byte, kProofBytes>;
enum class Side : std::uint8_t { kConnects = 1, kAccepts = 2 };
// HMAC-SHA-512-256 with the secret over `maker` and the two hellos of this connection.
ProofBytes MakeProof(const GroupSecret& secret, Side maker, const HelloBytes& connector_hello,
                     const HelloBytes& acceptor_hello);
bool AreEqual(std::span<const std::byte> a, std::span<const std::byte> b);  // in constant time
std::string_view RefusalText(Hello::Refusal refusal);

// Message on the control connection after the handshake.
struct ControlWord {
  enum class Type : std::uint32_t {
    kAbort = 1,     // the group has failed: code, suspect, text
    kGoodbye = 2,   // this rank leaves and has sent everything
    kSlab = 3,      // numbers: process id, descriptor, mark, bytes of a shared segment
    kSlabOpen = 4,  // the segment is mapped
  };
  Type type = Type::kGoodbye;
  Code code = Code::kOk;
  std::int32_t suspect = -1;
  std::array<std::uint64_t, 4> numbers{};
  std::string text;  // truncated to kControlTextMax bytes
  bool operator==(const ControlWord&) const = default;
};
inline constexpr std::size_t kControlTextMax = 320;
inline constexpr std::size_t kControlBytes = 384;
using ControlBytes = std::array<std::byte, kControlBytes>;
ControlBytes EncodeControl(const ControlWord& word);
// Errors: kDataLoss: not a valid control message.
Result<ControlWord> DecodeControl(std::span<const std::byte, kControlBytes> bytes);

}  // namespace troop
