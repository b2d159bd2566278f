#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace troop {

// An unchanged file of examples/<language>_environment, embedded in the program.
struct EnvTemplate {
  std::string_view language;  // "c", "cpp", "python"
  std::string_view file, text;
};
// All template files; generated at build time.
std::span<const EnvTemplate> EnvTemplates();

// CMAKE_PREFIX_PATH for find_package(troop): the install prefix of `program`, or its build folder;
// empty if it is neither.
std::string PackagePrefix(const std::filesystem::path& program);

// Writes a copy of an example environment, renamed to `name`, to the new folder `parent`/`name`.
// `language`: "c", "c++" (or "cpp") or "python". `prefix`: from PackagePrefix. Returns the paths
// written. Errors: kInvalidArgument: `name` is not an identifier in all three languages, or the
// language is unknown; kAlreadyExists: the path exists.
Result<std::vector<std::string>> WriteEnvProject(const std::string& parent, const std::string& name,
                                                 const std::string& language,
                                                 const std::string& prefix = "");

}  // namespace troop
