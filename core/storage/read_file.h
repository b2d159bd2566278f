#pragma once

#include <cstddef>
#include <string>

#include "core/base/status.h"

namespace troop {

// Reads a whole file. Blocks on the disk. Errors: kNotFound; kInvalidArgument for a folder or an
// unreadable file; kResourceExhausted if it is larger than `bytes_max`, before it is read.
Result<std::string> ReadFile(const std::string& path, std::size_t bytes_max);

}  // namespace troop
