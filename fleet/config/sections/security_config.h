#pragma once

#include <string>

namespace troop {

class ConfigVisitor;

// Keys and listen rules of a run ([security]).
struct SecurityConfig {
  std::string keys;       // folder of `troop keygen`; empty: no keys
  bool insecure = false;  // listen beyond this machine without keys
  bool operator==(const SecurityConfig&) const = default;
};
// Declares the keys.
void VisitKeys(SecurityConfig& config, ConfigVisitor& visitor);

}  // namespace troop
