#pragma once

#include <cstdint>

#include "core/time.h"

namespace troop {

// A flood must not flood the log: numbers 1, 2, 4, … of a kind get a line, and one each second.
struct LogGate {
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
