// Replacement for arc4random, which a recent libstdc++ takes from the C library and glibc before
// 2.36 lacks. With it, programs that link libstdc++ statically start on such systems.
#include <sys/random.h>

#include <cstdint>

extern "C" std::uint32_t arc4random() noexcept;
extern "C" std::uint32_t arc4random() noexcept {
  std::uint32_t number = 0;
  while (getrandom(&number, sizeof number, 0) != sizeof number) {
  }
  return number;
}
