#include "text/read_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/lfs_pointer.h"

namespace troop {

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
  if (!file) return InvalidArgument("{} can't be read: {}", path, std::strerror(errno));
  const auto too_large = [&] {
    return ResourceExhausted("{} is larger than {} bytes, the most that is read of it", path,
                             bytes_max);
  };
  // What is no plain file doesn't know its size: it is read in parts.
  std::size_t part = std::size_t{1} << 20;
  if (status.type() == std::filesystem::file_type::regular) {
    const std::uintmax_t size = std::filesystem::file_size(path, error);
    if (!error && size > bytes_max) return too_large();
    if (!error) part = std::size_t(size) + 1;
  }
  std::string bytes;
  while (file) {
    const std::size_t size = bytes.size();
    bytes.resize(size + part);
    file.read(bytes.data() + size, std::streamsize(part));
    bytes.resize(size + std::size_t(file.gcount()));
    if (bytes.size() > bytes_max) return too_large();
  }
  if (IsLfsPointer(bytes)) {
    return InvalidArgument("{} is a git-lfs pointer, not the file itself; fetch it: git lfs pull",
                           path);
  }
  if (file.bad()) return DataLoss("{} can't be read: {}", path, std::strerror(errno));
  return bytes;
}

}  // namespace troop
