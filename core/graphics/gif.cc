// Implements EncodeGif: palette, changed rectangles, LZW compression and the GIF89a container.
#include "core/graphics/gif.h"

#include <algorithm>
#include <array>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/base/check.h"

namespace troop {
namespace {

constexpr int kPaletteBits = 8;  // every table has 256 colors: simple, and only 768 bytes
constexpr std::size_t kPaletteSize = 1 << kPaletteBits;

// GIF stores 16-bit numbers with the low byte first.
void PutU16(int value, std::string* out) {
  out->push_back(char(value & 0xFF));
  out->push_back(char(value >> 8 & 0xFF));
}

// Color of a pixel as 0xRRGGBB.
std::uint32_t ColorAt(const Picture& picture, std::size_t pixel) {
  const std::uint8_t* p = &picture.rgb[pixel * 3];
  return std::uint32_t(p[0]) << 16 | std::uint32_t(p[1]) << 8 | p[2];
}

// The palette of the animation: the exact colors if they fit, else a fixed color cube.
class Palette {
 public:
  explicit Palette(std::span<const Picture> frames) {
    for (const Picture& frame : frames) {
      for (std::size_t i = 0; i < frame.rgb.size() / 3; ++i) {
        const std::uint32_t color = ColorAt(frame, i);
        const auto [it, fresh] = exact_.try_emplace(color, std::uint8_t(exact_.size()));
        // Too many colors: use the cube.
        if (fresh && exact_.size() > kPaletteSize) {
          exact_.clear();
          return;
        }
      }
    }
  }
  // Returns the palette index of a color; in the cube, the nearest level of each channel.
  std::uint8_t Index(std::uint32_t color) const {
    if (!exact_.empty()) return exact_.at(color);
    const auto level = [](std::uint32_t channel, std::uint32_t levels) {
      return ((channel & 0xFF) * (levels - 1) + 127) / 255;
    };
    return std::uint8_t((level(color >> 16, kRed) * kGreen + level(color >> 8, kGreen)) * kBlue +
                        level(color, kBlue));
  }
  // Returns the color table: 256 entries of red, green and blue.
  std::string Table() const {
    std::string table(kPaletteSize * 3, '\0');
    const auto set = [&](std::size_t index, std::uint32_t color) {
      for (std::size_t c = 0; c < 3; ++c) table[index * 3 + c] = char(color >> (16 - 8 * c) & 0xFF);
    };
    for (const auto& [color, index] : exact_) set(index, color);
    for (std::uint32_t i = 0; exact_.empty() && i < kRed * kGreen * kBlue; ++i) {
      const auto channel = [](std::uint32_t level, std::uint32_t levels) {
        return level * 255 / (levels - 1);
      };
      set(i, channel(i / (kGreen * kBlue), kRed) << 16 | channel(i / kBlue % kGreen, kGreen) << 8 |
                 channel(i % kBlue, kBlue));
    }
    return table;
  }

 private:
  static constexpr std::uint32_t kRed = 6, kGreen = 7,
                                 kBlue = 6;  // levels; human vision resolves green best
  std::unordered_map<std::uint32_t, std::uint8_t> exact_;  // empty if the cube is used
};

// Writes codes of varying width, lowest bit first, in blocks of at most 255 bytes.
class CodeStream {
 public:
  explicit CodeStream(std::string* out) : out_(out) {}
  // At most 12 bits are added to at most 7 pending ones.
  void Put(int code, int bits) {
    pending_ |= std::uint32_t(code) << pending_bits_;
    for (pending_bits_ += bits; pending_bits_ >= 8; pending_bits_ -= 8, pending_ >>= 8) {
      PutByte(char(pending_ & 0xFF));
    }
  }
  // Writes the remaining bits and an empty block.
  void Finish() {
    if (pending_bits_ > 0) PutByte(char(pending_ & 0xFF));
    Flush();
    out_->push_back(0);  // end of the blocks
  }

