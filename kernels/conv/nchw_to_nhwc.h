#pragma once

#include <cstdint>

namespace troop {

// Converts planes to channels last: out[i * planes + k] = in[k * stride + i] for i < n and k <
// planes. in: [planes, stride]; out: [n, planes]; without overlap.
void NchwToNhwcBytes(const std::uint8_t* in, std::int64_t stride, std::int64_t planes,
                     std::int64_t n, std::uint8_t* out);

}  // namespace troop
