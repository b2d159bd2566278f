// Implements RetainFreedPages with mallopt of glibc.
#include "core/base/malloc_tuning.h"

#include <malloc.h>

namespace troop {

void RetainFreedPages() {
#ifdef __GLIBC__
  constexpr int kMmapMost = 32 << 20;  // maximum that glibc accepts
  // Free memory at the top of the heap that is kept.
  constexpr int kKept = 1 << 30;
  mallopt(M_MMAP_THRESHOLD, kMmapMost);
  mallopt(M_TRIM_THRESHOLD, kKept);
  mallopt(M_ARENA_MAX, 1);
#endif
}

}  // namespace troop
