// Implements the control messages of handshake.h, in a separate file because they need no
// cryptography library.
#include <algorithm>
#include <cstring>

#include "collective/socket/handshake.h"
#include "core/storage/crc32c.h"

namespace troop {
namespace {

// Wire format, little endian. The checksum covers everything after it.
struct ControlLayout {
  std::uint32_t magic = 0, crc = 0;
  std::uint32_t type = 0;
  std::int32_t code = 0, suspect = 0;
  std::uint32_t text_bytes = 0;
  std::uint64_t numbers[4] = {};
  char text[328] = {};
};
static_assert(sizeof(ControlLayout) == kControlBytes &&
              kControlTextMax <= sizeof(ControlLayout::text));
constexpr std::uint32_t kControlMagic = 0x74635254;  // "TRct"

// Checksum without the magic number and itself.
std::uint32_t CrcOf(const ControlLayout& layout) {
  return Crc32c(std::as_bytes(std::span(&layout, 1)).subspan(8));
}

}  // namespace

// Longer texts are truncated: the size is fixed.
ControlBytes EncodeControl(const ControlWord& word) {
  const std::size_t text = std::min(word.text.size(), kControlTextMax);
  ControlLayout layout{.magic = kControlMagic,
                       .type = std::uint32_t(word.type),
                       .code = int(word.code),
                       .suspect = word.suspect,
                       .text_bytes = std::uint32_t(text)};
  std::ranges::copy(word.numbers, layout.numbers);
  std::memcpy(layout.text, word.text.data(), text);
  layout.crc = CrcOf(layout);
  ControlBytes bytes;
  std::memcpy(bytes.data(), &layout, sizeof layout);
  return bytes;
}

// Input is untrusted: every field is checked, the text's padding included.
Result<ControlWord> DecodeControl(std::span<const std::byte, kControlBytes> bytes) {
  ControlLayout layout;
  std::memcpy(&layout, bytes.data(), sizeof layout);
  if (layout.magic != kControlMagic || layout.crc != CrcOf(layout)) {
    return DataLoss("these bytes are not a control message");
  }
  const bool known = layout.type >= 1 && layout.type <= std::uint32_t(ControlWord::Type::kSlabOpen);
  if (!known || layout.code < 0 || layout.code > int(Code::kInternal) ||
      layout.text_bytes > kControlTextMax ||
      !std::ranges::all_of(std::span(layout.text).subspan(layout.text_bytes),
                           [](char c) { return c == 0; })) {
    return DataLoss("a control message with invalid fields");
  }
  ControlWord word{.type = ControlWord::Type(layout.type),
                   .code = Code(layout.code),
                   .suspect = layout.suspect,
                   .text = std::string(layout.text, layout.text_bytes)};
  if (word.type == ControlWord::Type::kAbort && word.code == Code::kOk) {
    return DataLoss("an abort message with code ok");
  }
  std::ranges::copy(layout.numbers, word.numbers.begin());
  return word;
}

}  // namespace troop
