// Pool of driver memory with free lists by size, and the out-of-memory message.
#include "kernels/cuda/runtime/memory_pool.h"

#include <algorithm>
#include <bit>
#include <cstdio>

namespace troop::cuda {

MemoryPool::~MemoryPool() { GiveBackWaiting(); }

std::size_t MemoryPool::Rounded(std::size_t bytes) {
  constexpr std::size_t kLeast = 256;
  if (bytes <= kLeast) return kLeast;
  // Steps of an eighth of the power of two below: at most 12.5 % is wasted.
  const std::size_t step = std::max(kLeast, std::bit_floor(bytes - 1) / 8);
  return (bytes + step - 1) / step * step;
}

// A waiting block of the same rounded size, else memory of the driver; nullptr: neither has any.
void* MemoryPool::Allocate(std::size_t bytes) {
  const std::size_t rounded = Rounded(bytes);
  void* memory = nullptr;
  if (const auto found = waiting_.find(rounded);
      found != waiting_.end() && !found->second.empty()) {
    memory = found->second.back();
    found->second.pop_back();
  } else {
    memory = take_(rounded);
    // Kept blocks of other sizes may suffice.
    if (memory == nullptr) {
      GiveBackWaiting();
      memory = take_(rounded);
    }
    if (memory == nullptr) return nullptr;
    ++taken_;
  }
  size_[memory] = rounded;
  used_bytes_ += rounded;
  return memory;
}

void MemoryPool::Free(void* memory) {
  // The block keeps its rounded size and waits for the next request of it.
  const auto found = size_.find(memory);
  used_bytes_ -= found->second;
  waiting_[found->second].push_back(memory);
  size_.erase(found);
}

// The driver may then place a block of another size there.
void MemoryPool::GiveBackWaiting() {
  for (auto& [size, list] : waiting_) {
    for (void* memory : list) give_(memory);
  }
  waiting_.clear();
}

// Without the size of the device, only the need is known.
std::string OutOfMemory(std::string_view memory, std::string_view what, std::size_t bytes,
                        std::size_t free_bytes, std::size_t all_bytes) {
  constexpr double kGiB = 1024.0 * 1024 * 1024;
  char numbers[160];
  const int n = std::snprintf(numbers, sizeof numbers, " needs %.3g GiB", double(bytes) / kGiB);
  if (all_bytes > 0) {
    std::snprintf(numbers + n, sizeof numbers - std::size_t(n), ", %.3g of %.3g GiB are free",
                  double(free_bytes) / kGiB, double(all_bytes) / kGiB);
  }
  return "out of " + std::string(memory) + " memory: " + std::string(what) + numbers +
         "; reduce it in the config, or stop other processes on the device (see nvidia-smi)";
}

}  // namespace troop::cuda
