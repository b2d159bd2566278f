// Decompression of .xz through liblzma, with limits on memory and output.

#include "datasets/text/xz.h"

#include <lzma.h>

#include <algorithm>
#include <cstdint>

#include "core/base/phase_progress.h"

namespace troop {
namespace {

// Bytes. Above the 65 MiB that `xz -9` needs to decompress; a damaged header could request 4 GiB.
constexpr std::uint64_t kMemoryMax = std::uint64_t{256} << 20;
constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kPart = 16 * kMiB;  // about a quarter of a second between progress updates

// Converts a failure of liblzma; every code other than LZMA_OK and LZMA_STREAM_END is one.
Status StatusOf(lzma_ret code) {
  switch (code) {
    case LZMA_FORMAT_ERROR:
      return DataLoss("it is not an .xz file");
    case LZMA_MEMLIMIT_ERROR:
      return ResourceExhausted("its dictionary needs more than {} MiB", kMemoryMax >> 20);
    case LZMA_BUF_ERROR:
      return DataLoss("its end is missing");
    case LZMA_MEM_ERROR:
      return ResourceExhausted("not enough memory to decompress it");
    default:
      return DataLoss("its bytes are damaged (liblzma: {})", int(code));
  }
}

// Owns a liblzma stream.
class Decoder {
 public:
  ~Decoder() { lzma_end(&stream_); }
  lzma_ret Begin() { return lzma_stream_decoder(&stream_, kMemoryMax, LZMA_CONCATENATED); }
  lzma_stream* operator->() { return &stream_; }
  // LZMA_FINISH: the whole input is available, so its end is an error unless the stream ends there.
  lzma_ret Run() { return lzma_code(&stream_, LZMA_FINISH); }

 private:
  lzma_stream stream_ = LZMA_STREAM_INIT;
};

}  // namespace

Result<std::string> DecompressXz(std::string_view bytes, std::size_t bytes_max) {
  // LZMA_CONCATENATED: several streams in a row are one file.
  Decoder decoder;
  if (const lzma_ret code = decoder.Begin(); code != LZMA_OK) return StatusOf(code);
  decoder->next_in = reinterpret_cast<const std::uint8_t*>(bytes.data());
  decoder->avail_in = bytes.size();
  PhaseProgress progress("unpacking", "MiB", std::int64_t(bytes.size() / kMiB));
  std::string out;
  std::size_t size = 0;
  lzma_ret code = LZMA_OK;
  while (code == LZMA_OK) {
    if (size > bytes_max)
      return ResourceExhausted("its content is larger than {} bytes", bytes_max);
    // Grows by halves: the file stores its size only at its end, and a damaged file any size.
    if (size == out.size()) out.resize(size + std::max(kMiB, size / 2));
    const std::size_t part = std::min(out.size() - size, kPart);
    decoder->next_out = reinterpret_cast<std::uint8_t*>(out.data() + size);
    decoder->avail_out = part;
    code = decoder.Run();
    size += part - decoder->avail_out;
    progress.Show(std::int64_t((bytes.size() - decoder->avail_in) / kMiB));
  }
  // The last growth left unused bytes at the end.
  out.resize(size);
  if (code != LZMA_STREAM_END) return StatusOf(code);
  if (out.size() > bytes_max) {
    return ResourceExhausted("its content is larger than {} bytes", bytes_max);
  }
  return out;
}

}  // namespace troop
