#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/base/status.h"

namespace troop {

// The checksum of a file in SHA256SUMS of its folder ("73a3…  aclImdb_labeled.tar.xz"); nullopt:
// there is none.
std::optional<std::string> ExpectedSha256(const std::string& path);

// Verifies that checksum. Ok if there is none. Errors: kDataLoss.
Status CheckSha256Sums(const std::string& path, std::string_view bytes);

}  // namespace troop
