// FrameCoder and FrameDictionary: LZ4 and zstd with trained dictionaries.
#include "replay/codec/frame_codec.h"

#include <lz4.h>
#include <zdict.h>
#include <zstd.h>

#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "core/base/check.h"

namespace troop {
namespace {

// First byte of an encoded frame; stored in logs and messages, so values must not change.
enum Tag : std::uint8_t {
  kRaw = 0,
  kLz4Alone = 1,
  kZstdAlone = 2,
  kZstdTrained = 3,
  kLz4Trained = 4
};

// Compression levels, measured on the frames named in the header. Alone, higher levels gain 10 %
// and lose 40 % when decoding; with a dictionary, 7 % and 13 %, which is accepted because zstd is
// chosen to save memory.
constexpr int kLevelAlone = -1;
constexpr int kLevelTrained = 3;
constexpr std::size_t kDictionaryBytes = 16 << 10;
constexpr std::size_t kDictionaryBytesMax = 1 << 20;  // limit for foreign ones
constexpr std::size_t kFrameBytesMax = 1 << 30;       // well below LZ4_MAX_INPUT_SIZE
constexpr std::size_t kTrainingFramesMin = 16;

// Deleters for the C objects of zstd.
template <class T, std::size_t (*kFree)(T*)>
struct ZstdFree {
  void operator()(T* t) const { kFree(t); }
};
using CContext = std::unique_ptr<ZSTD_CCtx, ZstdFree<ZSTD_CCtx, ZSTD_freeCCtx>>;
using DContext = std::unique_ptr<ZSTD_DCtx, ZstdFree<ZSTD_DCtx, ZSTD_freeDCtx>>;
using CDictionary = std::unique_ptr<ZSTD_CDict, ZstdFree<ZSTD_CDict, ZSTD_freeCDict>>;
using DDictionary = std::unique_ptr<ZSTD_DDict, ZstdFree<ZSTD_DDict, ZSTD_freeDDict>>;

char* Chars(std::byte* bytes) { return reinterpret_cast<char*>(bytes); }
const char* Chars(const std::byte* bytes) { return reinterpret_cast<const char*>(bytes); }

std::uint32_t LoadU32(const std::byte* bytes) {
  std::uint32_t value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

// True for exactly one frame of the current format: no concatenation, no skippable frame, and no
// format before 0.8, whose decoders are unmaintained.
bool IsOneZstdFrame(std::span<const std::byte> bytes) {
  return bytes.size() >= 4 && LoadU32(bytes.data()) == ZSTD_MAGICNUMBER &&
         ZSTD_findFrameCompressedSize(bytes.data(), bytes.size()) == bytes.size();
}

}  // namespace

Result<Codec> ParseCodec(std::string_view name) {
  if (const auto codec = ParseEnum<Codec>(name)) return *codec;
  return InvalidArgument("codec is \"{}\", must be none, lz4 or zstd", name);
}

// One dictionary for both codecs: LZ4 uses the content of a zstd dictionary as history.
class FrameDictionary {
 public:
  Buffer bytes;
  std::uint32_t id = 0;
  CDictionary encoder;
  DDictionary decoder;
  LZ4_stream_t lz4;  // state with the dictionary loaded; refers to `bytes`
};

std::shared_ptr<const FrameDictionary> MakeFrameDictionary(Buffer bytes) {
  if (bytes.empty() || bytes.size() > kDictionaryBytesMax) return nullptr;
  auto dictionary = std::make_shared<FrameDictionary>();
  // Bytes without zstd's dictionary header have id 0.
  dictionary->id = ZDICT_getDictID(bytes.data(), bytes.size());
  dictionary->encoder.reset(ZSTD_createCDict(bytes.data(), bytes.size(), kLevelTrained));
  dictionary->decoder.reset(ZSTD_createDDict(bytes.data(), bytes.size()));
  if (dictionary->id == 0 || !dictionary->encoder || !dictionary->decoder) return nullptr;
  LZ4_initStream(&dictionary->lz4, sizeof dictionary->lz4);
  LZ4_loadDict(&dictionary->lz4, Chars(bytes.data()), int(bytes.size()));
  dictionary->bytes = std::move(bytes);
  return dictionary;
}

std::uint32_t DictionaryId(const FrameDictionary& dictionary) { return dictionary.id; }
const Buffer& DictionaryBytes(const FrameDictionary& dictionary) { return dictionary.bytes; }

Result<Buffer> TrainFrameDictionary(std::span<const std::byte> frames, std::size_t frame_bytes) {
  TROOP_CHECK(frame_bytes > 0 && frames.size() % frame_bytes == 0, "{} bytes of {}-byte frames",
              frames.size(), frame_bytes);
  // The trainer takes the samples concatenated, with a list of sizes.
  const std::vector<std::size_t> sizes(frames.size() / frame_bytes, frame_bytes);
  if (sizes.size() < kTrainingFramesMin) {
    return InvalidArgument("cannot train a dictionary from {} frames, needs at least {}",
                           sizes.size(), kTrainingFramesMin);
  }
  MutableBuffer trained(kDictionaryBytes);
  const std::size_t size = ZDICT_trainFromBuffer(trained.data(), trained.size(), frames.data(),
                                                 sizes.data(), unsigned(sizes.size()));
  if (ZDICT_isError(size)) {
    return InvalidArgument("cannot train a dictionary from {} frames of {} bytes: {}", sizes.size(),
                           frame_bytes, ZDICT_getErrorName(size));
  }
  return std::move(trained).Freeze().Slice(0, size);
}

struct FrameCoder::State {
  using Dictionary = std::shared_ptr<const FrameDictionary>;

