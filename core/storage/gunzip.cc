// Decompresses gzip with zlib, which verifies the checksum of each part, unlike libarchive.

#include "core/storage/gunzip.h"

#include <zlib.h>

#include <algorithm>
#include <memory>

namespace troop {
namespace {

// Size of the pieces of input and output.
constexpr std::size_t kMiB = std::size_t{1} << 20;

}  // namespace

Result<std::string> Gunzip(std::string_view bytes, std::size_t bytes_max) {
  // The library allocates its window of 32 KiB here, and frees it in any case.
  z_stream stream{};
  constexpr int kGzipOnly = 16 + MAX_WBITS;
  if (inflateInit2(&stream, kGzipOnly) != Z_OK) return ResourceExhausted("not enough memory");
  const std::unique_ptr<z_stream, void (*)(z_stream*)> closer(&stream,
                                                              [](z_stream* s) { inflateEnd(s); });
  std::string out, block(kMiB, '\0');
  std::string_view rest = bytes;
  // One part per turn of the outer loop; an empty file is not a part.
  do {
    int code = Z_OK;
    while (code == Z_OK) {
      // avail_in has 32 bits.
      const std::size_t given = std::min(rest.size(), kMiB);
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(rest.data()));
      stream.avail_in = uInt(given);
      stream.next_out = reinterpret_cast<Bytef*>(block.data());
      stream.avail_out = uInt(block.size());
      code = inflate(&stream, Z_NO_FLUSH);
      rest.remove_prefix(given - stream.avail_in);
      // The limit holds for all parts together; a small file can expand a thousand times.
      const std::size_t made = block.size() - stream.avail_out;
      if (made > bytes_max - out.size()) {
        return ResourceExhausted("its content is larger than {} bytes", bytes_max);
      }
      out.append(block, 0, made);
    }
    // Without more input zlib reports a full buffer: the file was cut off.
    if (code != Z_STREAM_END) {
      const bool cut = code == Z_BUF_ERROR && rest.empty();
      return DataLoss("gzip, byte {}: {}", bytes.size() - rest.size(),
                      cut                     ? "its end is missing"
                      : stream.msg != nullptr ? stream.msg
                                              : "damaged");
    }
    inflateReset(&stream);
  } while (!rest.empty());
  return out;
}

}  // namespace troop
