// Implements EncodeGif: palette and changed rectangles; giflib compresses and writes the format.
#include "core/graphics/gif.h"

#include <gif_lib.h>

#include <algorithm>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/check.h"

namespace troop {
namespace {

constexpr int kPaletteSize = 256;  // the same for every animation: simple, and only 768 bytes

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
  // Returns the color table; unused entries are black.
  std::vector<GifColorType> Table() const {
    std::vector<GifColorType> table(kPaletteSize);
    for (const auto& [color, index] : exact_) {
      table[index] = {GifByteType(color >> 16), GifByteType(color >> 8), GifByteType(color)};
    }
    for (std::uint32_t i = 0; exact_.empty() && i < kRed * kGreen * kBlue; ++i) {
      const auto channel = [](std::uint32_t level, std::uint32_t levels) {
        return GifByteType(level * 255 / (levels - 1));
      };
      table[i] = {channel(i / (kGreen * kBlue), kRed), channel(i / kBlue % kGreen, kGreen),
                  channel(i % kBlue, kBlue)};
    }
    return table;
  }

 private:
  static constexpr std::uint32_t kRed = 6, kGreen = 7,
                                 kBlue = 6;  // levels; human vision resolves green best
  std::unordered_map<std::uint32_t, std::uint8_t> exact_;  // empty if the cube is used
};

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

// Writes a GIF89a with one palette into a string. Writing to memory cannot fail, so an error of the
// library is a broken invariant.
class GifWriter {
 public:
  GifWriter(int width, int height, const std::vector<GifColorType>& table) {
    int error = 0;
    gif_ = EGifOpen(this, &GifWriter::Append, &error);
    TROOP_CHECK(gif_ != nullptr, "giflib: error {}", error);
    EGifSetGifVersion(gif_, true);  // GIF89a, for delays and repetition
    const std::unique_ptr<ColorMapObject, decltype(&GifFreeMapObject)> map(
        GifMakeMapObject(kPaletteSize, table.data()), &GifFreeMapObject);
    constexpr int kColorBits = 8, kBackground = 0;
    Check(EGifPutScreenDesc(gif_, width, height, kColorBits, kBackground, map.get()));
    RepeatForever();
  }
  GifWriter(const GifWriter&) = delete;
  GifWriter& operator=(const GifWriter&) = delete;
  ~GifWriter() { TROOP_CHECK(gif_ == nullptr, "an unfinished animation"); }

  // Writes the box of a frame. The pixels around it stay those of the frame before.
  void PutFrame(const Picture& frame, const Box& box, const Palette& palette, int delay_cs) {
    const GraphicsControlBlock control{.DisposalMode = DISPOSE_DO_NOT,
                                       .UserInputFlag = false,
                                       .DelayTime = delay_cs,
                                       .TransparentColor = NO_TRANSPARENT_COLOR};
    GifByteType packed[4];
    const auto size = int(EGifGCBToExtension(&control, packed));
    Check(EGifPutExtension(gif_, GRAPHICS_EXT_FUNC_CODE, size, packed));
    constexpr bool kInterlaced = false;
    ColorMapObject* const common = nullptr;  // the palette of the whole animation
    Check(EGifPutImageDesc(gif_, box.left, box.top, box.width, box.height, kInterlaced, common));
    std::vector<GifPixelType> row(std::size_t(box.width));
    for (int y = box.top; y < box.top + box.height; ++y) {
      std::size_t pixel = std::size_t(y) * std::size_t(frame.width) + std::size_t(box.left);
      for (GifPixelType& index : row) index = palette.Index(ColorAt(frame, pixel++));
      Check(EGifPutLine(gif_, row.data(), box.width));
    }
  }
  // Ends the file and returns its bytes. Called once, after the last frame.
  std::string Finish() {
    int error = 0;
    const int closed = EGifCloseFile(std::exchange(gif_, nullptr), &error);
    TROOP_CHECK(closed == GIF_OK, "giflib: error {}", error);
    return std::move(out_);
  }

 private:
  // Callback of the library for written bytes.
  static int Append(GifFileType* gif, const GifByteType* bytes, int size) {
    auto* const writer = static_cast<GifWriter*>(gif->UserData);
    writer->out_.append(reinterpret_cast<const char*>(bytes), std::size_t(size));
    return size;
  }
  void Check(int status) const { TROOP_CHECK(status == GIF_OK, "giflib: error {}", gif_->Error); }
  // Writes the application extension NETSCAPE2.0 with zero repetitions, which means endless ones.
  void RepeatForever() {
    Check(EGifPutExtensionLeader(gif_, APPLICATION_EXT_FUNC_CODE));
    Check(EGifPutExtensionBlock(gif_, 11, "NETSCAPE2.0"));
    Check(EGifPutExtensionBlock(gif_, 3, "\x01\0\0"));
    Check(EGifPutExtensionTrailer(gif_));
  }

  std::string out_;
  GifFileType* gif_ = nullptr;  // the library's state; nullptr after Finish
};

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
  const Palette palette(frames);
  GifWriter writer(width, height, palette.Table());
  for (std::size_t i = 0; i < frames.size(); ++i) {
    const Box whole{0, 0, width, height};
    writer.PutFrame(frames[i], i == 0 ? whole : Changed(frames[i - 1], frames[i]), palette,
                    std::clamp(delay_cs, 0, 65535));
  }
  return Buffer::Copy(writer.Finish());
}

}  // namespace troop
