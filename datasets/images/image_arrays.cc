// Implements the readers of IDX and CIFAR files.

#include "datasets/images/image_arrays.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "core/storage/read_file.h"
#include "datasets/images/image_file.h"
#include "datasets/text/archive_reader.h"

namespace troop {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTrainImages = "train-images-idx3-ubyte";
constexpr std::int64_t kCifarSide = 32, kCifarChannels = 3;

// An IDX file: its sizes, and its elements as a part of the file.
struct IdxArray {
  std::vector<std::int64_t> sizes;
  std::string_view elements;
};

// Magic number: two zeros, the type (8: u8), the number of dimensions; then a size for each.
Result<IdxArray> ParseIdx(std::string_view bytes, std::size_t rank_min, std::size_t rank_max) {
  constexpr std::size_t kMagic = 4;
  if (bytes.size() < kMagic || bytes[0] != 0 || bytes[1] != 0 || bytes[2] != 8) {
    return DataLoss("it isn't an IDX file of bytes, which begins with 0, 0, 8");
  }
  const auto rank = std::size_t(static_cast<unsigned char>(bytes[3]));
  if (rank < rank_min || rank > rank_max) {
    return DataLoss("it has {} dimensions, must be {} to {}", rank, rank_min, rank_max);
  }
  if (bytes.size() < kMagic + 4 * rank) return DataLoss("it ends within its header");
  IdxArray array;
  std::size_t expected = 1;
  // The product stays below 2^64: it is compared with the file's size before each factor.
  for (std::size_t i = 0; i < rank; ++i) {
    std::uint32_t size = 0;
    for (std::size_t b = 0; b < 4; ++b) {
      size = size << 8 | static_cast<unsigned char>(bytes[kMagic + 4 * i + b]);
    }
    array.sizes.push_back(size);
    expected *= size;
    if (expected > kImageArrayBytesMax) {
      return ResourceExhausted("its sizes need more than {} bytes", kImageArrayBytesMax);
    }
  }
  array.elements = bytes.substr(kMagic + 4 * rank);
  if (array.elements.size() != expected) {
    return DataLoss("its sizes need {} bytes after the header, {} are there", expected,
                    array.elements.size());
  }
  return array;
}

// The first array decides the size of all images.
Status CheckSize(const IdxArray& images, ImageData* data) {
  const std::int64_t height = images.sizes[1], width = images.sizes[2];
  const std::int64_t channels = images.sizes.size() > 3 ? images.sizes[3] : 1;
  TROOP_RETURN_IF_ERROR(CheckImageSize(height, width));
  if (channels != 1 && channels != 3) return DataLoss("{} channels, must be 1 or 3", channels);
  if (data->elements() == 0) {
    data->height = height, data->width = width, data->channels = channels;
  }
  if (data->height == height && data->width == width && data->channels == channels) {
    return Status::Ok();
  }
  return InvalidArgument("its images are {} x {} x {}, those of the training set {} x {} x {}",
                         height, width, channels, data->height, data->width, data->channels);
}

// A file, or the file with .gz, unpacked.
Result<std::string> ReadUnpacked(const std::string& path) {
  std::error_code error;
  if (fs::exists(path, error)) return ReadFile(path, kImageArrayBytesMax);
  const std::string packed = path + ".gz";
  if (!fs::exists(packed, error)) return NotFound("{} and {} don't exist", path, packed);
  TROOP_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(packed, kImageArrayBytesMax));
  auto unpacked = Decompress(bytes, Compression::kGzip, kImageArrayBytesMax);
  if (!unpacked.ok()) return unpacked.status().WithContext(packed);
  return unpacked;
}

// Errors of access count as absence; reading reports them.
bool Exists(const std::string& folder, std::string_view name) {
  std::error_code error;
  return fs::exists(fs::path(folder) / name, error);
}

// One pair of files, "train" or "t10k".
Status ReadIdxPair(const std::string& folder, const std::string& prefix, ImageData* data,
                   ImageSet* set) {
  const std::string base = (fs::path(folder) / prefix).string();
  TROOP_ASSIGN_OR_RETURN(const std::string images, ReadUnpacked(base + "-images-idx3-ubyte"));
  TROOP_ASSIGN_OR_RETURN(const std::string labels, ReadUnpacked(base + "-labels-idx1-ubyte"));
  return AppendIdx(images, labels, data, set).WithContext(base + "-*-ubyte");
}

// Names of classes, one a line.
Result<std::vector<std::string>> ReadNames(const std::string& path) {
  constexpr std::size_t kNamesBytesMax = 1 << 20;
  TROOP_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kNamesBytesMax));
  std::vector<std::string> names;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string name = text.substr(begin, end - begin);
    // Some copies have Windows' line ends.
    while (!name.empty() && (name.back() == '\r' || name.back() == ' ')) name.pop_back();
    if (!name.empty()) names.push_back(std::move(name));
    begin = end + 1;
  }
  if (names.empty()) return DataLoss("{}: it has no names of classes", path);
  return names;
}

}  // namespace

