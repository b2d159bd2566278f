#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/selfcheck/sync_case.h"

// The cases of `troop selftest sync`.
namespace troop {

// Names of the optimizers: "sgd", "momentum", "centered", "adamw", …
std::span<const std::string_view> SyncOptimizers();
// The config of an optimizer. REQUIRES: one of SyncOptimizers().
Config SyncOptimizer(std::string_view name);
std::string SyncOptimizerText(const Config& config);

// The modes of parameter shards: "bsp", "k_of_n+cancel", …
std::vector<std::string_view> SyncShardModes();
// All cases of a mode of SyncShardModes(); empty for other modes. First those with one learner,
// which must equal one device; then the product of the mode's settings with codecs, shardings and
// optimizers; then some over sockets.
std::vector<SyncCase> SyncCasesOf(std::string_view mode, std::uint64_t seed);
// Human-readable description of a case.
std::string SyncCaseText(const SyncCase& sync_case);

}  // namespace troop
