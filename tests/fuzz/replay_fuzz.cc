// Hostile bytes against what the replay decodes. The first byte of an input chooses:
//   0 … 2: an encoded frame of 7056 bytes for a coder of codec none, lz4, zstd
//   3 … 5: a block of drawn items, of a stacked transition, a sequence with a state, one step of
//          4 floats; what is accepted is decoded into a batch, and packs to the same bytes again
//   6 … 8: the same, with the size in the header made right, so that the checks behind it are
//          reached
//   9:     a dictionary; if it is one, it encodes and decodes
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "core/base/check.h"
#include "replay/codec/batch_decoder.h"
#include "replay/codec/encoded_batch.h"
#include "replay/codec/frame_codec.h"

namespace troop {
namespace {

constexpr std::size_t kFrameBytes = 84 * 84;

void CheckFrame(Codec codec, std::span<const std::byte> bytes) {
  FrameCoder coder(codec, kFrameBytes);
  std::vector<std::byte> frame(kFrameBytes);
  const Status status = coder.Decode(bytes, frame.data());
  if (status.code() == Code::kNotFound) TROOP_CHECK(NeedsDictionary(bytes) != 0, "which?");
  if (!status.ok()) return;
  std::vector<std::byte> encoded(coder.encoded_bytes_max()), again(kFrameBytes);
  const std::size_t size = coder.Encode(frame.data(), encoded.data());
  TROOP_CHECK(coder.Decode(std::span(encoded).first(size), again.data()).ok(), "not read again");
  TROOP_CHECK(again == frame, "another frame came back");
}

BatchDecoder::Options OptionsOf(int kind) {
  using Kind = ViewSpec::Kind;
  if (kind == 0) {
    return {.trajectory = {.observation = {DType::kU8, {8, 8}}, .action = {DType::kI32, {}}},
            .view = {Kind::kTransition, 3, 4, 0},
            .codec = Codec::kLz4};
  }
  if (kind == 1) {
    return {.trajectory = {.observation = {DType::kU8, {8, 8}},
                           .action = {DType::kF32, {2}},
                           .state = TensorSpec{DType::kF32, {3}}},
            .view = {Kind::kSequence, 4, 2, 3},
            .codec = Codec::kZstd};
  }
  return {.trajectory = {.observation = {DType::kF32, {4}}, .action = {DType::kI32, {}}},
          .view = {Kind::kTransition, 1, 1, 0}};
}

void CheckBlock(int kind, std::span<const std::byte> bytes) {
  const BatchDecoder::Options options = OptionsOf(kind);
  EncodedBatch drawn;
  if (!ParseEncodedBatch(bytes, options.trajectory, options.view, options.codec, &drawn).ok())
    return;
  const Buffer again = PackEncodedBatch(drawn, options.trajectory, options.view, options.codec);
  EncodedBatch second;
  TROOP_CHECK(again.size() == bytes.size(), "{} bytes became {}", bytes.size(), again.size());
  TROOP_CHECK(
      ParseEncodedBatch(again, options.trajectory, options.view, options.codec, &second).ok() &&
          second.key == drawn.key && second.action == drawn.action &&
          second.frame.size() == drawn.frame.size(),
      "another block came back");
  BatchDecoder decoder(options);
  SampleBatch batch;
  const Status status = decoder.Decode(drawn, 0.4, &batch);
  if (status.ok()) TROOP_CHECK(batch.size() == drawn.size(), "rows were lost");
}

void CheckDictionary(std::span<const std::byte> bytes) {
  const auto dictionary = MakeFrameDictionary(Buffer::Copy(bytes));
  if (dictionary == nullptr) return;
  TROOP_CHECK(DictionaryId(*dictionary) != 0, "a dictionary without a name");
  for (const Codec codec : {Codec::kLz4, Codec::kZstd}) {
    FrameCoder coder(codec, 300);
    coder.AddDictionary(dictionary);
    std::vector<std::byte> frame(300, std::byte{7}), encoded(coder.encoded_bytes_max()), back(300);
    std::copy_n(bytes.begin(), std::min<std::size_t>(bytes.size(), 200), frame.begin());
    const std::size_t size = coder.Encode(frame.data(), encoded.data());
    TROOP_CHECK(coder.Decode(std::span(encoded).first(size), back.data()).ok() && back == frame,
                "another frame came back");
  }
}

}  // namespace
}  // namespace troop

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troop;
  if (size == 0 || data[0] > 9) return 0;
  const auto bytes = std::make_unique<std::byte[]>(size - 1);  // exactly: a sanitizer sees its end
  if (size > 1) std::memcpy(bytes.get(), data + 1, size - 1);
  const int way = data[0];
  if (way >= 6 && way <= 8 && size > sizeof(std::uint64_t)) {
    const std::uint64_t said = size - 1;
    std::memcpy(bytes.get(), &said, sizeof said);
  }
  const std::span<const std::byte> input(bytes.get(), size - 1);
  if (way <= 2) CheckFrame(Codec(way), input);
  if (way >= 3 && way <= 8) CheckBlock(way % 3, input);
  if (way == 9) CheckDictionary(input);
  return 0;
}