Status AppendIdx(std::string_view images, std::string_view labels, ImageData* data, ImageSet* set) {
  auto pixels = ParseIdx(images, 3, 4);
  if (!pixels.ok()) return pixels.status().WithContext("images");
  auto classes = ParseIdx(labels, 1, 1);
  if (!classes.ok()) return classes.status().WithContext("labels");
  if (pixels->sizes[0] != classes->sizes[0]) {
    return DataLoss("{} images, but {} labels", pixels->sizes[0], classes->sizes[0]);
  }
  TROOP_RETURN_IF_ERROR(CheckSize(*pixels, data));
  set->pixels.insert(set->pixels.end(), pixels->elements.begin(), pixels->elements.end());
  for (const char label : classes->elements) {
    const int value = static_cast<unsigned char>(label);
    set->labels.push_back(value);
    // IDX has no names: the labels themselves are used.
    while (std::ssize(data->classes) <= value) {
      data->classes.push_back(fmt::format("{}", data->classes.size()));
    }
  }
  return Status::Ok();
}

// The planes of a record become channels of pixels.
Status AppendCifar(std::string_view bytes, int label_bytes, ImageData* data, ImageSet* set) {
  constexpr std::size_t kPlane = kCifarSide * kCifarSide;
  const std::size_t record = std::size_t(label_bytes) + kCifarChannels * kPlane;
  if (bytes.empty() || bytes.size() % record != 0) {
    return DataLoss("its size is {}, must be a multiple of {} bytes, a record's size", bytes.size(),
                    record);
  }
  data->height = data->width = kCifarSide, data->channels = kCifarChannels;
  set->pixels.reserve(set->pixels.size() + bytes.size());
  for (; !bytes.empty(); bytes.remove_prefix(record)) {
    const int label = static_cast<unsigned char>(bytes[std::size_t(label_bytes) - 1]);
    if (label >= std::ssize(data->classes)) {
      return DataLoss("record {} has the label {}, but there are {} classes", set->labels.size(),
                      label, data->classes.size());
    }
    set->labels.push_back(label);
    const std::string_view planes = bytes.substr(std::size_t(label_bytes));
    for (std::size_t i = 0; i < kPlane; ++i) {
      for (std::size_t c = 0; c < kCifarChannels; ++c) {
        set->pixels.push_back(std::uint8_t(planes[c * kPlane + i]));
      }
    }
  }
  return Status::Ok();
}

bool IsIdxFolder(const std::string& folder) {
  return Exists(folder, kTrainImages) || Exists(folder, std::string(kTrainImages) + ".gz");
}
bool IsCifarFolder(const std::string& folder) {
  return Exists(folder, "data_batch_1.bin") || Exists(folder, "fine_label_names.txt");
}

// The test pair is optional, but not one half of it.
Result<ImageData> ReadIdxFolder(const std::string& folder) {
  ImageData data;
  TROOP_RETURN_IF_ERROR(ReadIdxPair(folder, "train", &data, &data.train));
  bool test = false;
  for (const char* name : {"t10k-images-idx3-ubyte", "t10k-images-idx3-ubyte.gz",
                           "t10k-labels-idx1-ubyte", "t10k-labels-idx1-ubyte.gz"}) {
    test = test || Exists(folder, name);
  }
  if (test) TROOP_RETURN_IF_ERROR(ReadIdxPair(folder, "t10k", &data, &data.test));
  return data;
}

Result<ImageData> ReadCifarFolder(const std::string& folder) {
  const fs::path root(folder);
  // CIFAR-100 has no numbered parts.
  const bool hundred = !Exists(folder, "data_batch_1.bin");
  ImageData data;
  TROOP_ASSIGN_OR_RETURN(
      data.classes,
      ReadNames((root / (hundred ? "fine_label_names.txt" : "batches.meta.txt")).string()));
  const auto append = [&](const std::string& name, ImageSet* set) -> Status {
    const std::string path = (root / name).string();
    TROOP_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path, kImageArrayBytesMax));
    return AppendCifar(bytes, hundred ? 2 : 1, &data, set).WithContext(path);
  };
  if (hundred) {
    TROOP_RETURN_IF_ERROR(append("train.bin", &data.train));
    TROOP_RETURN_IF_ERROR(append("test.bin", &data.test));
    return data;
  }
  // A missing part would be a smaller training set without notice.
  for (int part = 1; part <= 5; ++part) {
    TROOP_RETURN_IF_ERROR(append(fmt::format("data_batch_{}.bin", part), &data.train));
  }
  TROOP_RETURN_IF_ERROR(append("test_batch.bin", &data.test));
  return data;
}

}  // namespace troop