 private:
  // Blocks have a length byte, so 255 bytes are the maximum.
  void PutByte(char byte) {
    block_.push_back(byte);
    if (block_.size() == 255) Flush();
  }
  void Flush() {
    if (block_.empty()) return;
    out_->push_back(char(block_.size()));
    out_->append(block_);
    block_.clear();
  }
  std::string* const out_;
  std::string block_;
  std::uint32_t pending_ = 0;
  int pending_bits_ = 0;
};

// LZW as used by GIF (Welch 1984): codes grow from 9 to 12 bits, and a full table is cleared.
void PutLzw(std::span<const std::uint8_t> pixels, std::string* out) {
  constexpr int kClear = kPaletteSize, kEnd = kClear + 1, kFirst = kClear + 2, kCodesMax = 4096;
  out->push_back(char(kPaletteBits));
  CodeStream stream(out);
  // next[code][color]: the code of that string extended by that color; 0: none yet.
  std::vector<std::array<std::uint16_t, kPaletteSize>> next(kCodesMax);
  int codes = kFirst, bits = kPaletteBits + 1;
  stream.Put(kClear, bits);
  // `text` is the code of the longest known string that ends at the current pixel.
  int text = pixels[0];
  for (const std::uint8_t color : pixels.subspan(1)) {
    std::uint16_t& longer = next[std::size_t(text)][color];
    if (longer != 0) {
      text = longer;
      continue;
    }
    stream.Put(text, bits);
    // Extends the table, or clears it when it is full.
    if (codes < kCodesMax) {
      if (codes == 1 << bits) ++bits;  // the decoder's table is one entry behind
      longer = std::uint16_t(codes++);
    } else {
      stream.Put(kClear, bits);
      std::ranges::fill(next, std::array<std::uint16_t, kPaletteSize>{});
      codes = kFirst;
      bits = kPaletteBits + 1;
    }
    text = color;
  }
  stream.Put(text, bits);
  if (codes < kCodesMax && codes == 1 << bits) ++bits;
  stream.Put(kEnd, bits);
  stream.Finish();
}

// A rectangle of pixels; a frame must have at least one.
struct Box {
  int left = 0, top = 0, width = 1, height = 1;
};

// Returns the smallest box that contains all changed pixels; one pixel if none changed.
Box Changed(const Picture& before, const Picture& now) {
  int left = now.width, top = now.height, right = -1, bottom = -1;
  for (int y = 0; y < now.height; ++y) {
    for (int x = 0; x < now.width; ++x) {
      const std::size_t pixel = std::size_t(y) * std::size_t(now.width) + std::size_t(x);
      if (ColorAt(before, pixel) == ColorAt(now, pixel)) continue;
      left = std::min(left, x);
      right = std::max(right, x);
      top = std::min(top, y);
      bottom = std::max(bottom, y);
    }
  }
  if (right < 0) return {};
  return {left, top, right - left + 1, bottom - top + 1};
}

// Writes one frame: graphic control extension, image descriptor, and compressed pixels of the box.
void PutFrame(const Picture& frame, const Box& box, const Palette& palette, int delay_cs,
              std::string* out) {
  out->append("\x21\xF9\x04\x04",
              4);  // graphic control extension: keep this frame under the next one
  PutU16(delay_cs, out);
  out->append("\0\0", 2);  // no transparent color; end
  out->push_back(',');
  // Image descriptor: position and size of the box.
  for (const int value : {box.left, box.top, box.width, box.height}) PutU16(value, out);
  out->push_back(0);  // common palette, not interlaced
  std::vector<std::uint8_t> pixels;
  pixels.reserve(std::size_t(box.width) * std::size_t(box.height));
  for (int y = box.top; y < box.top + box.height; ++y) {
    for (int x = box.left; x < box.left + box.width; ++x) {
      const std::size_t pixel = std::size_t(y) * std::size_t(frame.width) + std::size_t(x);
      pixels.push_back(palette.Index(ColorAt(frame, pixel)));
    }
  }
  PutLzw(pixels, out);
}

}  // namespace

// Later frames contain only the changed rectangle, which makes most animations much smaller.
Buffer EncodeGif(std::span<const Picture> frames, int delay_cs) {
  TROOP_CHECK(!frames.empty(), "an animation without frames");
  const int width = frames[0].width, height = frames[0].height;
  TROOP_CHECK(width > 0 && width <= 65535 && height > 0 && height <= 65535, "frames of {} x {}",
              width, height);
  for (const Picture& frame : frames) {
    TROOP_CHECK(frame.width == width && frame.height == height &&
                    frame.rgb.size() == std::size_t(width) * std::size_t(height) * 3,
                "a frame of {} x {} with {} bytes after one of {} x {}", frame.width, frame.height,
                frame.rgb.size(), width, height);
  }
  // Header, common palette, loop extension, frames, trailer.
  const Palette palette(frames);
  std::string out = "GIF89a";
  PutU16(width, &out);
  PutU16(height, &out);
  out.append("\xF7\0\0", 3);  // common palette of 256 colors; background 0; square pixels
  out += palette.Table();
  out.append("\x21\xFF\x0BNETSCAPE2.0\x03\x01\0\0\0", 19);  // repeat forever
  for (std::size_t i = 0; i < frames.size(); ++i) {
    const Box whole{0, 0, width, height};
    PutFrame(frames[i], i == 0 ? whole : Changed(frames[i - 1], frames[i]), palette,
             std::clamp(delay_cs, 0, 65535), &out);
  }
  out.push_back(';');
  return Buffer::Copy(out);
}

}  // namespace troop
