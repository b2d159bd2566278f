#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/config.h"
#include "core/storage.h"

namespace troop {

// The keys in which `now` differs from the config that a checkpoint was written with, a phrase
// each: "learner.gamma = 0.89 (it was 0.99)". Not name and log.dir: a folder may have been moved.
// None where the older one can't be read (of another version).
std::vector<std::string> ConfigChanges(std::string_view before_toml, const Config& now);

// Prints on standard error in what the config.toml of a run's folder differs from that of one of
// its checkpoints: it was edited, or damaged. Keys of the command line are not looked at. False: in
// something.
bool SameConfig(Storage* run, const std::string& path, const std::string& checkpoint);

}  // namespace troop
