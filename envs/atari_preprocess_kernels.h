#pragma once

#include <cstdint>

namespace troop {

class AtariPreprocess;

// REQUIRES: Supports(kAvx2), and that not both sides shrink by a whole factor.
void AreaResizeAvx2(const AtariPreprocess& preprocess, const std::uint8_t* a, const std::uint8_t* b,
                    std::uint8_t* out);

}  // namespace troop
