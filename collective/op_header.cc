// Implements the headers by which ranks compare their operations.
#include "collective/op_header.h"

#include <fmt/format.h>

#include <cstring>

#include "core/storage/crc32c.h"

namespace troop {
namespace {

// Wire format, little endian.
struct Layout {
  std::uint32_t magic = 0;
  std::uint32_t crc = 0;  // of everything after it
  std::uint8_t kind = 0, dtype = 0, reduction = 0, zero = 0;
  std::int32_t peer = 0;
  std::uint64_t number = 0;
  std::uint64_t elements = 0;
};
static_assert(sizeof(Layout) == kOpHeaderBytes);
constexpr std::uint32_t kMagic = 0x706f5254;  // "TRop"

// Checksum without the magic number and itself.
std::uint32_t CrcOf(const Layout& layout) {
  return Crc32c(std::as_bytes(std::span(&layout, 1)).subspan(8));
}

}  // namespace

// Only the fields that the operation uses.
std::string OpHeader::ToString() const {
  std::string text = fmt::format("{} number {}", OpKindName(kind), number);
  if (kind == OpKind::kBarrier) return text;
  if (kind == OpKind::kAllReduce || kind == OpKind::kReduceScatter) {
    text += fmt::format(", {}", ReductionName(reduction));
  }
  if (kind == OpKind::kBroadcast) text += fmt::format(" from rank {}", peer);
  return text + fmt::format(" of {}[{}]", DTypeName(dtype), elements);
}

// Fields that an operation does not use stay 0, so that headers can be compared as a whole.
OpHeader HeaderOf(const Op& op, const ConstTensor& in, const Tensor& out, std::uint64_t number) {
  OpHeader header{.kind = op.kind == OpKind::kReceive ? OpKind::kSend : op.kind, .number = number};
  if (op.kind == OpKind::kBarrier) return header;
  const bool by_out = op.kind == OpKind::kReceive || op.kind == OpKind::kBroadcast;
  header.dtype = by_out ? out.dtype() : in.dtype();
  header.elements = std::uint64_t(by_out ? out.elements() : in.elements());
  if (op.kind == OpKind::kBroadcast) header.peer = op.peer;
  if (op.kind == OpKind::kAllReduce || op.kind == OpKind::kReduceScatter) {
    header.reduction = op.reduction;
  }
  return header;
}

// Fixed size, with a checksum over everything after it.
OpHeaderBytes EncodeOpHeader(const OpHeader& header) {
  Layout layout{.magic = kMagic,
                .kind = std::uint8_t(header.kind),
                .dtype = std::uint8_t(header.dtype),
                .reduction = std::uint8_t(header.reduction),
                .peer = header.peer,
                .number = header.number,
                .elements = header.elements};
  layout.crc = CrcOf(layout);
  OpHeaderBytes bytes;
  std::memcpy(bytes.data(), &layout, sizeof layout);
  return bytes;
}

// Anything else in the stream means that the ranks run different operations.
Result<OpHeader> DecodeOpHeader(std::span<const std::byte, kOpHeaderBytes> bytes) {
  Layout layout;
  std::memcpy(&layout, bytes.data(), sizeof layout);
  const bool known = layout.kind >= std::uint8_t(OpKind::kAllReduce) &&
                     layout.kind <= std::uint8_t(OpKind::kBarrier) &&
                     layout.dtype <= std::uint8_t(DType::kU32) &&
                     layout.reduction <= std::uint8_t(Reduction::kMin) && layout.zero == 0;
  if (layout.magic != kMagic || layout.crc != CrcOf(layout) || !known) {
    return DataLoss("invalid operation header; the ranks call different operations");
  }
  return OpHeader{.kind = OpKind(layout.kind),
                  .dtype = DType(layout.dtype),
                  .reduction = Reduction(layout.reduction),
                  .peer = layout.peer,
                  .number = layout.number,
                  .elements = layout.elements};
}

}  // namespace troop
