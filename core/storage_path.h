#pragma once

#include <string_view>

#include "core/status.h"

namespace troop {

// Errors: kInvalidArgument for a path that could leave the storage's root.
Status CheckStoragePath(std::string_view path);

}  // namespace troop
