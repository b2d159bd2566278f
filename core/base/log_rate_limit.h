#pragma once

#include <cstdint>

#include "core/base/time.h"

namespace troop {

// Rate limit for log lines of one kind: passes occurrences 1, 2, 4, …, and at least one per second.
struct LogRateLimit {
  std::uint64_t number = 0;
  Time next{};
  bool Next(Time now) {
    ++number;
    if ((number & (number - 1)) != 0 && now < next) return false;
    next = now + Seconds(1);
    return true;
  }
};

}  // namespace troop
