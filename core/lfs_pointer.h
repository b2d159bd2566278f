#pragma once

#include <string_view>

namespace troop {

// True where a file's bytes are not its own but git-lfs' note of where they are: what a clone has
// in its place before `git lfs pull`.
inline bool IsLfsPointer(std::string_view bytes) {
  return bytes.starts_with("version https://git-lfs.github.com/spec/");
}

}  // namespace troop
