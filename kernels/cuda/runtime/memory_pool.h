#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace troop::cuda {

// Memory that is asked of a driver once and used again: what is freed waits, by size, for the next
// request of that size, rounded up to an eighth of a power of two. When the driver has none left,
// all that waits goes back to it, and it is asked again. Not thread-safe.
class MemoryPool {
 public:
  using Take = void* (*)(std::size_t bytes);  // nullptr: none left
  using Give = void (*)(void* memory);
  MemoryPool(Take take, Give give) : take_(take), give_(give) {}
  ~MemoryPool();
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  void* Allocate(std::size_t bytes);  // nullptr: none left
  void Free(void* memory);            // REQUIRES: of Allocate
  std::size_t used_bytes() const { return used_bytes_; }
  std::int64_t taken() const { return taken_; }  // calls of Take that gave something

  static std::size_t Rounded(std::size_t bytes);

 private:
  void GiveBackWaiting();

  const Take take_;
  const Give give_;
  std::map<std::size_t, std::vector<void*>> waiting_;
  std::map<void*, std::size_t> size_;  // of all that is not waiting
  std::size_t used_bytes_ = 0;
  std::int64_t taken_ = 0;
};

// "out of GPU memory: <what> asks for 12.0 GiB, and 3.1 of 139.0 GiB are free; …". all_bytes 0: not
// known.
std::string OutOfMemory(std::string_view memory, std::string_view what, std::size_t bytes,
                        std::size_t free_bytes, std::size_t all_bytes);

}  // namespace troop::cuda
