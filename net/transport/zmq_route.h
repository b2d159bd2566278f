#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace troop {

// Limits of the work per socket and Pump.
inline constexpr int kMessagesPerPump = 256;
inline constexpr std::size_t kBytesPerPump = std::size_t{32} << 20;

// A random id of a channel or a server, never 0.
std::uint64_t RandomId();

// A routing id is 'T' and the channel id, so a client has the same one on every connection.
using Route = std::array<std::byte, 9>;
Route RouteOf(std::uint64_t channel);

}  // namespace troop
