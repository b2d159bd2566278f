#pragma once

#include <cstddef>

namespace troop {

// Copies `size` bytes from `from` to `first`, and to `second` unless it is nullptr, past the
// caches: for what is written once and read much later. Ranges don't overlap. Only StreamFence
// orders such stores for other threads. Plain copies where the processor has none, or an address is
// no multiple of 16.
void StreamCopy(const std::byte* from, std::size_t size, std::byte* first, std::byte* second);
// After the last StreamCopy of a thread, before it tells others.
void StreamFence();

}  // namespace troop
