#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "core/base/status.h"

namespace troop {

// Decompresses a `.xz` file of one or several streams and verifies its checksums. Errors: kDataLoss
// if it is damaged or not such a file; kResourceExhausted if the content is larger than
// `bytes_max`, or its dictionary than 256 MiB. O(content); about 60 MB/s.
Result<std::string> DecompressXz(std::string_view bytes, std::size_t bytes_max);

}  // namespace troop
