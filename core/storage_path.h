#pragma once

#include <string_view>

#include "core/status.h"

namespace troop {

// Errors: kInvalidArgument for a path that could leave the storage's root.
Status CheckStoragePath(std::string_view path);
// The same for the path of something to be made: also every name in it must be one.
Status CheckStorageName(std::string_view path);

// "folder/", as List names it, is "folder".
inline std::string_view WithoutSlash(std::string_view path) {
  if (path.ends_with('/')) path.remove_suffix(1);
  return path;
}

}  // namespace troop
