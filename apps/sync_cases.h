#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/sync_case.h"

// The settings that `troop check sync` goes through.
namespace troop {

// "sgd", "momentum", "centered", "adamw", …
std::span<const std::string_view> SyncOptimizers();
// REQUIRES: one of SyncOptimizers().
Config SyncOptimizer(std::string_view name);
std::string SyncOptimizerText(const Config& config);

// The modes of parameter shards: "bsp", "k_of_n+cancel", …
std::vector<std::string_view> SyncShardModes();
// All settings of such a mode; empty: it is another one. First those of one learner, which are one
// device's; then the product of the mode's settings with codecs, shardings and optimizers; then
// some over sockets.
std::vector<SyncCase> SyncCasesOf(std::string_view mode, std::uint64_t seed);
std::string SyncCaseText(const SyncCase& sync_case);

}  // namespace troop
