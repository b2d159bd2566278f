#include "apps/config_change.h"

#include <fmt/format.h>

#include <cstdio>
#include <map>
#include <sstream>

#include "apps/run_folder.h"
#include "learners/checkpoint.h"

namespace troop {
namespace {

// By key, its section before it.
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

std::vector<std::string> ConfigChanges(std::string_view before_toml, const Config& now) {
  Result<Config> before = ParseConfig(before_toml, "a checkpoint", {});
  if (!before.ok()) return {};
  before->name = now.name;
  before->log.dir = now.log.dir;
  // Legs of serial runs keep their replay, whatever the file says.
  if (before->fleet.mode == "serial") before->replay.persist = now.replay.persist;
  std::vector<std::string> changes;
  const auto values = ValuesOf(*before);
  for (const auto& [key, value] : ValuesOf(now)) {
    const auto was = values.find(key);
    if (was == values.end() || was->second == value) continue;
    changes.push_back(fmt::format("{} = {} (it was {})", key, value, was->second));
  }
  return changes;
}

bool SameConfig(Storage* run, const std::string& path, const std::string& checkpoint) {
  const Result<CheckpointState> state = ReadCheckpoint(run, checkpoint);
  const Result<Config> now = ReadRunConfig(path, {});
  if (!state.ok() || !now.ok()) return true;  // which others say
  const std::vector<std::string> changes = ConfigChanges(state->config_toml, *now);
  constexpr std::size_t kToldMax = 5;
  for (std::size_t i = 0; i < changes.size() && i < kToldMax; ++i) {
    fmt::print(stderr, "troop: {}/config.toml has been changed since {}: {}\n", path, checkpoint,
               changes[i]);
  }
  if (changes.size() > kToldMax) {
    fmt::print(stderr, "troop: and {} more changes\n", changes.size() - kToldMax);
  }
  return changes.empty();
}

}  // namespace troop
