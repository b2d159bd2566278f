// Implements MakePathsAbsolute.
#include "fleet/config/config_paths.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

namespace troop {

namespace fs = std::filesystem;

void MakePathsAbsolute(const std::string& config_file, std::span<const std::string> overrides,
                       Config* config) {
  const fs::path python = config->env.python;
  if (python.is_absolute() || !python.has_parent_path()) return;
  if (config->fleet.engine == LaunchEngine::kKubernetes) return;  // a path in the container image
  // A path from the command line is relative to the working directory only.
  const bool overridden = std::ranges::any_of(
      overrides, [](const std::string& text) { return text.starts_with("env.python"); });
  // Folders in which the file is searched, in this order.
  std::vector<fs::path> places;
  if (!overridden) places.push_back(fs::path(config_file).parent_path());
  places.emplace_back(".");
  for (const fs::path& place : places) {
    std::error_code error;
    const fs::path path = fs::absolute(place / python, error).lexically_normal();
    if (error || !fs::is_regular_file(path, error)) continue;
    config->env.python =
        path.string();  // keep symbolic links: a virtual environment is found by its path
    return;
  }
}

}  // namespace troop
