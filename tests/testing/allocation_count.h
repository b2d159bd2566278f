#pragma once

#include <cstdint>

namespace troop {

// Allocations of the calling thread so far: malloc, calloc, realloc, the aligned forms, and thereby
// operator new. Only programs that link allocation_count.cc count (tests/CMakeLists.txt).
std::int64_t AllocationsOfThread();

}  // namespace troop
