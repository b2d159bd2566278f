#include "replay/big_array.h"

#include <sys/mman.h>

#include <algorithm>

namespace troop {
namespace {
constexpr std::size_t kPage = 4096;
}

std::size_t RoundToPages(std::size_t bytes) {
  return (std::max<std::size_t>(bytes, 1) + kPage - 1) / kPage * kPage;
}

Result<std::shared_ptr<std::byte>> MapZeroPages(std::size_t bytes) {
  const std::size_t rounded = RoundToPages(bytes);
  void* const pages =
      ::mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) {
    return ResourceExhausted("replay: the system refuses {} MiB of memory; lower the capacity",
                             rounded >> 20);
  }
  ::madvise(pages, rounded, MADV_HUGEPAGE);  // a wish: without it only speed is lost
  return std::shared_ptr<std::byte>(static_cast<std::byte*>(pages),
                                    [rounded](std::byte* p) { ::munmap(p, rounded); });
}

}  // namespace troop
