// Implements access to the pixels of images, whether they are in memory or in files.

#include "datasets/images/image_source.h"

#include <utility>

#include "core/storage/crc32c.h"
#include "core/storage/read_file.h"
#include "datasets/images/image_file.h"
#include "datasets/images/image_resize.h"

namespace troop {

// A damaged file is not an error: the caller decides whether the image is left out or the run ends.
// Images without a rule of resizing keep their size, which the caller compares with the others.
Result<Image> DecodeFile(const std::string& path, const ImageForm& form, std::string* damage) {
  TROOP_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path, kImageFileBytesMax));
  Result<Image> decoded = DecodeImage(bytes);
  if (!decoded.ok()) {
    *damage = decoded.status().message();
    return Image{};
  }
  Image image = ConvertChannels(*std::move(decoded), form.channels);
  if (form.resize == ResizeRule::kNone) return image;
  return FitImage(std::move(image), form.resize, form.height, form.width);
}

// Arrays have no files. A changed file would silently give other batches than before.
Result<std::span<const std::uint8_t>> PixelsOf(const ImageData& data, const ImageSet& set,
                                               std::int64_t i, std::vector<std::uint8_t>* decoded) {
  const auto elements = std::size_t(data.elements());
  // Images that fit the cache are in the array, the others are decoded at each use.
  const std::int64_t place = set.files.empty() ? i : set.files[std::size_t(i)].place;
  if (place >= 0) return std::span(set.pixels).subspan(std::size_t(place) * elements, elements);
  const ImageFile& file = set.files[std::size_t(i)];
  std::string damage;
  const ImageForm form{data.channels, data.resize, data.height, data.width};
  TROOP_ASSIGN_OR_RETURN(Image image, DecodeFile(file.path, form, &damage));
  if (!damage.empty() || Crc32c(std::as_bytes(std::span(image.pixels))) != file.checksum) {
    return DataLoss("{}: the file has changed since the start{}{}; restore it, or start again",
                    file.path, damage.empty() ? "" : ": ", damage);
  }
  *decoded = std::move(image.pixels);
  return std::span<const std::uint8_t>(*decoded);
}

// One image at a time, so that the memory is that of one file.
Result<ColorComponents> ColorComponentsOf(const ImageData& data) {
  ColorSums sums;
  std::vector<std::uint8_t> decoded;
  for (std::int64_t i = 0; i < data.train.size(); ++i) {
    TROOP_ASSIGN_OR_RETURN(const auto pixels, PixelsOf(data, data.train, i, &decoded));
    sums.Add(pixels);
  }
  return sums.Components();
}

}  // namespace troop
