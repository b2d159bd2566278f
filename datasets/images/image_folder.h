#pragma once

#include <string>

#include "core/base/status.h"
#include "datasets/images/image.h"
#include "datasets/images/image_resize.h"

namespace troop {

// How images are brought to one form.
struct ImageFormat {
  std::int64_t channels = 0;  // 1 or 3; 0: 3 if any file of the folder has colors, else 1
  ResizeRule resize = ResizeRule::kNone;
  std::int64_t height = 0;  // with a resize rule
  std::int64_t width = 0;
  std::size_t cache_bytes = std::size_t{16} << 30;  // bound of the pixels kept in memory
  int threads = 1;                                  // that decode
};

// Reads a folder in which each class has its own folder of PNG and JPEG files: SET/CLASS/x.png with
// the sets train, validation and test, or CLASS/x.png, which are training images. Classes are
// sorted by name, images by path. A damaged or truncated file is named in the log, skipped and
// counted (ImageData::skipped). Files of other types are ignored. Every file is decoded once; the
// first ones stay in memory, the others are decoded again when they are used (image_source.h), so
// that each epoch decodes the same share of them. Blocks on the disk. O(pixels).
//
// Errors: kNotFound: no such folder; kInvalidArgument: no class, a class folder without images, a
// class without readable images, a class of another set that the training set lacks, or images of
// several sizes without a resize rule.
Result<ImageData> ReadImageFolder(const std::string& folder, const ImageFormat& format);

// Reads a data set of any supported kind: IDX, CIFAR-10 or CIFAR-100 (image_arrays.h), else a
// folder of classes. IDX and CIFAR images are converted to the format, too. Errors: those of the
// readers.
Result<ImageData> ReadImages(const std::string& folder, const ImageFormat& format);

}  // namespace troop
