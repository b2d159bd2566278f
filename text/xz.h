#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "core/status.h"

namespace troop {

// The content of a `.xz` file of one or several streams; their checksums are looked at. Errors:
// kDataLoss where it is damaged or no such file; kResourceExhausted where the content is larger
// than `bytes_max`, or its dictionary than 256 MiB. O(content); some 60 MB/s.
Result<std::string> DecompressXz(std::string_view bytes, std::size_t bytes_max);

}  // namespace troop
