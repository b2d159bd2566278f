#pragma once

#include <cstddef>
#include <string>

#include "core/status.h"

namespace troop {

// The bytes of a file. Blocks on the disk. Errors: kNotFound; kInvalidArgument for a folder and for
// what can't be read; kResourceExhausted when it is larger than `bytes_max`, before it is read.
Result<std::string> ReadFile(const std::string& path, std::size_t bytes_max);

}  // namespace troop
