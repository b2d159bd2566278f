// Hostile bytes against the decoders of net/. The first byte of an input chooses:
//   0: a first frame as it is             1: the same, with mark, version and checksum made right,
//   2: a control body                        so that the checks behind them are reached
// Whatever is accepted must encode to the same bytes again: there is one encoding only.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "core/base/check.h"
#include "core/storage/crc32c.h"
#include "net/error.h"
#include "net/wire/codec.h"
#include "net/wire/frame.h"
#include "tests/net/every_field.h"

namespace troop {
namespace {

constexpr WireLimits kLimits{.message_bytes_max = 1 << 20, .parts_max = 64};

void CheckFrame(std::span<const std::byte> frame) {
  const Result<WireHeader> header = CheckFirstFrame(frame, kLimits);
  if (!header.ok()) return;
  // Big parts of the right number, but of any size: only zeros of 256 KiB can match.
  const Buffer zeros = MutableBuffer::Zeros(kBigPartBytes).Freeze();
  const std::vector<Buffer> big(static_cast<std::size_t>(header->big_parts), zeros);
  const Result<Message> message = DecodeMessage(*header, frame, big);
  if (!message.ok()) return;
  std::vector<std::byte> again(FirstFrameBytes(*message));
  EncodeFirstFrame(header->envelope, *message, again);
  TROOP_CHECK(std::ranges::equal(again, frame), "another encoding was accepted");
  if (message->type == MessageType::kError) TROOP_CHECK(!ErrorOf(*message).ok(), "no error");
}

void CheckBody(std::string_view bytes) {
  const Result<EveryFieldBody> body = DecodeBody<EveryFieldBody>(bytes);
  if (body.ok()) TROOP_CHECK(EncodeBody(*body) == bytes, "another encoding was accepted");
}

}  // namespace
}  // namespace troop

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troop;
  if (size == 0) return 0;
  std::vector<std::byte> bytes(size - 1);
  if (size > 1) std::memcpy(bytes.data(), data + 1, size - 1);
  if (data[0] == 1 && bytes.size() >= 10) {
    std::memcpy(bytes.data(), &kWireMagic, sizeof kWireMagic);
    std::memcpy(bytes.data() + 8, &kWireVersion, sizeof kWireVersion);
    const std::uint32_t crc = Crc32c(std::span<const std::byte>(bytes).subspan(8));
    std::memcpy(bytes.data() + 4, &crc, sizeof crc);
  }
  if (data[0] <= 1) CheckFrame(bytes);
  if (data[0] == 2) CheckBody({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  return 0;
}
