#include "core/storage.h"

#include "core/storage_path.h"

namespace troop {

Status CheckStoragePath(std::string_view path) {
  const Status refused = InvalidArgument(
      "path \"{}\" leaves the storage: use a relative path with '/' and without \"..\"", path);
  if (path.starts_with('/')) return refused;
  for (std::size_t at = 0; at <= path.size();) {
    const std::size_t end = std::min(path.find('/', at), path.size());
    if (path.substr(at, end - at) == "..") return refused;
    at = end + 1;
  }
  return Status::Ok();
}

}  // namespace troop
