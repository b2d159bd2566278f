#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "collective/collective.h"

namespace troop {

// Description of an operation. It is sent ahead of the operation's bytes, so that ranks detect
// mismatched calls.
struct OpHeader {
  OpKind kind = OpKind::kBarrier;
  DType dtype = DType::kF32;
  Reduction reduction = Reduction::kSum;
  std::int32_t peer = 0;       // kBroadcast: the root; otherwise 0
  std::uint64_t number = 0;    // sequence number in the group; kSend: per pair and direction
  std::uint64_t elements = 0;  // of `in` (kReceive and kBroadcast: of `out`)
  bool operator==(const OpHeader&) const = default;
  // Human-readable form: "all-reduce number 3, sum of f32[100]".
  std::string ToString() const;
};

// Header of an operation that has passed CheckOp. A kReceive has the header of the kSend that it
// matches, with kind kSend.
OpHeader HeaderOf(const Op& op, const ConstTensor& in, const Tensor& out, std::uint64_t number);

inline constexpr std::size_t kOpHeaderBytes = 32;
using OpHeaderBytes = std::array<std::byte, kOpHeaderBytes>;
OpHeaderBytes EncodeOpHeader(const OpHeader& header);
// Errors: kDataLoss: not a valid header.
Result<OpHeader> DecodeOpHeader(std::span<const std::byte, kOpHeaderBytes> bytes);

}  // namespace troop
