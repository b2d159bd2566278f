#pragma once

#include <string_view>

#include "core/base/status.h"

namespace troop {

// Checks that a path stays within the root of the storage. Errors: kInvalidArgument.
Status CheckStoragePath(std::string_view path);
// Also checks that each name in the path is valid, for paths to be created.
Status CheckStorageName(std::string_view path);

// Removes the trailing slash that List appends to folders.
inline std::string_view StripTrailingSlash(std::string_view path) {
  if (path.ends_with('/')) path.remove_suffix(1);
  return path;
}

}  // namespace troop
