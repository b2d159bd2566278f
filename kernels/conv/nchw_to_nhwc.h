#pragma once

#include <cstdint>

namespace troop {

// Channels last, from planes: out[i * planes + k] = in[k * stride + i], for i < n and k < planes.
// [planes, stride] to [n, planes], not overlapping.
void InterleaveBytes(const std::uint8_t* in, std::int64_t stride, std::int64_t planes,
                     std::int64_t n, std::uint8_t* out);

}  // namespace troop
