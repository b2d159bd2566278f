// Implements the listing of folders without exceptions.
#include "core/storage/list_folder.h"

#include <algorithm>
#include <system_error>

namespace troop {

// A range-based loop would throw if reading fails after the first entry.
Result<std::vector<std::filesystem::path>> ListFolder(const std::string& path) {
  namespace fs = std::filesystem;
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error))
    entries.push_back(it->path());
  if (error == std::errc::no_such_file_or_directory) return NotFound("{}: no such folder", path);
  if (error) return Unavailable("{}: can't list the folder: {}", path, error.message());
  std::ranges::sort(entries);
  return entries;
}

}  // namespace troop
