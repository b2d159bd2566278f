#pragma once

#include <string>

#include "apps/command_line.h"

namespace troop {

// Options of `troop keygen`.
struct KeygenOptions {
  std::string folder;
  std::string role;     // role of the key pair; empty: one pair for each role
  std::string name;     // name of the key file, for example the user's; needs `role`; empty: `role`
  bool rotate = false;  // replace existing pairs; the old ones stay valid until the next rotation
};
// `troop keygen`: writes key pairs and prints how to use them. Returns the exit code.
int Keygen(const KeygenOptions& options);

// Adds `troop keygen` to `app`.
void RegisterKeygen(CLI::App& app, ChosenCommand* chosen);

}  // namespace troop
