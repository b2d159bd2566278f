// What a libstdc++ of a new C library asks it for, and one before 2.36 has not: with this, programs
// that have libstdc++ linked in start there, too.
#include <sys/random.h>

#include <cstdint>

extern "C" std::uint32_t arc4random() noexcept;
extern "C" std::uint32_t arc4random() noexcept {
  std::uint32_t number = 0;
  while (getrandom(&number, sizeof number, 0) != sizeof number) {
  }
  return number;
}
