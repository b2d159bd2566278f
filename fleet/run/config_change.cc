// Detects edits of a run's config.toml since a checkpoint, by comparing the canonical TOML texts.
#include "fleet/run/config_change.h"

#include <fmt/format.h>

#include <cstdio>
#include <map>
#include <sstream>

#include "fleet/config/config_migration.h"
#include "fleet/run/run_directory.h"
#include "learners/checkpoint.h"

namespace troop {
namespace {

// Values by full key ("section.key"), parsed from the canonical TOML.
std::map<std::string, std::string> ValuesOf(const Config& config) {
  std::map<std::string, std::string> values;
  std::istringstream lines(ToToml(config));
  std::string section;
  for (std::string line; std::getline(lines, line);) {
    const std::size_t equals = line.find(" = ");
    if (line.starts_with('[')) {
      section = line.substr(1, line.find(']') - 1) + ".";
    } else if (equals != line.npos) {
      values[section + line.substr(0, equals)] = line.substr(equals + 3);
    }
  }
  return values;
}

}  // namespace

// Keys that only one of the configs has (another version) are not reported.
std::vector<std::string> ConfigChanges(std::string_view before_toml, const Config& now) {
  Result<Config> before = ParseSavedConfig(before_toml, "a checkpoint", {});
  if (!before.ok()) return {};
  // A moved or renamed folder is not a change.
  before->name = now.name;
  before->log.dir = now.log.dir;
  // Serial runs set replay.persist themselves (SerialRun), whatever the file contains.
  if (before->fleet.mode == FleetMode::kSerial) before->replay.persist = now.replay.persist;
  std::vector<std::string> changes;
  const auto values = ValuesOf(*before);
  for (const auto& [key, value] : ValuesOf(now)) {
    const auto was = values.find(key);
    if (was == values.end() || was->second == value) continue;
    changes.push_back(fmt::format("{} = {} (it was {})", key, value, was->second));
  }
  return changes;
}

// Prints at most five changes.
bool SameConfig(Storage* run, const std::string& path, const std::string& checkpoint) {
  const Result<CheckpointState> state = ReadCheckpoint(run, checkpoint);
  const Result<Config> now = ReadRunConfig(path, {});
  if (!state.ok() || !now.ok()) return true;  // the caller reports these failures
  const std::vector<std::string> changes = ConfigChanges(state->config_toml, *now);
  constexpr std::size_t kToldMax = 5;
  for (std::size_t i = 0; i < changes.size() && i < kToldMax; ++i) {
    fmt::print(stderr, "troop: {}/config.toml has changed since {}: {}\n", path, checkpoint,
               changes[i]);
  }
  if (changes.size() > kToldMax) {
    fmt::print(stderr, "troop: and {} more changes\n", changes.size() - kToldMax);
  }
  return changes.empty();
}

}  // namespace troop
