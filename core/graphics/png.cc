// Implements EncodePng with zlib.
#include "core/graphics/png.h"

#include <zlib.h>

#include <string>

#include "core/base/check.h"

namespace troop {
namespace {

// All numbers of PNG are big-endian.
void PutBigEndian(std::uint32_t value, std::string* out) {
  for (int shift = 24; shift >= 0; shift -= 8) out->push_back(char(value >> shift & 0xFF));
}

// Writes a chunk: length of the data, type, data, CRC-32 of type and data.
void PutChunk(std::string_view type, std::string_view data, std::string* out) {
  PutBigEndian(std::uint32_t(data.size()), out);
  const std::size_t begin = out->size();
  out->append(type).append(data);
  const auto* bytes = reinterpret_cast<const Bytef*>(out->data() + begin);
  PutBigEndian(std::uint32_t(crc32(0, bytes, uInt(out->size() - begin))), out);
}

// Level 6 is zlib's default.
std::string Deflate(std::string_view bytes) {
  uLongf size = compressBound(uLong(bytes.size()));
  std::string out(size, '\0');
  const int code = compress2(reinterpret_cast<Bytef*>(out.data()), &size,
                             reinterpret_cast<const Bytef*>(bytes.data()), uLong(bytes.size()), 6);
  TROOP_CHECK(code == Z_OK, "zlib can't compress {} bytes: code {}", bytes.size(), code);
  out.resize(size);
  return out;
}

}  // namespace

// Writes the three chunks that a true-color image must have (PNG specification, section 5.6).
Buffer EncodePng(const Picture& picture) {
  const std::size_t row = std::size_t(picture.width) * 3;
  TROOP_CHECK(picture.width > 0 && picture.height > 0 &&
                  picture.rgb.size() == row * std::size_t(picture.height),
              "an image of {} x {} with {} bytes", picture.width, picture.height,
              picture.rgb.size());
  std::string header;
  PutBigEndian(std::uint32_t(picture.width), &header);
  PutBigEndian(std::uint32_t(picture.height), &header);
  header.append(
      {8, 2, 0, 0, 0});  // bits per channel; RGB; deflate; standard filters; not interlaced

  std::string rows;
  rows.reserve((row + 1) * std::size_t(picture.height));
  for (std::size_t begin = 0; begin < picture.rgb.size(); begin += row) {
    // Filters would help photographs; plots and boards compress well without them.
    rows.push_back(0);  // no filter
    rows.append(reinterpret_cast<const char*>(picture.rgb.data() + begin), row);
  }
  std::string file = "\x89PNG\r\n\x1a\n";
  PutChunk("IHDR", header, &file);
  PutChunk("IDAT", Deflate(rows), &file);
  PutChunk("IEND", {}, &file);
  return Buffer::Copy(file);
}

}  // namespace troop
