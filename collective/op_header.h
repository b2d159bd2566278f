#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "collective/collective.h"

namespace troop {

// What a rank says of an operation before its bytes, so that ranks which do different things
// notice.
struct OpHeader {
  OpKind kind = OpKind::kBarrier;
  DType dtype = DType::kF32;
  Reduction reduction = Reduction::kSum;
  std::int32_t peer = 0;       // the root of a broadcast
  std::uint64_t number = 0;    // which operation of the group, or of the pair
  std::uint64_t elements = 0;  // of in (kReceive and what is received: of out)
  bool operator==(const OpHeader&) const = default;
  // "all-reduce number 3, sum of f32[100]"
  std::string ToString() const;
};

// Of an operation that CheckOp has let pass. A receive says what its sender says.
OpHeader HeaderOf(const Op& op, const ConstTensor& in, const Tensor& out, std::uint64_t number);

inline constexpr std::size_t kOpHeaderBytes = 32;
using OpHeaderBytes = std::array<std::byte, kOpHeaderBytes>;
OpHeaderBytes EncodeOpHeader(const OpHeader& header);
// Errors: kDataLoss: not such a header.
Result<OpHeader> DecodeOpHeader(std::span<const std::byte, kOpHeaderBytes> bytes);

}  // namespace troop
