#pragma once

#include <sys/stat.h>

#include <string>

#include "core/base/status.h"

namespace troop {

// Reads a file that this user or root owns and on which others have none of the rights `forbidden`
// (077: no access at all; 022: no write access). All checks use the descriptor that is read, so the
// file can't be exchanged in between. `remedy` is the command in the error message that removes
// those rights ("chmod 600"). `info` receives the file status if not null. Errors: kNotFound;
// kInvalidArgument, with a remedy.
Result<std::string> ReadPrivateFile(const std::string& path, mode_t forbidden, const char* remedy,
                                    std::size_t bytes_max, struct stat* info = nullptr);

}  // namespace troop
