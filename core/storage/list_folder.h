#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/base/status.h"

namespace troop {

// Returns the paths of a folder's entries, sorted, since their order depends on the file system.
// Blocks on the disk. Errors: kNotFound: no such folder; kUnavailable: the folder cannot be read,
// or not to its end, so that a partial list is never taken for a whole one.
Result<std::vector<std::filesystem::path>> ListFolder(const std::string& path);

}  // namespace troop
