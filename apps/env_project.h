#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace troop {

// A file of examples/<language>_environment, as it is there.
struct EnvTemplate {
  std::string_view language;  // "c", "cpp", "python"
  std::string_view file, text;
};
std::span<const EnvTemplate> EnvTemplates();

// The CMAKE_PREFIX_PATH for find_package(troop): the prefix that `program` is installed under, or
// the folder that it was built in; empty if it is in neither.
std::string PackagePrefix(const std::filesystem::path& program);

// Writes the folder `parent`/`name` with an environment to change: the example of that language
// ("c", "c++" or "cpp", "python"), called by its new name. `prefix`: as of PackagePrefix. Gives the
// files written. Errors: kInvalidArgument for a name that is none in all three languages, or
// another language; kAlreadyExists where there is something of that name.
Result<std::vector<std::string>> WriteEnvProject(const std::string& parent, const std::string& name,
                                                 const std::string& language,
                                                 const std::string& prefix = "");

}  // namespace troop
