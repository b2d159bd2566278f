#pragma once

#include <cstdint>

namespace troop {

class AtariPreprocess;

// AVX2 path of AtariPreprocess::Run. REQUIRES: Supports(kAvx2); not both dimensions shrink by an
// integer factor.
void AreaResizeAvx2(const AtariPreprocess& preprocess, const std::uint8_t* a, const std::uint8_t* b,
                    std::uint8_t* out);

}  // namespace troop
