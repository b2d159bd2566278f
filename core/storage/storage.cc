// Implements path validation and the default operations of Storage.
#include "core/storage/storage.h"

#include <limits>

#include "core/storage/path.h"

namespace troop {
namespace {

// True if `wrong` holds for a name between the slashes.
template <class F>
bool AnyName(std::string_view path, F wrong) {
  for (std::size_t at = 0; at <= path.size();) {
    const std::size_t end = std::min(path.find('/', at), path.size());
    if (wrong(path.substr(at, end - at))) return true;
    at = end + 1;
  }
  return false;
}

}  // namespace

// Default for storages without mapping: reads the whole file.
Result<Buffer> Storage::Map(std::string_view path) {
  return Read(path, std::numeric_limits<std::size_t>::max());
}

// Default for storages without truncation: rewrites the file.
Status Storage::Truncate(std::string_view path, std::size_t bytes) {
  TROOP_ASSIGN_OR_RETURN(const Buffer old, Map(path));
  if (old.size() < bytes) {
    return InvalidArgument("{} has {} bytes; can't truncate it to {}", path, old.size(), bytes);
  }
  return WriteAtomic(path, old.bytes().first(bytes));
}

// Default for storages without links: a copy.
Status Storage::Link(std::string_view from, std::string_view to) {
  TROOP_ASSIGN_OR_RETURN(const Buffer bytes, Map(from));
  return WriteAtomic(to, bytes.bytes());
}

// Paths may come from a config or another process; they must not leave the root.
Status CheckStoragePath(std::string_view path) {
  // A null byte would truncate the path in system calls.
  const auto up = [](std::string_view name) { return name == ".."; };
  if (path.starts_with('/') || path.find('\0') != path.npos || AnyName(path, up)) {
    return InvalidArgument(
        "path \"{}\" is outside the storage; use a relative path with '/' and without \"..\"",
        path);
  }
  return Status::Ok();
}

// Stricter than CheckStoragePath: writes and removals must not refer to the root itself.
Status CheckStorageName(std::string_view path) {
  TROOP_RETURN_IF_ERROR(CheckStoragePath(path));
  if (AnyName(path, [](std::string_view name) { return name.empty() || name == "."; })) {
    return InvalidArgument("path \"{}\" is not a file name; use names with single '/' between them",
                           path);
  }
  return Status::Ok();
}

}  // namespace troop
