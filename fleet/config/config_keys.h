#pragma once

#include <string>
#include <vector>

#include "core/config/config_visitor.h"
#include "core/config/toml_text.h"
#include "fleet/config/config.h"

namespace troop {

// Visits all keys of a config, in the order of the documentation: those without a section, then
// each section with VisitKeys of its folder.
void VisitConfig(Config& config, ConfigVisitor& visitor);

// An invalid combination of values that are valid individually. keys[0] is the key to change.
struct ConfigConflict {
  std::vector<std::string> keys;
  std::string message;  // problem and remedy
};
// Returns all invalid combinations.
std::vector<ConfigConflict> FindConflicts(const Config& config);

}  // namespace troop
