#pragma once

#include <string_view>

namespace troop {

// True if a file contains a git-lfs pointer instead of its data, as in a clone before `git lfs
// pull`. bytes: the beginning of the file, at least 40 bytes if it has them.
inline bool IsLfsPointer(std::string_view bytes) {
  return bytes.starts_with("version https://git-lfs.github.com/spec/");
}

}  // namespace troop
