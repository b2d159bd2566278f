#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "collective/collective.h"

namespace troop {

// Description of an operation that precedes its bytes, so that ranks detect mismatched calls.
struct OpHeader {
  OpKind kind = OpKind::kBarrier;
  DType dtype = DType::kF32;
  Reduction reduction = Reduction::kSum;
  std::int32_t peer = 0;       // the root of a broadcast
  std::uint64_t number = 0;    // sequence number of the operation in the group, or in the pair
  std::uint64_t elements = 0;  // of `in` (kReceive and kBroadcast: of `out`)
  bool operator==(const OpHeader&) const = default;
  // Human-readable form: "all-reduce number 3, sum of f32[100]".
  std::string ToString() const;
};

// Header of an operation that passed CheckOp. A receive has the header of its send.
OpHeader HeaderOf(const Op& op, const ConstTensor& in, const Tensor& out, std::uint64_t number);

inline constexpr std::size_t kOpHeaderBytes = 32;
using OpHeaderBytes = std::array<std::byte, kOpHeaderBytes>;
OpHeaderBytes EncodeOpHeader(const OpHeader& header);
// Errors: kDataLoss: not a valid header.
Result<OpHeader> DecodeOpHeader(std::span<const std::byte, kOpHeaderBytes> bytes);

}  // namespace troop
