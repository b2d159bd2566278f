// Implements the reader of image folders: classes follow from the folders' names.

#include "datasets/images/image_folder.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/log.h"
#include "core/base/phase_progress.h"
#include "core/storage/crc32c.h"
#include "core/storage/list_folder.h"
#include "core/storage/read_file.h"
#include "datasets/images/image_arrays.h"
#include "datasets/images/image_file.h"
#include "datasets/images/image_source.h"

namespace troop {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 3> kSets = {"train", "validation", "test"};

// A file whose class follows from its folder.
struct LabeledFile {
  std::string path;
  std::int32_t label = 0;
};
// The files of one set.
struct FileList {
  std::vector<LabeledFile> files;
  ImageSet* to = nullptr;
};

// False also for what cannot be accessed; listing it reports why.
bool IsFolder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

// Folders within a folder, sorted. Hidden ones, such as .git, are not classes.
Result<std::vector<fs::path>> FoldersOf(const std::string& folder) {
  TROOP_ASSIGN_OR_RETURN(std::vector<fs::path> entries, ListFolder(folder));
  std::erase_if(entries, [](const fs::path& entry) {
    return entry.filename().string().starts_with(".") || !IsFolder(entry);
  });
  return entries;
}

// Lists one set. `learn`: its folders define the classes; otherwise they must be known.
Status ListSet(const std::string& folder, bool learn, ImageData* data, FileList* list) {
  TROOP_ASSIGN_OR_RETURN(const std::vector<fs::path> classes, FoldersOf(folder));
  for (const fs::path& path : classes) {
    const std::string name = path.filename().string();
    if (learn) data->classes.push_back(name);
    const auto found = std::ranges::find(data->classes, name);
    if (found == data->classes.end()) {
      return InvalidArgument("{}: the training set has no class {:?}", folder, name);
    }
    TROOP_ASSIGN_OR_RETURN(const std::vector<fs::path> entries, ListFolder(path.string()));
    const std::size_t before = list->files.size();
    for (const fs::path& entry : entries) {
      if (!IsImageFile(entry.filename().string())) continue;
      list->files.push_back({entry.string(), std::int32_t(found - data->classes.begin())});
    }
    // Probably a wrong path or an interrupted copy.
    if (list->files.size() == before) {
      return InvalidArgument(
          "{}: the folder of a class has no images (.png, .jpg, .jpeg); add some, or remove it",
          path.string());
    }
  }
  return Status::Ok();
}

// Lists all sets. The training set comes first, since it defines the classes.
Result<std::vector<FileList>> ListAll(const std::string& folder, ImageData* data) {
  std::vector<FileList> lists;
  for (const std::string_view set : kSets) {
    const fs::path path = fs::path(folder) / set;
    if (!IsFolder(path)) continue;
    if (lists.empty() && set != kSets[0]) {
      return InvalidArgument("{}: it has the set {}, but no folder train", folder, set);
    }
    ImageSet* const to = set == "test"         ? &data->test
                         : set == "validation" ? &data->validation
                                               : &data->train;
    // Sets that do not exist stay empty.
    lists.push_back({.to = to});
    TROOP_RETURN_IF_ERROR(ListSet(path.string(), set == kSets[0], data, &lists.back()));
  }
  // Without sets, all classes are training images.
  if (lists.empty()) {
    lists.push_back({.to = &data->train});
    TROOP_RETURN_IF_ERROR(ListSet(folder, true, data, &lists.back()));
  }
  if (data->classes.empty()) {
    return InvalidArgument(
        "{}: it has no folders of classes; expected SET/CLASS/*.png or CLASS/*.png, with the sets "
        "train, validation and test",
        folder);
  }
  return lists;
}

// Files that are decoded at a time, which bounds the memory.
constexpr std::size_t kFilesOfRun = 64;

// A decoded file; damage: the reason why there is no image.
struct DecodedFile {
  Result<Image> image = Image{};
  std::string damage;
};

// Decodes files in order, on threads: thread t has the files t, t + threads, ...
std::vector<DecodedFile> DecodeRun(std::span<const LabeledFile> files, const ImageForm& form,
                                   int threads) {
  std::vector<DecodedFile> decoded(files.size());
  const std::size_t step = std::max<std::size_t>(1, std::size_t(threads));
  const auto work = [&](std::size_t first) {
    for (std::size_t i = first; i < files.size(); i += step)
      decoded[i].image = DecodeFile(files[i].path, form, &decoded[i].damage);
  };
  // The caller is one of the threads.
  std::vector<std::thread> others;
  for (std::size_t t = 1; t < std::min(step, files.size()); ++t) others.emplace_back(work, t);
  work(0);
  for (std::thread& other : others) other.join();
  return decoded;
}

// Decodes the files of a data set into its sets, one after the other.
class FolderReader {
 public:
  FolderReader(const ImageFormat& format, ImageData* data)
      : format_(format),
        form_{data->channels, format.resize, format.height, format.width},
        data_(data) {
    data_->resize = format.resize;
  }

