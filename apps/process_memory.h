#pragma once

#include <cstdint>

namespace troop {

// Resident bytes of this process and of all that it started, directly or not, by /proc. What they
// share counts once for each.
std::int64_t ResidentBytesOfFamily();

}  // namespace troop
