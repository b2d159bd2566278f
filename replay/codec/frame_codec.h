#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "core/base/buffer.h"
#include "core/base/status.h"
#include "core/config/enum_names.h"

namespace troop {

// Encoding of one frame's observation in memory and on the wire. Frames are encoded independently,
// so that any can be read alone. Means over 12 Atari games (84x84 grayscale, random policy; one
// EPYC core): ratio, µs to encode and to decode a frame:
//                                       alone               with a dictionary of 16 KiB
//   kLz4                                 6.9, 2.6, 1.0       14.0, 2.6, 0.85
//   kZstd (level -1; 3)                  9.3, 8.1, 3.3       26.3, 5.2, 1.5
// A dictionary pays off for both: it is trained on frames of the same game.
enum class Codec : std::uint8_t {
  kNone = 0,  // unencoded, frame_bytes each; for small observations
  kLz4 = 1,   // fast encoding and decoding
  kZstd = 2,  // smaller
};
constexpr auto EnumNames(Codec) { return std::to_array<std::string_view>({"none", "lz4", "zstd"}); }
Result<Codec> ParseCodec(std::string_view name);

// A dictionary trained on frames of one table. Each frame that needs it contains its id.
// Immutable: many threads may encode and decode with one.
class FrameDictionary;  // the bytes, and the prepared forms for both directions
// Returns nullptr if the bytes are not a dictionary in zstd's format with an id.
std::shared_ptr<const FrameDictionary> MakeFrameDictionary(Buffer bytes);
std::uint32_t DictionaryId(const FrameDictionary& dictionary);  // never 0
const Buffer& DictionaryBytes(const FrameDictionary& dictionary);
// Trains a dictionary of up to 16 KiB from about a thousand concatenated raw frames. Takes 0.2 s
// for a thousand of 7 KB, so run it as a job. Deterministic. Errors: kInvalidArgument: too few
// frames, or nothing in common.
Result<Buffer> TrainFrameDictionary(std::span<const std::byte> frames, std::size_t frame_bytes);

// Encodes and decodes frames of one size. With a codec other than kNone an encoded frame begins
// with a tag byte: 0 raw (encoding would enlarge it), 1 LZ4, 2 zstd, 3 zstd with a dictionary, 4
// LZ4 with a dictionary (followed by its id, 4 bytes). A decoder reads all of them, whatever its
// codec. Owner: one thread; make one for each (16 KB for LZ4, about 300 KB for zstd, allocated at
// first use).
class FrameCoder {
 public:
  static constexpr int kDictionariesMax = 256;
  FrameCoder(Codec codec, std::size_t frame_bytes);  // REQUIRES: frame_bytes <= 1 GiB
  ~FrameCoder();
  FrameCoder(FrameCoder&&) noexcept;
  FrameCoder& operator=(FrameCoder&&) noexcept;

  Codec codec() const;
  std::size_t frame_bytes() const;
  std::size_t encoded_bytes_max() const;  // frame_bytes, plus one for the tag
  // Adds a dictionary for encoding and decoding. Earlier ones stay available for decoding (at most
  // kDictionariesMax; the one added first is dropped).
  bool Knows(std::uint32_t dictionary) const;
  void AddDictionary(std::shared_ptr<const FrameDictionary> dictionary);

  // Encodes a frame. `frame`: frame_bytes bytes; `out`: encoded_bytes_max bytes. Returns the bytes
  // written.
  std::size_t Encode(const std::byte* frame, std::byte* out);
  // Decodes a frame into `out` (frame_bytes bytes). Never accesses memory outside `encoded` and
  // `out`, whatever the bytes. After an error `out` is unspecified. Errors: kDataLoss: damaged, or
  // not a frame of this size; kNotFound: its dictionary is unknown (see NeedsDictionary).
  Status Decode(std::span<const std::byte> encoded, std::byte* out);

 private:
  struct State;
  std::unique_ptr<State> state_;
};
// Id of the dictionary that an encoded frame needs; 0: none, or not a frame. REQUIRES: the frame's
// codec was not kNone (such frames have no tag).
std::uint32_t NeedsDictionary(std::span<const std::byte> encoded);

}  // namespace troop
