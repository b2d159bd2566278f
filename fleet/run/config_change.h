#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/storage/storage.h"
#include "fleet/config/config.h"

namespace troop {

// The keys in which `now` differs from a checkpoint's config, as "learner.gamma = 0.89 (it was
// 0.99)". Ignores name and log.dir, since a folder may have been moved. Empty if the older config
// can't be parsed (another version).
std::vector<std::string> ConfigChanges(std::string_view before_toml, const Config& now);

// Compares config.toml of a run folder with a checkpoint's config, and prints the differences (the
// file was edited or damaged) to standard error. Ignores overrides of the command line. True if
// they are equal.
bool SameConfig(Storage* run, const std::string& path, const std::string& checkpoint);

}  // namespace troop
