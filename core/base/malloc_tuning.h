#pragma once

namespace troop {

// Configures the C library to reuse freed memory. Otherwise a process that allocates and frees
// about a hundred MB per gradient gets new pages each time, which the kernel must clear: more than
// half of the time of a push and pull of 100 MB. As a cost, the process keeps up to 1 GiB of freed
// memory. All threads share one heap, so use it only in processes with few allocating threads.
// Call it before any thread starts. No effect under the sanitizers.
void RetainFreedPages();

}  // namespace troop
