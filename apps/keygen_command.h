#pragma once

#include <string>

namespace troop {

struct KeygenOptions {
  std::string folder;
  std::string role;  // empty: one key for each role
  std::string name;  // of the file, such as a user's; empty: the role's
  bool rotate = false;
};
// `troop keygen`: writes key pairs, says what to do with them. Returns the exit code.
int Keygen(const KeygenOptions& options);

}  // namespace troop
