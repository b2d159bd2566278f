// Hostile bytes against the decoders of collective/. The first byte of an input chooses: 0 a hello,
// 1 a word of control, 2 an operation's header; 3 to 5 the same with mark and checksum made right,
// so that the checks behind them are reached. Whatever is accepted must encode to the same bytes.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "collective/op_header.h"
#include "collective/socket/handshake.h"
#include "core/base/check.h"
#include "core/storage/crc32c.h"
#include "tests/fuzz/fuzz.h"

namespace troop {
namespace {

template <class Bytes>
Bytes TakeBytes(FuzzInput* input, const Bytes& sample, bool mend) {
  Bytes bytes{};
  const auto some = input->TakeBytes(bytes.size());
  std::ranges::copy(some, bytes.begin());
  if (mend) {
    std::memcpy(bytes.data(), sample.data(), 4);
    const std::uint32_t crc = Crc32c(std::span<const std::byte>(bytes).subspan(8));
    std::memcpy(bytes.data() + 4, &crc, sizeof crc);
  }
  return bytes;
}

void Check(FuzzInput input) {
  const auto what = input.Take<std::uint8_t>();
  const bool mend = what >= 3;
  if (what % 3 == 0) {
    const HelloBytes bytes = TakeBytes(&input, EncodeHello({}), mend);
    const auto hello = DecodeHello(bytes);
    if (!hello.ok()) return;
    static_cast<void>(CheckHello({.group = "g", .size = 4}, *hello));
    const bool ours = hello->version == Hello().version;
    TROOP_CHECK(!ours || EncodeHello(*hello) == bytes, "another encoding was accepted");
  } else if (what % 3 == 1) {
    const ControlBytes bytes = TakeBytes(&input, EncodeControl({}), mend);
    const auto word = DecodeControl(bytes);
    if (word.ok()) TROOP_CHECK(EncodeControl(*word) == bytes, "another encoding was accepted");
  } else {
    const OpHeaderBytes bytes = TakeBytes(&input, EncodeOpHeader({}), mend);
    const auto header = DecodeOpHeader(bytes);
    if (!header.ok()) return;
    TROOP_CHECK(!header->ToString().empty(), "an operation without words");
    TROOP_CHECK(EncodeOpHeader(*header) == bytes, "another encoding was accepted");
  }
}

}  // namespace

void VisitSeeds(const SeedWriter& write) {
  const auto put = [&](std::string_view name, char what, const auto& bytes) {
    write(name, what + std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  };
  const Hello hello{.group = "learners", .epoch = 3, .token = 99, .rank = 1, .size = 4};
  const ControlWord word{.type = ControlWord::Type::kAbort,
                         .code = Code::kUnavailable,
                         .suspect = 1,
                         .text = "rank 1 has died"};
  const OpHeader header{.kind = OpKind::kAllReduce, .number = 7, .elements = 1000};
  put("hello", 0, EncodeHello(hello));
  put("hello_mended", 3, EncodeHello(hello));
  put("word", 1, EncodeControl(word));
  put("word_mended", 4, EncodeControl(word));
  put("operation", 2, EncodeOpHeader(header));
  put("operation_mended", 5, EncodeOpHeader(header));
}

}  // namespace troop

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  troop::Check(troop::FuzzInput(data, size));
  return 0;
}
