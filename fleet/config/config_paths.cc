// Implements MakePathsAbsolute.
#include "fleet/config/config_paths.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

namespace troop {

namespace fs = std::filesystem;

namespace {

// Searches a relative path. given: its key was given on the command line, so that it is relative to
// the working directory only.
void MakeAbsolute(const std::string& config_file, bool given, std::string* path) {
  std::vector<fs::path> places;  // folders in which the file is searched, in this order
  if (!given) places.push_back(fs::path(config_file).parent_path());
  places.emplace_back(".");
  for (const fs::path& place : places) {
    std::error_code error;
    const fs::path found = fs::absolute(place / *path, error).lexically_normal();
    if (error || !fs::is_regular_file(found, error)) continue;
    *path = found.string();  // keep symbolic links: a virtual environment is found by its path
    return;
  }
}

}  // namespace

void MakePathsAbsolute(const std::string& config_file, std::span<const std::string> overrides,
                       Config* config) {
  if (config->fleet.engine == LaunchEngine::kKubernetes) return;  // paths in the container image
  const auto overridden = [&](std::string_view key) {
    return std::ranges::any_of(overrides,
                               [&](const std::string& text) { return text.starts_with(key); });
  };
  const fs::path python = config->env.python;
  if (!python.is_absolute() && python.has_parent_path())
    MakeAbsolute(config_file, overridden("env.python"), &config->env.python);
  const fs::path library = config->learner.library;
  if (!library.empty() && !library.is_absolute())
    MakeAbsolute(config_file, overridden("learner.library"), &config->learner.library);
}

}  // namespace troop
