#include "actors/experience/frame_stack.h"

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <vector>

#include "core/base/philox.h"

namespace troop {
namespace {

using Frame = std::vector<std::uint8_t>;

TEST(FrameStackTest, HoldsLastFramesOldestFirstPaddedWithZeros) {
  constexpr int kEnvs = 3, kBytes = 6;
  for (const int size : {1, 2, 4, 7}) {
    FrameStack stack({DType::kU8, {2, 3}}, kEnvs, size);
    EXPECT_EQ(stack.stacked().spec().ToString(),
              (TensorSpec{DType::kU8, {kEnvs, size, 2, 3}}).ToString());
    Rng rng({.run_seed = 1, .index = std::uint64_t(size)});
    std::vector<std::deque<Frame>> seen(kEnvs);  // of the episode
    Tensor frames(DType::kU8, {kEnvs, 2, 3});
    std::vector<std::uint8_t> first(kEnvs);
    for (int step = 0; step < 200; ++step) {
      for (auto& byte : frames.as<std::uint8_t>()) byte = std::uint8_t(1 + rng.Below(255));
      for (std::size_t i = 0; i < kEnvs; ++i) {
        first[i] = step == 0 || rng.Below(5) == 0;
        if (first[i] != 0) seen[i].clear();
        const auto* row = frames.data<std::uint8_t>() + i * kBytes;
        seen[i].emplace_back(row, row + kBytes);
      }
      stack.Append(frames, first);
      for (std::size_t i = 0; i < kEnvs; ++i) {
        for (int back = 0; back < size; ++back) {
          const Frame want = std::size_t(back) < seen[i].size()
                                 ? seen[i][seen[i].size() - 1 - std::size_t(back)]
                                 : Frame(kBytes, 0);
          const auto* got = stack.stacked().as<std::uint8_t>().data() +
                            (i * std::size_t(size) + std::size_t(size - 1 - back)) * kBytes;
          ASSERT_EQ(Frame(got, got + kBytes), want)
              << "environment " << i << ", step " << step << ", " << back << " before";
        }
      }
    }
  }
}

}  // namespace
}  // namespace troop
