#include "kernels/cuda/runtime/memory_pool.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

namespace troop::cuda {
namespace {

// A driver with 1 MiB that counts allocations.
std::size_t used = 0;
int given_back = 0;
std::vector<std::pair<void*, std::size_t>> taken;

void* Take(std::size_t bytes) {
  if (used + bytes > std::size_t(1) << 20) return nullptr;
  used += bytes;
  taken.emplace_back(std::malloc(bytes), bytes);
  return taken.back().first;
}
void Give(void* memory) {
  for (auto& [at, bytes] : taken) {
    if (at != memory) continue;
    used -= bytes;
    bytes = 0;
    ++given_back;
  }
  std::free(memory);
}

class MemoryPoolTest : public testing::Test {
 protected:
  void SetUp() override {
    used = 0;
    given_back = 0;
    taken.clear();
  }
  void TearDown() override {  // the pool must not release what its owner still holds
    for (const auto& [at, bytes] : taken)
      if (bytes > 0) std::free(at);
  }
};

TEST_F(MemoryPoolTest, RoundsByAtMostAnEighth) {
  for (std::size_t bytes = 1; bytes < 100'000; bytes += 37) {
    const std::size_t rounded = MemoryPool::Rounded(bytes);
    EXPECT_GE(rounded, bytes);
    EXPECT_LE(rounded, std::max<std::size_t>(256, bytes + std::max<std::size_t>(255, bytes / 8)));
    EXPECT_EQ(rounded % 256, 0u);
  }
}

TEST_F(MemoryPoolTest, ReusesFreedBlocks) {
  MemoryPool pool(Take, Give);
  void* first = pool.Allocate(1000);
  pool.Free(first);
  EXPECT_EQ(pool.Allocate(1010), first);
  EXPECT_EQ(pool.taken(), 1);
  EXPECT_EQ(pool.used_bytes(), MemoryPool::Rounded(1000));
  EXPECT_NE(pool.Allocate(5000), first);
  EXPECT_EQ(pool.taken(), 2);
}

TEST_F(MemoryPoolTest, ReleasesCachedBlocksBeforeFailing) {
  MemoryPool pool(Take, Give);
  pool.Free(pool.Allocate(600'000));
  EXPECT_EQ(given_back, 0);
  EXPECT_NE(pool.Allocate(800'000), nullptr);
  EXPECT_EQ(given_back, 1);
  EXPECT_EQ(pool.Allocate(800'000), nullptr);
}

}  // namespace
}  // namespace troop::cuda
