// Zeroed anonymous memory, aligned for huge pages.
#include "replay/storage/huge_array.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>

namespace troop {
namespace {
constexpr std::size_t kPage = 4096;
}

std::size_t RoundToPages(std::size_t bytes) {
  return (std::max<std::size_t>(bytes, 1) + kPage - 1) / kPage * kPage;
}

// Ranges from 2 MiB on begin at a huge-page boundary. The system may place them elsewhere, so map
// 2 MiB more and unmap the ends.
Result<std::shared_ptr<std::byte>> MapZeroPages(std::size_t bytes) {
  constexpr std::size_t kHuge = std::size_t{2} << 20;
  const std::size_t rounded = RoundToPages(bytes);
  const std::size_t extra = rounded >= kHuge ? kHuge : 0;
  void* const mapped =
      ::mmap(nullptr, rounded + extra, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) {
    return ResourceExhausted("replay: cannot allocate {} MiB; lower capacity_items", rounded >> 20);
  }
  auto* const begin = static_cast<std::byte*>(mapped);
  const std::size_t skip =
      extra == 0 ? 0 : (kHuge - reinterpret_cast<std::uintptr_t>(begin) % kHuge) % kHuge;
  if (skip > 0) ::munmap(begin, skip);
  if (extra > skip) ::munmap(begin + skip + rounded, extra - skip);
  ::madvise(begin + skip, rounded, MADV_HUGEPAGE);  // a hint: failure only costs speed
  return std::shared_ptr<std::byte>(begin + skip,
                                    [rounded](std::byte* p) { ::munmap(p, rounded); });
}

}  // namespace troop