  std::size_t EncodeLz4(const std::byte* frame, std::byte* out);
  std::size_t EncodeZstd(const std::byte* frame, std::byte* out);
  void UseForEncoding(const FrameDictionary& dictionary);
  const FrameDictionary* Find(std::uint32_t id) const;
  Status DecodeLz4(std::span<const std::byte> bytes, const FrameDictionary* dictionary,
                   std::byte* out);
  Status DecodeZstd(std::span<const std::byte> bytes, bool trained, std::byte* out);

  Codec codec = Codec::kNone;
  std::size_t frame_bytes = 0;
  std::vector<Dictionary> known;  // the last one is used for encoding
  std::unique_ptr<LZ4_stream_t> lz4;
  CContext encoder;
  DContext decoder;
};

FrameCoder::FrameCoder(Codec codec, std::size_t frame_bytes) : state_(std::make_unique<State>()) {
  TROOP_CHECK(frame_bytes <= kFrameBytesMax, "frame_bytes is {}, must be at most {}", frame_bytes,
              kFrameBytesMax);
  state_->codec = codec;
  state_->frame_bytes = frame_bytes;
}
FrameCoder::~FrameCoder() = default;
FrameCoder::FrameCoder(FrameCoder&&) noexcept = default;
FrameCoder& FrameCoder::operator=(FrameCoder&&) noexcept = default;

Codec FrameCoder::codec() const { return state_->codec; }
std::size_t FrameCoder::frame_bytes() const { return state_->frame_bytes; }
// A raw frame plus its tag: encoders fall back to raw before exceeding it.
std::size_t FrameCoder::encoded_bytes_max() const {
  return state_->frame_bytes + (state_->codec == Codec::kNone ? 0 : 1);
}

void FrameCoder::AddDictionary(std::shared_ptr<const FrameDictionary> dictionary) {
  TROOP_CHECK(dictionary != nullptr, "no dictionary");
  State& state = *state_;
  // The dictionary moves to the end, also if it was known before.
  std::erase_if(state.known, [&](const auto& known) { return known->id == dictionary->id; });
  if (state.known.size() == std::size_t(kDictionariesMax)) state.known.erase(state.known.begin());
  state.known.push_back(std::move(dictionary));
  if (state.encoder) state.UseForEncoding(*state.known.back());
}

bool FrameCoder::Knows(std::uint32_t dictionary) const {
  return state_->Find(dictionary) != nullptr;
}

std::size_t FrameCoder::Encode(const std::byte* frame, std::byte* out) {
  State& state = *state_;
  std::size_t written = 0;
  if (state.codec == Codec::kLz4) written = state.EncodeLz4(frame, out);
  if (state.codec == Codec::kZstd) written = state.EncodeZstd(frame, out);
  // Encoding would enlarge the frame: store it raw.
  if (written > 0) return written;
  if (state.codec != Codec::kNone) *out++ = std::byte{kRaw};
  if (state.frame_bytes > 0) std::memcpy(out, frame, state.frame_bytes);
  return encoded_bytes_max();
}

// Returns 0 if the frame would not shrink; EncodeZstd likewise.
std::size_t FrameCoder::State::EncodeLz4(const std::byte* frame, std::byte* out) {
  if (!lz4) lz4 = std::make_unique<LZ4_stream_t>();
  std::size_t head = 1;
  if (known.empty()) {
    LZ4_initStream(lz4.get(), sizeof *lz4);
  } else {
    // Copying the 16 KB state costs less than indexing the dictionary again. The function that
    // attaches a dictionary is not exported by the shared library.
    std::memcpy(lz4.get(), &known.back()->lz4, sizeof *lz4);
    head += sizeof known.back()->id;
  }
  if (frame_bytes < head) return 0;
  const int size = LZ4_compress_fast_continue(lz4.get(), Chars(frame), Chars(out + head),
                                              int(frame_bytes), int(frame_bytes - head), 1);
  if (size <= 0) return 0;
  out[0] = std::byte{known.empty() ? kLz4Alone : kLz4Trained};
  if (!known.empty()) std::memcpy(out + 1, &known.back()->id, sizeof known.back()->id);
  return head + std::size_t(size);
}

// Applies to all later frames of this context.
void FrameCoder::State::UseForEncoding(const FrameDictionary& dictionary) {
  const std::size_t result = ZSTD_CCtx_refCDict(encoder.get(), dictionary.encoder.get());
  TROOP_CHECK(!ZSTD_isError(result), "zstd: {}", ZSTD_getErrorName(result));
}

// zstd stores the dictionary's id in the frame itself, so only the tag is added.
std::size_t FrameCoder::State::EncodeZstd(const std::byte* frame, std::byte* out) {
  if (!encoder) {
    encoder.reset(ZSTD_createCCtx());
    TROOP_CHECK(encoder != nullptr, "out of memory: a zstd context");
    ZSTD_CCtx_setParameter(encoder.get(), ZSTD_c_compressionLevel, kLevelAlone);
    ZSTD_CCtx_setParameter(encoder.get(), ZSTD_c_contentSizeFlag, 0);  // both sides have the size
    if (!known.empty()) UseForEncoding(*known.back());
  }
  const std::size_t size = ZSTD_compress2(encoder.get(), out + 1, frame_bytes, frame, frame_bytes);
  if (ZSTD_isError(size)) {
    // A frame that did not fit stays open; the session must be reset before any other call.
    ZSTD_CCtx_reset(encoder.get(), ZSTD_reset_session_only);
    return 0;
  }
  if (size >= frame_bytes) return 0;
  out[0] = std::byte{known.empty() ? kZstdAlone : kZstdTrained};
  return 1 + size;
}

// Newest first: most frames use the last dictionary.
const FrameDictionary* FrameCoder::State::Find(std::uint32_t id) const {
  for (std::size_t i = known.size(); i-- > 0;) {
    if (known[i]->id == id) return known[i].get();
  }
  return nullptr;
}

Status FrameCoder::State::DecodeLz4(std::span<const std::byte> bytes,
                                    const FrameDictionary* dictionary, std::byte* out) {
  // Encoded frames are never larger than raw ones, and sizes must fit an int.
  if (bytes.size() > frame_bytes)
    return DataLoss("LZ4 frame has {} bytes, more than a raw one", bytes.size());
  const int size = dictionary == nullptr
                       ? LZ4_decompress_safe(Chars(bytes.data()), Chars(out), int(bytes.size()),
                                             int(frame_bytes))
                       : LZ4_decompress_safe_usingDict(
                             Chars(bytes.data()), Chars(out), int(bytes.size()), int(frame_bytes),
                             Chars(dictionary->bytes.data()), int(dictionary->bytes.size()));
  if (size >= 0 && std::size_t(size) == frame_bytes) return Status::Ok();
  return DataLoss("LZ4 frame decodes to {} instead of {} bytes", size, frame_bytes);
}

// `trained`: the frame requires a dictionary.
Status FrameCoder::State::DecodeZstd(std::span<const std::byte> bytes, bool trained,
                                     std::byte* out) {
  if (!IsOneZstdFrame(bytes)) return DataLoss("{} bytes are not a zstd frame", bytes.size());
  const FrameDictionary* dictionary = nullptr;
  if (trained) {
    const std::uint32_t id = ZSTD_getDictID_fromFrame(bytes.data(), bytes.size());
    if (id == 0) return DataLoss("zstd frame without a dictionary id");
    dictionary = Find(id);
    if (dictionary == nullptr) return NotFound("dictionary {:#x} is unknown", id);
  }
  if (!decoder) decoder.reset(ZSTD_createDCtx());
  TROOP_CHECK(decoder != nullptr, "out of memory: a zstd context");
  const std::size_t size =
      ZSTD_decompress_usingDDict(decoder.get(), out, frame_bytes, bytes.data(), bytes.size(),
                                 dictionary == nullptr ? nullptr : dictionary->decoder.get());
  if (size == frame_bytes) return Status::Ok();
  if (ZSTD_isError(size)) return DataLoss("zstd: {}", ZSTD_getErrorName(size));
  return DataLoss("zstd frame decodes to {} instead of {} bytes", size, frame_bytes);
}

Status FrameCoder::Decode(std::span<const std::byte> encoded, std::byte* out) {
  State& state = *state_;
  // Raw frames: without a tag for kNone, else after it.
  if (state.codec == Codec::kNone || (!encoded.empty() && encoded[0] == std::byte{kRaw})) {
    if (encoded.size() != encoded_bytes_max()) {
      return DataLoss("raw frame has {} bytes, must have {}", encoded.size(), encoded_bytes_max());
    }
    if (state.frame_bytes > 0) {
      std::memcpy(out, encoded.data() + encoded.size() - state.frame_bytes, state.frame_bytes);
    }
    return Status::Ok();
  }
  if (encoded.empty()) return DataLoss("frame has 0 bytes");
  switch (std::uint8_t(encoded[0])) {
    case kLz4Alone:
      return state.DecodeLz4(encoded.subspan(1), nullptr, out);
    case kZstdAlone:
      return state.DecodeZstd(encoded.subspan(1), false, out);
    case kZstdTrained:
      return state.DecodeZstd(encoded.subspan(1), true, out);
    case kLz4Trained: {
      if (encoded.size() < 5) return DataLoss("frame has only {} bytes", encoded.size());
      const std::uint32_t id = LoadU32(encoded.data() + 1);
      if (id == 0) return DataLoss("LZ4 frame without a dictionary id");
      const FrameDictionary* const dictionary = state.Find(id);
      if (dictionary == nullptr) return NotFound("dictionary {:#x} is unknown", id);
      return state.DecodeLz4(encoded.subspan(5), dictionary, out);
    }
    default:
      return DataLoss("frame has unknown tag {}", int(encoded[0]));
  }
}

// LZ4 frames carry the id after the tag, zstd frames in their own header.
std::uint32_t NeedsDictionary(std::span<const std::byte> encoded) {
  if (encoded.size() < 5) return 0;
  if (encoded[0] == std::byte{kLz4Trained}) return LoadU32(encoded.data() + 1);
  if (encoded[0] != std::byte{kZstdTrained}) return 0;
  return ZSTD_getDictID_fromFrame(encoded.data() + 1, encoded.size() - 1);
}

}  // namespace troop
