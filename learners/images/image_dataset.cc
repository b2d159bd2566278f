// Implements loading of images, their splits, and the settings of a run that follow from them.

#include "learners/images/image_dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "core/storage/crc32c.h"
#include "datasets/images/image_folder.h"
#include "datasets/images/image_source.h"
#include "datasets/shared_data.h"

namespace troop {
namespace {

// Moves a share of the images of *train to the empty set *to.
void SplitOff(double share, const TrainingConfig& config, HeldPart part, ImageData* data,
              ImageSet* to) {
  if (share == 0) return;
  const std::vector<bool> held =
      HeldOut(data->train.labels, share, std::uint64_t(config.seed), part);
  const auto elements = std::size_t(data->elements());
  ImageSet rest;
  // The order of the file remains in both parts.
  for (std::size_t i = 0; i < held.size(); ++i) {
    ImageSet* const set = held[i] ? to : &rest;
    set->labels.push_back(data->train.labels[i]);
    auto place = std::int64_t(i);
    // Files keep their pixels in memory, if they had them.
    if (!data->train.files.empty()) {
      ImageFile file = std::move(data->train.files[i]);
      place = file.place;
      if (place >= 0) file.place = std::int64_t(set->pixels.size() / elements);
      set->files.push_back(std::move(file));
    }
    if (place < 0) continue;
    const auto first = data->train.pixels.begin() + place * std::ptrdiff_t(elements);
    set->pixels.insert(set->pixels.end(), first, first + std::ptrdiff_t(elements));
  }
  data->train = std::move(rest);
}

// The test set comes first: it must not depend on data.validation_split. A set that exists excludes
// its split.
Status MakeSets(const TrainingConfig& config, ImageData* data) {
  const DataConfig& c = config.data;
  for (const auto& [key, share, set] :
       {std::tuple{"data.test_split", c.test_split, &data->test},
        std::tuple{"data.validation_split", c.validation_split, &data->validation}}) {
    if (share == 0 || set->size() == 0) continue;
    return InvalidArgument("{} is {}, but data.images: {} has {} images of this set; set 0", key,
                           share, c.images, set->size());
  }
  SplitOff(c.test_split, config, HeldPart::kTest, data, &data->test);
  SplitOff(c.validation_split, config, HeldPart::kValidation, data, &data->validation);
  if (data->train.size() == 0)
    return InvalidArgument("data.images: {} has no training images; lower the splits", c.images);
  if (config.evaluator_enabled && data->test.size() + data->validation.size() == 0) {
    return InvalidArgument(
        "data.images: {} has no test images; set data.validation_split to a share of the training "
        "images to evaluate on, or evaluator.enabled = false",
        c.images);
  }
  return Status::Ok();
}

// A checkpoint's outputs would mean other classes.
Status CheckClasses(const TrainingConfig& config, const ImageData& data) {
  const std::vector<std::string>& names = config.model.labels;
  if (names.empty() || names == data.classes) return Status::Ok();
  return InvalidArgument(
      "model.labels has {} classes, but data.images: {} has {}, or other names; omit the key",
      names.size(), config.data.images, data.classes.size());
}

// Learners with other data would train on different images for one index.
Status CheckIdentity(const TrainingConfig& config, const ImageData& data) {
  if (config.data_identity.empty()) return Status::Ok();
  const std::string here = IdentityOf(data);
  if (here == config.data_identity) return Status::Ok();
  return InvalidArgument(
      "data.images: {}: the data here ({}) are not the run's ({}); copy the folder from the "
      "machine where the run started",
      config.data.images, here, config.data_identity);
}

// Steps: files, splits, checks.
Result<std::shared_ptr<const ImageData>> ReadImageData(const TrainingConfig& config) {
  const DataConfig& c = config.data;
  const ImageFormat format{.channels = c.image_channels,
                           .resize = c.image_resize,
                           .height = c.image_height,
                           .width = c.image_width,
                           .cache_bytes = std::size_t(c.image_cache_mb) << 20,
                           .threads = int(std::max<std::int64_t>(1, c.image_threads))};
  Result<ImageData> read = ReadImages(c.images, format);
  if (!read.ok()) return read.status().WithContext("data.images");
  auto data = std::make_shared<ImageData>(*std::move(read));
  TROOP_RETURN_IF_ERROR(MakeSets(config, data.get()));
  TROOP_RETURN_IF_ERROR(CheckClasses(config, *data));
  // Both evaluations, during training and at the end, need a set.
  if (data->test.size() == 0) data->test = data->validation;
  if (data->validation.size() == 0) data->validation = data->test;
  TROOP_RETURN_IF_ERROR(CheckIdentity(config, *data));
  return std::shared_ptr<const ImageData>(std::move(data));
}

}  // namespace

// Roles of one process, and copies of an algorithm, have one copy of the data.
Result<std::shared_ptr<const ImageData>> LoadImageData(const TrainingConfig& config) {
  static SharedData<ImageData>& shared = *new SharedData<ImageData>();
  return shared.Get(DataKeyOf(config), [&config] { return ReadImageData(config); });
}

// Lengths separate the names. A set that stands in for another counts twice, in any process alike.
std::string IdentityOf(const ImageData& data) {
  std::uint32_t checksum = 0;
  for (const ImageSet* set : {&data.train, &data.validation, &data.test}) {
    // Files have checksums, which do not depend on the memory of this process.
    for (const ImageFile& file : set->files)
      checksum = Crc32c(std::as_bytes(std::span(&file.checksum, 1)), checksum);
    if (set->files.empty()) checksum = Crc32c(std::as_bytes(std::span(set->pixels)), checksum);
    checksum = Crc32c(std::as_bytes(std::span(set->labels)), checksum);
  }
  for (const std::string& name : data.classes) {
    const std::string text = fmt::format("{} {}", name.size(), name);
    checksum = Crc32c(std::as_bytes(std::span(text)), checksum);
  }
  return fmt::format(
      "{} images of {} x {} x {} to learn, {} held out, {} to test, {} classes, checksum {:08x}",
      data.train.size(), data.height, data.width, data.channels, data.validation.size(),
      data.test.size(), data.classes.size(), checksum);
}

// Crop, padding and lists of numbers are compared with the images here, where their size is known.
Result<ImageTransform> TransformOf(const TrainingConfig& config, const ImageData& data) {
  const DataConfig& c = config.data;
  ImageTransform transform{.padding = c.image_padding,
                           .crop_height = c.image_crop_height,
                           .crop_width = c.image_crop_width,
                           .flip = c.image_flip,
                           .color_noise = c.image_color_noise};
  transform.mean.assign(c.image_mean.begin(), c.image_mean.end());
  transform.deviation.assign(c.image_deviation.begin(), c.image_deviation.end());
  const Status fits = CheckTransform(transform, data.height, data.width, data.channels);
  if (!fits.ok()) return fits.WithContext("data.image_*");
  // A pass over all pixels, only where the noise uses it.
  if (transform.color_noise == 0) return transform;
  TROOP_ASSIGN_OR_RETURN(transform.components, ColorComponentsOf(data));
  return transform;
}

// For the same images, the settings of a config with these settings are the same: a resumed run has
// model.image_* set, and must still have images of that size.
Result<DataSettings> DeriveImageSettings(const TrainingConfig& config) {
  TrainingConfig resolved = config;
  resolved.data_identity.clear();  // fixed by the data present now
  TROOP_ASSIGN_OR_RETURN(const auto data, LoadImageData(resolved));
  TROOP_ASSIGN_OR_RETURN(const ImageTransform transform, TransformOf(config, *data));
  const auto [height, width] = TransformedSize(transform, data->height, data->width);
  DataSettings settings{.data_identity = IdentityOf(*data),
                        .vocab_size = config.model.vocab_size,
                        .labels = data->classes,
                        .image_height = height,
                        .image_width = width,
                        .image_channels = data->channels};
  // A resumed run, or a config that fixes the model's shape.
  const std::tuple<const char*, std::int64_t, std::int64_t> sizes[] = {
      {"model.image_height", config.model.image_height, height},
      {"model.image_width", config.model.image_width, width},
      {"model.image_channels", config.model.image_channels, data->channels}};
  for (const auto& [key, asked, there] : sizes) {
    if (asked == 0 || asked == there) continue;
    return InvalidArgument("{} is {}, but the images have {}; omit the key", key, asked, there);
  }
  SetRunLength(config, data->train.size(), &settings);
  return settings;
}

}  // namespace troop
