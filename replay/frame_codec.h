#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "core/buffer.h"
#include "core/status.h"

namespace troop {

// How the observation of one frame is kept and sent; each by itself, so that any can be read alone.
// Means over 12 Atari games (84x84 grey, random policy; one EPYC core), ratio, µs to encode and to
// decode a frame:                       alone               with a dictionary of 16 KiB
//   kLz4                                 6.9, 2.6, 1.0       14.0, 2.6, 0.85
//   kZstd (level -1; 3)                  9.3, 8.1, 3.3       26.3, 5.2, 1.5
// A dictionary is worth having for either: it is trained on frames of the same game.
enum class Codec : std::uint8_t {
  kNone = 0,  // as it is, frame_bytes each: small observations
  kLz4 = 1,   // fast both ways
  kZstd = 2,  // smaller
};
std::string_view CodecName(Codec codec);  // "none", "lz4", "zstd"
Result<Codec> ParseCodec(std::string_view name);

// Trained on frames of one table. Its id is in each frame that needs it. Immutable: many threads
// may encode and decode with one.
class FrameDictionary;  // holds the bytes and the prepared forms for both directions
// nullptr: the bytes are no dictionary of zstd's format with an id.
std::shared_ptr<const FrameDictionary> MakeFrameDictionary(Buffer bytes);
std::uint32_t DictionaryId(const FrameDictionary& dictionary);  // never 0
const Buffer& DictionaryBytes(const FrameDictionary& dictionary);
// Up to 16 KiB from some thousand raw frames, laid one after the other. Takes 0.2 s for a thousand
// of 7 KB: a job. Deterministic. Errors: kInvalidArgument: too few, or with nothing in
// common.
Result<Buffer> TrainFrameDictionary(std::span<const std::byte> frames, std::size_t frame_bytes);

// Encodes and decodes frames of one size. With a codec other than kNone an encoded frame begins
// with a tag byte: 0 raw (it would have grown), 1 LZ4, 2 zstd, 3 zstd with a dictionary, 4 LZ4 with
// a dictionary (whose id comes next, 4 bytes); a decoder reads any of them, whatever its codec.
// Owner: one thread; make one for each (16 KB for LZ4, about 300 KB for zstd, made at first use).
class FrameCoder {
 public:
  static constexpr int kDictionariesMax = 256;
  FrameCoder(Codec codec, std::size_t frame_bytes);  // REQUIRES: frame_bytes <= 1 GiB
  ~FrameCoder();
  FrameCoder(FrameCoder&&) noexcept;
  FrameCoder& operator=(FrameCoder&&) noexcept;

  Codec codec() const;
  std::size_t frame_bytes() const;
  std::size_t encoded_bytes_max() const;  // frame_bytes, and one for the tag
  // Used for encoding from now on, and known for decoding. Earlier ones stay known (at most
  // kDictionariesMax; the one that was added first is forgotten).
  bool Knows(std::uint32_t dictionary) const;
  void AddDictionary(std::shared_ptr<const FrameDictionary> dictionary);

  // frame: frame_bytes. out: encoded_bytes_max. Returns what was written.
  std::size_t Encode(const std::byte* frame, std::byte* out);
  // out: frame_bytes. Never reads outside `encoded`, never writes outside out, whatever the bytes.
  // Errors: kDataLoss: not a frame of this size, or damaged; kNotFound: its dictionary is not known
  // (NeedsDictionary says which). After an error `out` holds anything.
  Status Decode(std::span<const std::byte> encoded, std::byte* out);

 private:
  struct State;
  std::unique_ptr<State> state_;
};
// The dictionary that an encoded frame needs; 0: none, or it is no frame. REQUIRES: the codec of
// the frame was not kNone (such frames have no tag).
std::uint32_t NeedsDictionary(std::span<const std::byte> encoded);

}  // namespace troop
