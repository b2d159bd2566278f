// Reads a file into memory with a size limit and a progress line.

#include "core/storage/read_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/base/phase_progress.h"
#include "core/storage/lfs_pointer.h"

namespace troop {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20, kReadBytes = 16 * kMiB;

}  // namespace

// Errors: kNotFound, kInvalidArgument for a folder, kResourceExhausted above `bytes_max`.
Result<std::string> ReadFile(const std::string& path, std::size_t bytes_max) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) {
    return NotFound("{} does not exist", path);
  }
  if (status.type() == std::filesystem::file_type::directory) {
    return InvalidArgument("{} is a folder, not a file", path);
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) return InvalidArgument("cannot read {}: {}", path, std::strerror(errno));
  const auto too_large = [&] {
    return ResourceExhausted("{} is larger than the limit of {} bytes", path, bytes_max);
  };
  // The size of anything but a regular file is unknown: the buffer grows while reading.
  std::size_t part = kMiB;
  bool known = false;
  if (status.type() == std::filesystem::file_type::regular) {
    const std::uintmax_t size = std::filesystem::file_size(path, error);
    if (!error && size > bytes_max) return too_large();
    known = !error;
    // One byte more than the size, so that the first read detects the end.
    if (known) part = std::size_t(size) + 1;
  }
  PhaseProgress progress("reading " + path, "MiB", std::int64_t(part / kMiB));
  std::string bytes;
  std::size_t size = 0;
  // Reads in parts, so that progress is shown and the limit ends the reading of endless files.
  while (file) {
    if (size == bytes.size()) bytes.resize(size + part);
    file.read(bytes.data() + size, std::streamsize(std::min(bytes.size() - size, kReadBytes)));
    size += std::size_t(file.gcount());
    if (size > bytes_max) return too_large();
    if (known) progress.Show(std::int64_t(size / kMiB));
  }
  // A pointer file means that git-lfs did not download the data.
  bytes.resize(size);
  if (IsLfsPointer(bytes)) {
    return InvalidArgument(
        "{} is a git-lfs pointer, not the file itself; fetch it with git lfs pull", path);
  }
  if (file.bad()) return DataLoss("cannot read {}: {}", path, std::strerror(errno));
  return bytes;
}

}  // namespace troop
