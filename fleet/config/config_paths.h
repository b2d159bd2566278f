#pragma once

#include <span>
#include <string>

#include "fleet/config/config.h"

namespace troop {

// Makes relative paths in env.python and learner.library absolute if the file exists, so that
// roles, `resume` and later commands find it in any working directory. A path from the file is
// relative to the folder of `config_file`, then to the working directory; a path from the command
// line only to the latter. An interpreter without a slash is left for the search in PATH, and a
// path that does not exist here is kept, because it may exist on another machine.
void MakePathsAbsolute(const std::string& config_file, std::span<const std::string> overrides,
                       Config* config);

}  // namespace troop
