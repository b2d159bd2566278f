#pragma once

#include <cstddef>

namespace troop {

// Copies `size` bytes from `from` to `first`, and to `second` unless it is nullptr, with
// non-temporal stores: for data that is written once and read much later. Ranges must not overlap.
// Only NontemporalFence orders such stores for other threads. Falls back to plain copies without
// processor support, or if an address is not a multiple of 16.
void NontemporalCopy(const std::byte* from, std::size_t size, std::byte* first, std::byte* second);
// Call after a thread's last NontemporalCopy, before it signals other threads.
void NontemporalFence();

}  // namespace troop
