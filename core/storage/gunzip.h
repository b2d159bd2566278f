#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "core/base/status.h"

namespace troop {

// Decompresses a gzip file in memory (RFC 1952). Concatenated parts give one text; the checksum of
// each is verified. Errors: kDataLoss with the position: damaged or truncated; kResourceExhausted:
// more than `bytes_max`. O(bytes).
Result<std::string> Gunzip(std::string_view bytes, std::size_t bytes_max);

}  // namespace troop
