#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace troop::cuda {

// Pool of memory from the CUDA driver. Sizes are rounded up to a multiple of an eighth of the power
// of two below them. Freed blocks are kept, and serve later requests of the same rounded size. If
// the driver has no memory left, the pool returns all kept blocks to it and tries again. Not
// thread-safe.
class MemoryPool {
 public:
  using Take = void* (*)(std::size_t bytes);  // nullptr: none left
  using Give = void (*)(void* memory);
  MemoryPool(Take take, Give give) : take_(take), give_(give) {}
  ~MemoryPool();
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  void* Allocate(std::size_t bytes);                      // nullptr: none left
  void Free(void* memory);                                // REQUIRES: from Allocate
  std::size_t used_bytes() const { return used_bytes_; }  // of blocks in use, rounded sizes
  std::int64_t taken() const { return taken_; }           // successful calls of Take

  // The size that a request is rounded up to, at least 256 bytes.
  static std::size_t Rounded(std::size_t bytes);

 private:
  // Returns all kept blocks to the driver.
  void GiveBackWaiting();

  const Take take_;
  const Give give_;
  // Kept blocks by rounded size.
  std::map<std::size_t, std::vector<void*>> waiting_;
  std::map<void*, std::size_t> size_;  // sizes of blocks in use
  std::size_t used_bytes_ = 0;
  std::int64_t taken_ = 0;
};

// The message of a failed allocation: "out of GPU memory: <what> needs 12 GiB, 3.1 of 139 GiB are
// free; …". all_bytes 0: unknown, and the free memory is left out.
std::string OutOfMemory(std::string_view memory, std::string_view what, std::size_t bytes,
                        std::size_t free_bytes, std::size_t all_bytes);

}  // namespace troop::cuda
