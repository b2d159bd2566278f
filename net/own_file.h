#pragma once

#include <sys/stat.h>

#include <string>

#include "core/status.h"

namespace troop {

// The text of a file that is our own, or root's, and on which others have none of the rights
// `forbidden` (077: not even to read; 022: not to write), by the descriptor that it is read from.
// `remedy` takes them away ("chmod 600"). `info`: of the file, where wanted. Errors: kNotFound;
// kInvalidArgument, with what to do.
Result<std::string> ReadOwnFile(const std::string& path, mode_t forbidden, const char* remedy,
                                std::size_t bytes_max, struct stat* info = nullptr);

}  // namespace troop
