// Implements ReadPrivateFile.
#include "net/security/private_file.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <cerrno>

namespace troop {

// All checks use the open descriptor, so the file can't be exchanged between check and read.
Result<std::string> ReadPrivateFile(const std::string& path, mode_t forbidden, const char* remedy,
                                    std::size_t bytes_max, struct stat* info) {
  struct stat own {};
  if (info == nullptr) info = &own;
  // O_NONBLOCK: opening a pipe without a writer must not block.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (fd < 0) {
    const int error = errno;
    if (error == ENOENT) return NotFound("{}: no such file", path);
    return InvalidArgument("{}: {}", path, strerror(error));
  }
  const auto read_all = [&]() -> Result<std::string> {
    if (fstat(fd, info) != 0 || !S_ISREG(info->st_mode)) {
      return InvalidArgument("{} is not a regular file", path);
    }
    // Files of root are accepted: root could replace any file.
    if (info->st_uid != geteuid() && info->st_uid != 0) {
      return InvalidArgument("{} is owned by another user ({}); use a copy that you own", path,
                             info->st_uid);
    }
    if ((info->st_mode & forbidden) != 0) {
      return InvalidArgument("{}: other users can {} it (mode {:04o}); {} {}", path,
                             forbidden == 077 ? "access" : "write to", info->st_mode & 07777,
                             remedy, path);
    }
    if (std::size_t(info->st_size) > bytes_max) {
      return InvalidArgument("{} has {} bytes, the limit is {}", path, info->st_size, bytes_max);
    }
    // A file that grows while it is read is read up to its initial size.
    std::string text(std::size_t(info->st_size), '\0');
    std::size_t at = 0;
    while (at < text.size()) {
      const ssize_t n = read(fd, text.data() + at, text.size() - at);
      if (n <= 0) return InvalidArgument("can't read {}: {}", path, strerror(errno));
      at += std::size_t(n);
    }
    return text;
  };
  Result<std::string> text = read_all();
  close(fd);
  return text;
}

}  // namespace troop
