#include "kernels/conv/nchw_to_nhwc.h"

#include <gtest/gtest.h>

#include <vector>

namespace troop {
namespace {

TEST(InterleaveTest, InterleavesEveryByteWithoutOverrun) {
  for (const std::int64_t planes : {1, 2, 3, 4, 5, 8}) {
    for (const std::int64_t n : {0, 1, 15, 16, 17, 31, 32, 100, 1024, 1027}) {
      SCOPED_TRACE(testing::Message() << planes << " planes of " << n);
      const std::int64_t stride = n + 3;
      std::vector<std::uint8_t> in(std::size_t(planes * stride));
      for (std::size_t i = 0; i < in.size(); ++i) in[i] = std::uint8_t(i * 7 + i / 256);
      std::vector<std::uint8_t> out(std::size_t(planes * n) + 16, 0xee);
      NchwToNhwcBytes(in.data(), stride, planes, n, out.data());
      for (std::int64_t at = 0; at < planes * n; ++at) {
        ASSERT_EQ(out[std::size_t(at)], in[std::size_t(at % planes * stride + at / planes)]) << at;
      }
      for (std::size_t at = std::size_t(planes * n); at < out.size(); ++at) {
        ASSERT_EQ(out[at], 0xee) << "behind the end";
      }
    }
  }
}

}  // namespace
}  // namespace troop