  // Decodes one set. Damaged files are left out.
  Status Read(const FileList& list, PhaseProgress* progress, std::int64_t* done) {
    std::vector<std::int64_t> readable(data_->classes.size());
    const std::span<const LabeledFile> files(list.files);
    for (std::size_t first = 0; first < files.size(); first += kFilesOfRun) {
      const auto run = files.subspan(first, std::min(kFilesOfRun, files.size() - first));
      std::vector<DecodedFile> decoded = DecodeRun(run, form_, format_.threads);
      progress->Show(*done += std::ssize(run));
      for (std::size_t i = 0; i < run.size(); ++i) {
        TROOP_RETURN_IF_ERROR(decoded[i].image.status());
        if (!decoded[i].damage.empty()) {
          LogWarning("images: {} is skipped: {}", run[i].path, decoded[i].damage);
          ++data_->skipped;
          continue;
        }
        TROOP_RETURN_IF_ERROR(Add(run[i], *decoded[i].image, list.to));
        ++readable[std::size_t(run[i].label)];
      }
    }
    // Classes with files, all of which are damaged, would silently never be trained.
    for (const LabeledFile& file : list.files) {
      if (readable[std::size_t(file.label)] > 0) continue;
      return InvalidArgument("{}: no image of its class {:?} can be read", file.path,
                             data_->classes[std::size_t(file.label)]);
    }
    return Status::Ok();
  }

 private:
  // Appends an image to a set, with its pixels if they fit.
  Status Add(const LabeledFile& file, const Image& image, ImageSet* to) {
    TROOP_RETURN_IF_ERROR(Check(file.path, image));
    const std::span<const std::uint8_t> pixels(image.pixels);
    const bool fits = bytes_ + pixels.size() <= format_.cache_bytes;
    const auto held = std::int64_t(to->pixels.size() / pixels.size());
    to->files.push_back({file.path, Crc32c(std::as_bytes(pixels)), fits ? held : -1});
    to->labels.push_back(file.label);
    if (!fits) return Status::Ok();
    bytes_ += pixels.size();
    to->pixels.insert(to->pixels.end(), pixels.begin(), pixels.end());
    return Status::Ok();
  }

  // The first image decides the size.
  Status Check(const std::string& path, const Image& image) {
    if (first_.empty()) {
      first_ = path;
      data_->height = image.height, data_->width = image.width;
    }
    if (image.height == data_->height && image.width == data_->width) return Status::Ok();
    return InvalidArgument(
        "{} is {} x {}, but {} is {} x {}; images of several sizes need a resize rule", path,
        image.height, image.width, first_, data_->height, data_->width);
  }

  const ImageFormat& format_;
  const ImageForm form_;
  ImageData* const data_;
  std::string first_;      // path of the first image, for the message of another size
  std::size_t bytes_ = 0;  // in memory so far
};

// Number of channels: given, or 3 if any file has colors. Damaged files do not count.
Result<std::int64_t> ChannelsOf(const ImageFormat& format, const std::vector<FileList>& lists) {
  if (format.channels != 0) return format.channels;
  for (const FileList& list : lists) {
    for (const LabeledFile& file : list.files) {
      TROOP_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(file.path, kImageFileBytesMax));
      const auto image = DecodeImage(bytes);
      if (image.ok() && image->channels == 3) return 3;
    }
  }
  return 1;
}

// Converts the images of an array data set, which all have one size.
void ConvertSet(const ImageData& from, const ImageFormat& format, const ImageData& to,
                ImageSet* set) {
  const auto elements = std::ptrdiff_t(from.elements());
  std::vector<std::uint8_t> pixels;
  pixels.reserve(std::size_t(set->size() * to.elements()));
  for (std::ptrdiff_t i = 0; i < std::ptrdiff_t(set->size()); ++i) {
    const auto begin = set->pixels.begin() + i * elements;
    Image image{from.height, from.width, from.channels, {begin, begin + elements}};
    image = ConvertChannels(std::move(image), to.channels);
    if (format.resize != ResizeRule::kNone) {
      image = FitImage(std::move(image), format.resize, to.height, to.width);
    }
    pixels.insert(pixels.end(), image.pixels.begin(), image.pixels.end());
  }
  set->pixels = std::move(pixels);
}

// Applies a format to an array data set. Without changes the pixels stay where they are.
ImageData Convert(ImageData data, const ImageFormat& format) {
  ImageData to;
  const bool resized = format.resize != ResizeRule::kNone;
  to.height = resized ? format.height : data.height;
  to.width = resized ? format.width : data.width;
  to.channels = format.channels != 0 ? format.channels : data.channels;
  if (to.height != data.height || to.width != data.width || to.channels != data.channels) {
    for (ImageSet* set : {&data.train, &data.validation, &data.test}) {
      ConvertSet(data, format, to, set);
    }
    data.height = to.height, data.width = to.width, data.channels = to.channels;
  }
  return data;
}

}  // namespace

Result<ImageData> ReadImageFolder(const std::string& folder, const ImageFormat& format) {
  ImageData data;
  TROOP_ASSIGN_OR_RETURN(const std::vector<FileList> lists, ListAll(folder, &data));
  TROOP_ASSIGN_OR_RETURN(data.channels, ChannelsOf(format, lists));
  std::int64_t files = 0, done = 0;
  for (const FileList& list : lists) files += std::ssize(list.files);
  PhaseProgress progress("decoding", "images", files);
  FolderReader reader(format, &data);
  for (const FileList& list : lists) TROOP_RETURN_IF_ERROR(reader.Read(list, &progress, &done));
  // A share in addition to the lines per file, which a long log hides.
  if (data.skipped > 0) {
    LogWarning("images: {} of {} files in {} are damaged and skipped", data.skipped, files, folder);
  }
  return data;
}

Result<ImageData> ReadImages(const std::string& folder, const ImageFormat& format) {
  const bool idx = IsIdxFolder(folder);
  if (!idx && !IsCifarFolder(folder)) return ReadImageFolder(folder, format);
  auto data = idx ? ReadIdxFolder(folder) : ReadCifarFolder(folder);
  if (!data.ok()) return data.status();
  return Convert(*std::move(data), format);
}

}  // namespace troop
