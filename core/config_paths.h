#pragma once

#include <span>
#include <string>

#include "core/config.h"

namespace troop {

// Makes a relative env.python that names a file absolute, so that roles, `resume` and later
// commands find it whatever folder they are started in. It counts from the folder of `config_file`,
// or else from the working directory; one of the command line from the latter alone. A name without
// a slash is looked up in PATH when it is started, and a path that is nowhere here stays as it
// is: it may be one of another machine.
void MakePathsAbsolute(const std::string& config_file, std::span<const std::string> overrides,
                       Config* config);

}  // namespace troop
