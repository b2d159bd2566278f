#pragma once

#include <cstdint>

namespace troop {

// Resident bytes of this process and all its descendants, from /proc. Shared pages count once per
// process.
std::int64_t ResidentBytesOfFamily();

}  // namespace troop
